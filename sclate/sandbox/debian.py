"""Debian from where this machine gets it: sources and certificates for builds, a base without a registry.

No mirror's name is written down here. It comes from `SCLATE_DEBIAN_MIRROR`, else from the host's own package
sources if the host is a Debian; otherwise the base image's own sources serve.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import requests.utils

from sclate.sandbox.assets import Files
from sclate.sandbox.engine import Say
from sclate_adapters.errors import PrerequisiteError

SUITE = "bookworm"
BOOTSTRAP_S = 1800  # two minutes on a slow machine; the mirror may be far

# Settings of the host's apt that a build needs too, where the host has them.
APT_SETTINGS = (
    "Acquire::Check-Valid-Until",
    "Acquire::Check-Date",
    "Acquire::http::Proxy",
    "Acquire::https::Proxy",
    "Acquire::Retries",
)
# What a small image has no use for, left out of the base and of what is installed on top of it.
UNWANTED = ("usr/share/doc/*/[!c]*", "usr/share/info/*", "usr/share/locale/*", "usr/share/man/*")


@dataclass(frozen=True)
class Mirror:
    """Addresses of the archive and, where known, of its security updates."""

    main: str
    security: str | None = None

    def sources(self) -> str:
        """One-line package sources for bookworm."""
        lines = [f"deb {self.main} {SUITE} main"]
        if self.security:
            lines += [f"deb {self.main} {SUITE}-updates main", f"deb {self.security} {SUITE}-security main"]
        return "\n".join(lines) + "\n"


def find_mirror(etc: Path = Path("/etc")) -> Mirror | None:
    """The mirror to use: `SCLATE_DEBIAN_MIRROR`, else the host's own if it is a Debian, else None."""
    named = os.environ.get("SCLATE_DEBIAN_MIRROR")
    if named:
        return Mirror(named.rstrip("/"))
    try:
        release = dict(re.findall(r'^(\w+)="?([^"\n]*)"?$', (etc / "os-release").read_text(), re.MULTILINE))
    except OSError:
        return None
    if release.get("ID") != "debian":
        return None
    main = security = None
    for uri, suite in _entries(etc / "apt"):
        if suite == release.get("VERSION_CODENAME"):
            main = main or uri.rstrip("/")
        elif suite.endswith("-security"):
            security = security or uri.rstrip("/")
    return Mirror(main, security) if main else None


def _entries(apt: Path) -> Iterator[tuple[str, str]]:
    """(address, suite) of every binary source in use, from both of apt's formats, with component `main`."""
    for path in [apt / "sources.list", *sorted(apt.glob("sources.list.d/*"))]:
        if not path.is_file():
            continue
        text = re.sub(r"^\s*#.*\n?", "", path.read_text(), flags=re.MULTILINE)
        if path.suffix == ".list":
            for uris, suites, components in re.findall(
                r"^\s*deb\s+(?:\[[^]]*\]\s+)?(\S+)\s+(\S+)\s+(.*)$", text, re.MULTILINE
            ):
                if uris.startswith("http") and "main" in components.split():
                    yield uris, suites
        elif path.suffix == ".sources":
            for paragraph in re.split(r"\n\s*\n", text):
                unfolded = re.sub(r"\n[ \t]+", " ", paragraph)
                field = {
                    k.lower(): v.split() for k, v in re.findall(r"^([\w-]+):(.*)$", unfolded, re.MULTILINE)
                }
                if (
                    "deb" not in field.get("types", [])
                    or field.get("enabled") == ["no"]
                    or "main" not in field.get("components", [])
                ):
                    continue
                for uri in field.get("uris", []):
                    if uri.startswith("http"):
                        yield from ((uri, suite) for suite in field.get("suites", []))


def ca_bundle() -> Path:
    """The certificates this machine trusts: `SCLATE_CA_BUNDLE`, `SSL_CERT_FILE`, the system's, or certifi's.

    Raises:
        PrerequisiteError: `SCLATE_CA_BUNDLE` names no file.
    """
    named = os.environ.get("SCLATE_CA_BUNDLE")
    if named and not Path(named).is_file():
        raise PrerequisiteError(
            f"SCLATE_CA_BUNDLE={named} is not a file",
            "image builds trust the certificates in it",
            "point it at a PEM bundle, or unset it",
        )
    candidates = [named, os.environ.get("SSL_CERT_FILE"), "/etc/ssl/certs/ca-certificates.crt"]
    return next(
        (Path(c) for c in candidates if c and Path(c).is_file()), Path(requests.utils.DEFAULT_CA_BUNDLE_PATH)
    )


