# Sourced by the other scripts: a virtual environment with pinned packages, and a Docker engine.
# Everything lands in .venv and in the cache folder; a second time it takes a second or two.
# shellcheck shell=bash
set -euo pipefail
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
VENV=$(realpath -ms "${SCLATE_VENV:-$ROOT/.venv}") # whoever goes elsewhere still finds it
cd "$ROOT"

say() { printf '%s\n' "$*" >&2; }
die() { say "error: $1"; say "  why: $2"; say "  fix: $3"; exit 3; }
may_install() { [ "$(id -u)" = 0 ] && [ "${CI:-}" = true -o "${SCLATE_INSTALL:-}" = 1 ] && command -v apt-get >/dev/null; }

apt_install() { # packages; only where the machine is ours to change
  say "installing $* from Debian's packages"
  apt-get -q update >/dev/null && DEBIAN_FRONTEND=noninteractive apt-get -q install -y --no-install-recommends "$@" >/dev/null
}

find_python() { # a Python that is new enough
  local python
  for python in "${SCLATE_PYTHON:-python3}" python3.13 python3.12 python3.11; do
    if "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
      echo "$python"
      return
    fi
  done
  die "no Python 3.11 or newer" "SCLATE needs one" "apt-get install python3, or set SCLATE_PYTHON"
}

# What pip has to say is of use only where it fails; then all of it is.
quiet_pip() {
  local log=$VENV/pip.log
  "$VENV/bin/pip" install --disable-pip-version-check "$@" >"$log" 2>&1 && return
  die "the packages cannot be installed" "$(grep -i '^error' "$log" || tail -n 5 "$log")" "see $log, then run again"
}

ensure_venv() {
  local stamp want python
  want=$(cat requirements.lock pyproject.toml | sha256sum | cut -d' ' -f1)
  stamp=$VENV/.sclate-$want
  [ -e "$stamp" ] && return
  python=$(find_python)
  say "setting up $VENV (once)"
  if ! "$python" -m venv --clear "$VENV" >/dev/null 2>&1; then
    may_install || die "python3 -m venv does not work" "Debian keeps it in a package of its own" "apt-get install python3-venv"
    apt_install python3-venv
    "$python" -m venv --clear "$VENV"
  fi
  quiet_pip --require-hashes -r requirements.lock
  quiet_pip --no-deps --no-build-isolation -e .
  touch "$stamp"
}

docker_answers() { "$VENV/bin/python" -c 'import docker; docker.from_env().ping()' >/dev/null 2>&1; }

# Where Docker is looked for; later sandboxes join here.
ensure_docker() {
  docker_answers && return
  if ! may_install; then
    die "no Docker engine answers" "every session lives in a container" \
      "start Docker (or, as root on Debian: SCLATE_INSTALL=1 $0, which installs and starts it)"
  fi
  command -v dockerd >/dev/null || apt_install docker.io
  local log=${TMPDIR:-/tmp}/sclate-dockerd.log
  say "starting dockerd (log: $log)"
  setsid nohup dockerd >"$log" 2>&1 </dev/null &
  DOCKERD_PID=$!
  local tries=0
  until docker_answers; do
    kill -0 "$DOCKERD_PID" 2>/dev/null || die "dockerd ended" "$(tail -n 3 "$log")" "see $log"
    tries=$((tries + 1))
    [ "$tries" -lt 240 ] || die "dockerd does not answer within 120 s" "$(tail -n 3 "$log")" "see $log"
    sleep 0.5 # the engine has no way to say that it is ready but to answer
  done
}

# End the engine that this script started, and no other.
stop_docker() {
  [ -n "${DOCKERD_PID:-}" ] && kill "$DOCKERD_PID" 2>/dev/null && wait "$DOCKERD_PID" 2>/dev/null || true
}

# The browser in which the tests look at the report's page.
ensure_chromium() {
  command -v chromium >/dev/null && return
  may_install || die "chromium is missing" "tests look at the report in a real browser" \
    "apt-get install chromium (or, as root on Debian: SCLATE_INSTALL=1 $0, which installs it)"
  apt_install chromium fonts-dejavu-core
}

# With it the package of the real harness is fetched.
ensure_npm() {
  command -v npm >/dev/null && return
  may_install || die "npm is missing" "real Claude Code is fetched with it" \
    "apt-get install npm (or, as root on Debian: SCLATE_INSTALL=1 $0, which installs it)"
  apt_install npm
}

# Claude Code of the pinned version, unmodified; says what is in the way.
ensure_claude_code() {
  "$VENV/bin/python" - <<'PYTHON'
import sys

from sclate import registry
from sclate.sandbox.build import ensure_harness
from sclate_adapters.errors import PrerequisiteError

try:
    ensure_harness(registry.load("agents", "claude-code")(), lambda text: print(text, file=sys.stderr))
except PrerequisiteError as error:
    sys.exit(f"{error.what}: {error.why}")
PYTHON
}

# The demo's agent: the real harness where it can be had.
choose_agent() {
  if ensure_claude_code; then
    AGENT=claude-code
    say "the agent is real Claude Code, unmodified; the model is the apprentice, which needs no key"
  else
    AGENT=reference
    say "the agent is our reference harness, since Claude Code cannot be had here (see the line above)"
  fi
}

ensure_images() {
  if may_install && ! command -v debootstrap >/dev/null && ! "$VENV/bin/python" -c \
    'import docker; docker.from_env().images.get("debian:bookworm-slim")' >/dev/null 2>&1; then
    apt_install debootstrap
  fi
  "$VENV/bin/python" -c 'import sys; from sclate.sandbox.build import ensure_all; ensure_all(lambda text: print(text, file=sys.stderr))'
}