def host_files() -> Files:
    """`host/...` of a build context: what apt and pip need inside a build to reach what this machine reaches.

    A Dockerfile copies it to `/host` in a stage that is not shipped, and sets `APT_CONFIG=/host/apt.conf`,
    `PIP_CONFIG_FILE=/host/pip.conf`, and to `/host/ca.pem` what its tools ask for: `PIP_CERT`,
    `NODE_EXTRA_CA_CERTS`, `SSL_CERT_FILE`.
    """
    conf = ['Acquire::https::CAInfo "/host/ca.pem";', *_apt_settings()]
    files = {"host/ca.pem": ca_bundle().read_bytes()}
    mirror = find_mirror()
    if mirror:
        conf += ['Dir::Etc::sourcelist "/host/sources.list";', 'Dir::Etc::sourceparts "-";']
        files["host/sources.list"] = mirror.sources().encode()
    pip = ["[global]"]
    for option in ("index-url", "extra-index-url"):
        value = os.environ.get("PIP_" + option.upper().replace("-", "_"))
        if value:
            pip.append(f"{option} = {value}")
    files["host/apt.conf"] = "".join(line + "\n" for line in conf).encode()
    files["host/pip.conf"] = "".join(line + "\n" for line in pip).encode()
    return files


def _apt_settings() -> list[str]:
    if shutil.which("apt-config") is None:
        return []
    dump = subprocess.run(
        ["apt-config", "dump"], capture_output=True, text=True, check=True, timeout=30
    ).stdout
    return [line for line in dump.splitlines() if line.split(" ", 1)[0] in APT_SETTINGS and '""' not in line]


def bootstrap(dest: Path, scratch: Path, say: Say) -> None:
    """Write a minimal bookworm root file system to the tar file `dest`, unpacked meanwhile under `scratch`.

    Raises:
        PrerequisiteError: not root, no mirror known, debootstrap missing, or it failed.
    """
    by_hand = "docker load an image debian:bookworm-slim, or pull it where a registry can be reached"
    if os.geteuid() != 0:
        raise PrerequisiteError(
            "the base image is missing and only root can build it",
            "no image registry could be reached, and debootstrap needs root",
            f"run once as root: sclate doctor; or {by_hand}",
        )
    mirror = find_mirror()
    if mirror is None:
        raise PrerequisiteError(
            "no Debian mirror is known to build the base image from",
            "this machine has no Debian package sources",
            f"set SCLATE_DEBIAN_MIRROR to a mirror's address; or {by_hand}",
        )
    root = scratch / "root"
    # A mount namespace of its own: what debootstrap mounts below `root` is gone when it ends, however that is,
    # and removing the tree never reaches this machine's /proc or /dev.
    command = [
        "unshare",
        "--mount",
        _debootstrap(say),
        "--variant=minbase",
        "--force-check-gpg",
        SUITE,
        str(root),
        mirror.main,
    ]
    say("building debian:bookworm-slim with debootstrap (a few minutes, once)")
    done = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=BOOTSTRAP_S, check=False
    )
    if done.returncode:
        log = "\n".join(done.stdout.splitlines()[-12:])
        raise PrerequisiteError(f"debootstrap failed:\n{log}", "the base image is built with it", by_hand)
    _slim(root, mirror)
    with tarfile.open(dest, "w") as tar:
        tar.add(root, arcname=".", filter=_shipped)


def _debootstrap(say: Say) -> str:
    path = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
    found = shutil.which("debootstrap", path=path)
    if found:
        return found
    install = ["apt-get", "install", "-y", "--no-install-recommends", "debootstrap", "debian-archive-keyring"]
    allowed = os.environ.get("CI") == "true" or os.environ.get("SCLATE_INSTALL") == "1"
    if allowed and shutil.which("apt-get"):
        say("installing debootstrap")
        env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        for step in (["apt-get", "-q", "update"], install):
            subprocess.run(step, env=env, stdout=subprocess.DEVNULL, timeout=BOOTSTRAP_S, check=True)
        found = shutil.which("debootstrap", path=path)
    if not found:
        raise PrerequisiteError(
            "debootstrap is missing",
            "no image registry could be reached, so the base image is built from Debian's packages",
            f"sudo {' '.join(install)}; or set SCLATE_INSTALL=1",
        )
    return found


def _slim(root: Path, mirror: Mirror) -> None:
    """Leave out manuals, as the registry's slim image does, and let later installs leave them out too."""
    for pattern in UNWANTED:
        for path in root.glob(pattern):
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
    excludes = "".join(
        f"path-exclude /{top}/*\n" for top in dict.fromkeys(p.split("/*")[0] for p in UNWANTED)
    )
    (root / "etc/dpkg/dpkg.cfg.d/docker").write_text(excludes + "path-include /usr/share/doc/*/copyright\n")
    address = urlsplit(mirror.main)
    public = urlunsplit(address._replace(netloc=address.netloc.rpartition("@")[2]))  # no password in an image
    (root / "etc/apt/sources.list").write_text(Mirror(public).sources())
    # Installing into an image must not start daemons.
    policy = root / "usr/sbin/policy-rc.d"
    policy.write_text("#!/bin/sh\nexit 101\n")
    policy.chmod(0o755)


def _shipped(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    """Drops caches, logs, and what the engine mounts over."""
    empty = (
        "./dev/",
        "./proc/",
        "./sys/",
        "./run/",
        "./tmp/",
        "./var/cache/apt/",
        "./var/lib/apt/lists/",
        "./var/log/",
    )
    return None if f"{member.name}/".startswith(empty) and f"{member.name}/" not in empty else member
