"""The sandbox image and the runtime, built for real: what is in them, and one time for every process."""

from __future__ import annotations

import importlib.util
import json
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import docker
import pytest

from sclate.sandbox import assets, build
from sclate.sandbox.assets import containers_dir, digest
from sclate.sandbox.build import AGENT_UID, BASE, PROXY_UID, Built, ensure_all, ensure_runtime
from sclate.sandbox.engine import BuildError, docker_client
from sclate.sandbox.engine import build as build_image

# The first test to ask for the image on a new machine waits for all builds: minutes.
pytestmark = pytest.mark.timeout(1200)

DAYS_200 = 200 * 86400
PRELOAD = "/opt/sclate/clock/libfaketimeMT.so.1"

Run = Callable[..., str]


def _silent(_line: str) -> None:
    pass


@pytest.fixture(scope="module")
def engine() -> Iterator[docker.DockerClient]:
    client = docker_client()
    yield client
    client.close()


@pytest.fixture(scope="module")
def built() -> Built:
    return ensure_all(print)


class Clock:
    """A control directory as the scheduler keeps it: one file, replaced by rename."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.chmod(0o755)

    def set(self, offset: str) -> None:
        new = self.folder / "rc.new"
        new.write_text(offset + "\n")
        new.chmod(0o644)
        new.rename(self.folder / "rc")


@pytest.fixture
def clock(tmp_path: Path) -> Clock:
    folder = tmp_path / "clock"
    folder.mkdir()
    return Clock(folder)


@pytest.fixture
def run(engine: docker.DockerClient, built: Built, clock: Clock, tmp_path: Path) -> Run:
    """Run argv in a sandbox-like container (no network, read-only, no capability) and return its output."""
    preload = tmp_path / "preload"
    preload.write_text(PRELOAD + "\n")
    preload.chmod(0o644)

    def run(*argv: str, uid: int = AGENT_UID, image: str = built.image, **options: object) -> str:
        volumes = {
            str(built.runtime): {"bind": "/opt/sclate", "mode": "ro"},
            str(clock.folder): {"bind": "/run/sclate/clock", "mode": "ro"},
            str(preload): {"bind": "/etc/ld.so.preload", "mode": "ro"},
        }
        settings: dict[str, object] = {
            "user": str(uid),
            "network_mode": "none",
            "read_only": True,
            "cap_drop": ["ALL"],
            "security_opt": ["no-new-privileges"],
            "tmpfs": {"/tmp": "rw,exec,size=64m,mode=1777"},
            "volumes": volumes,
            "labels": {"sclate.test": "1"},
            "remove": True,
            "stderr": True,
            **options,
        }
        output: bytes = engine.containers.run(image, list(argv), **settings)  # type: ignore[call-overload]
        return output.decode()

    return run


# --- the clock ------------------------------------------------------------------------------------


@pytest.mark.docker
@pytest.mark.parametrize("offset", [DAYS_200, -DAYS_200])
def test_every_kind_of_process_sees_the_simulated_time(run: Run, clock: Clock, offset: int) -> None:
    """Protects the preload file and the compiled-in defaults: neither needs anything in the environment."""
    clock.set(f"{offset:+d}.000000001")
    before = time.time()
    output = run(
        "bash",
        "-c",
        """date +%s; env -i date +%s
        python3 -c 'import time; print(time.time())'
        env -i /usr/bin/python3 -c 'import time; print(time.time())'
        perl -e 'print time, "\n"'; printf '%(%s)T\n'; env -i bash -c 'printf "%(%s)T\n"'
        git init -q /tmp/r
        git -C /tmp/r -c user.name=a -c user.email=a@b commit -q --allow-empty -m x
        git -C /tmp/r log -1 --format=%ct""",
    )
    after = time.time()
    seen = [float(line) for line in output.split()]
    assert len(seen) == 8
    for instant in seen:
        assert before + offset - 1 <= instant <= after + offset + 1, output


@pytest.mark.docker
def test_children_under_another_user_agree(run: Run, clock: Clock) -> None:
    """Protects "no shared memory": with it, root's children under another uid abort or hang for ever."""
    clock.set(f"+{DAYS_200}.0")
    before = time.time()
    output = run(
        "bash",
        "-c",
        "date +%s; su agent -c 'date +%s'; su - agent -c 'date +%s' 2>/dev/null;"
        " env -i su agent -c 'date +%s';"
        " setpriv --reuid 64001 --regid 64001 --clear-groups date +%s; ls -A /dev/shm",
        uid=0,
        cap_add=["SETUID", "SETGID"],
        security_opt=[],
    )
    seen = [int(line) for line in output.split()]
    assert len(seen) == 5, output
    assert all(before + DAYS_200 - 1 <= instant <= time.time() + DAYS_200 + 1 for instant in seen), output


JUMP_SEEN = r"""
import subprocess, sys, time
perl = subprocess.Popen(
    ["env", "-i", "/usr/bin/perl", "-e", "$|=1; $t=time; print qq(up\n); "
     "for(1..1500){select(undef,undef,undef,.01); if(time>$t+1e6){print qq(jumped\n);exit}}"],
    stdout=subprocess.PIPE, text=True)
assert perl.stdout.readline() == "up\n"
start, deadline = time.time(), time.monotonic() + 15
print("up", flush=True)
while time.time() < start + 1e6 and time.monotonic() < deadline:
    time.sleep(0.01)
print("python", round(time.time() - start), perl.stdout.read().strip(), perl.wait())
"""


@pytest.mark.docker
def test_a_jump_is_seen_by_running_processes(
    run: Run, clock: Clock, engine: docker.DockerClient, built: Built
) -> None:
    """Protects the uncached read: Python and an `env -i` Perl that were started before the jump."""
    clock.set("+100.0")
    threading.Timer(2.0, clock.set, [f"+{DAYS_200}.0"]).start()
    output = run("python3", "-c", JUMP_SEEN)
    jumped = int(output.split("python ")[1].split()[0])
    assert abs(jumped - DAYS_200 + 100) < 10, output
    assert "jumped 0" in output


WAITS = """
import asyncio, ctypes, queue, select, subprocess, threading, time

class Timespec(ctypes.Structure):
    _fields_ = [("s", ctypes.c_long), ("n", ctypes.c_long)]

def after(clock, wait):
    ns = time.clock_gettime_ns(clock) + int(wait * 1e9)
    return Timespec(ns // 10**9, ns % 10**9)

libc = ctypes.CDLL(None, use_errno=True)

def cond_timedwait(wait):
    cond, mutex = ctypes.create_string_buffer(64), ctypes.create_string_buffer(64)
    libc.pthread_mutex_lock(mutex)
    libc.pthread_cond_timedwait(cond, mutex, ctypes.byref(after(time.CLOCK_REALTIME, wait)))

def timerfd_monotonic(wait):
    fd = libc.timerfd_create(time.CLOCK_MONOTONIC, 0)
    spec = (Timespec * 2)(Timespec(0, 0), after(time.CLOCK_MONOTONIC, wait))
    assert libc.timerfd_settime(fd, 1, spec, None) == 0
    select.select([fd], [], [], 5)

def get(wait):
    try:
        queue.Queue().get(timeout=wait)
    except queue.Empty:
        pass

def kill(wait):
    try:
        subprocess.run(["sleep", "5"], timeout=wait)
    except subprocess.TimeoutExpired:
        pass

held = threading.Lock()
held.acquire()
WAITS = {
    "time.sleep": time.sleep,
    "Event.wait": lambda wait: threading.Event().wait(wait),
    "Queue.get": get,
    "Lock.acquire": lambda wait: held.acquire(timeout=wait),
    "asyncio.sleep": lambda wait: asyncio.run(asyncio.sleep(wait)),
    "select": lambda wait: select.select([], [], [], wait),
    "subprocess timeout": kill,
    "sleep(1)": lambda wait: subprocess.run(["sleep", str(wait)]),
    "timeout(1)": lambda wait: subprocess.run(["timeout", str(wait), "sleep", "5"]),
    "clock_nanosleep REALTIME": lambda wait: libc.clock_nanosleep(
        time.CLOCK_REALTIME, 1, ctypes.byref(after(time.CLOCK_REALTIME, wait)), None),
    "clock_nanosleep MONOTONIC": lambda wait: libc.clock_nanosleep(
        time.CLOCK_MONOTONIC, 1, ctypes.byref(after(time.CLOCK_MONOTONIC, wait)), None),
    "pthread_cond_timedwait REALTIME": cond_timedwait,
    "timerfd MONOTONIC": timerfd_monotonic,
}
for name, wait in WAITS.items():
    start = time.monotonic()
    wait(0.2)
    took = time.monotonic() - start
    print(name, round(took, 3), "ok" if 0.19 < took < 1.5 else "WRONG", flush=True)
"""


@pytest.mark.docker
@pytest.mark.parametrize("offset", [DAYS_200, -DAYS_200])
def test_waits_last_as_long_as_asked(run: Run, clock: Clock, offset: int) -> None:
    """Protects "MONOTONIC is real": with it faked, or with 0.9.10, some of these fail or hang."""
    clock.set(f"{offset:+d}.0")
    lines = run("timeout", "60", "python3", "-c", WAITS).splitlines()
    assert len(lines) == 13
    assert [line for line in lines if not line.endswith(" ok")] == []


FORKS = """
import os, threading, time
stop = False
def read():
    while not stop:
        time.time()
threads = [threading.Thread(target=read) for _ in range(3)]
for t in threads:
    t.start()
for _ in range(150):
    pid = os.fork()
    if pid == 0:
        time.time()
        os._exit(0)
    os.waitpid(pid, 0)
stop = True
print("forked")
"""


@pytest.mark.docker
def test_fork_while_other_threads_read_the_clock(run: Run, clock: Clock) -> None:
    """Protects the fork handlers of rc.c: a child must not inherit the library's lock in a locked state."""
    clock.set("+100.0")
    assert run("timeout", "60", "python3", "-c", FORKS) == "forked\n"


NO_DESCRIPTORS = """
import errno, os, resource, time
time.time()
resource.setrlimit(resource.RLIMIT_NOFILE, (16, 16))
try:
    while True:
        os.dup(0)
except OSError as error:
    assert error.errno == errno.EMFILE
print(time.time())
"""


@pytest.mark.docker
def test_a_process_without_free_descriptors_keeps_simulated_time(run: Run, clock: Clock) -> None:
    """Protects the last known offset in rc.c: upstream falls back to real time here."""
    clock.set(f"+{DAYS_200}.0")
    assert float(run("python3", "-c", NO_DESCRIPTORS)) > time.time() + DAYS_200 - 60


@pytest.mark.docker
def test_file_times_are_real(run: Run, clock: Clock) -> None:
    """Protects the compile flags: faked file times would move with every jump."""
    clock.set(f"+{DAYS_200}.0")
    output = run(
        "sh",
        "-c",
        "touch /tmp/f; stat -c %Y /tmp/f; python3 -c 'import os; print(os.stat(\"/tmp/f\").st_mtime)'",
    )
    assert all(abs(float(line) - time.time()) < 60 for line in output.split()), output


@pytest.mark.docker
def test_environment_and_home_cannot_name_another_control_file(run: Run, clock: Clock) -> None:
    clock.set("+0.0")
    output = run(
        "sh",
        "-c",
        "echo +5000000 > /tmp/.faketimerc; HOME=/tmp date +%s;"
        " FAKETIME_TIMESTAMP_FILE=/tmp/.faketimerc date +%s",
    )
    assert all(abs(float(line) - time.time()) < 60 for line in output.split()), output


# --- the runtime ----------------------------------------------------------------------------------

INSIDE = """
import json, os, ssl, sqlite3, subprocess, sys, time, zlib
import cryptography, mitmproxy
child = [sys.executable, "-c", "import time; print(time.time())"]
print(json.dumps({
    "now": time.time(),
    "child": float(subprocess.check_output(child)),
    "foreign": float(subprocess.check_output(["date", "+%s"])),
    "preloaded": "faketime" in open("/proc/self/maps").read(),
    "outside": sorted({line.split()[-1] for line in open("/proc/self/maps")
                       if ".so" in line and "/opt/sclate/" not in line}),
    "path": sys.path,
    "utf8": sys.flags.utf8_mode,
}))
"""


@pytest.mark.docker
def test_runtime_python_keeps_real_time_and_to_itself(run: Run, clock: Clock) -> None:
    """In an image without Python: own loader and libraries, real time although the clock library is preloaded
    for everybody else, and deaf to the environment that an image may set."""
    clock.set(f"+{DAYS_200}.0")
    output = run(
        "/opt/sclate/bin/python",
        "-c",
        INSIDE,
        uid=PROXY_UID,
        image=BASE,
        environment={
            "PYTHONHOME": "/nowhere",
            "PYTHONPATH": "/nowhere",
            "LD_LIBRARY_PATH": "/usr/lib/x86_64-linux-gnu",
        },
    )
    seen = json.loads(output)
    assert abs(seen["now"] - time.time()) < 60
    assert abs(seen["child"] - time.time()) < 60
    assert seen["foreign"] > time.time() + DAYS_200 - 60
    assert seen["preloaded"] is False
    assert seen["outside"] == []
    assert all(entry.startswith("/opt/sclate/") for entry in seen["path"])
    assert seen["utf8"] == 1


@pytest.mark.docker
def test_runtime_python_exports_nothing_to_children(run: Run) -> None:
    output = run(
        "/opt/sclate/bin/python",
        "-c",
        "import subprocess; subprocess.run(['env'])",
        uid=PROXY_UID,
        environment={"LANG": "C.UTF-8"},
    )
    names = {line.split("=")[0] for line in output.splitlines()}
    assert names <= {"PATH", "HOSTNAME", "HOME", "LANG"}


PROXIED = """
import http.server, os, subprocess, sys, threading, time, urllib.error, urllib.request

class Upstream(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"from upstream " + self.path.encode())
    def log_message(self, *args):
        pass

upstream = http.server.HTTPServer(("127.0.0.1", 9000), Upstream)
threading.Thread(target=upstream.serve_forever, daemon=True).start()
proxy = subprocess.Popen(["/opt/sclate/bin/mitmdump", "--mode", "reverse:http://127.0.0.1:9000@127.0.0.1:8080",
                          "--set", "confdir=/tmp/proxy", "--quiet"])
deadline = time.monotonic() + 30
while True:
    try:
        print(urllib.request.urlopen("http://127.0.0.1:8080/v1/x", timeout=5).read().decode())
        break
    except urllib.error.URLError:
        if time.monotonic() > deadline or proxy.poll() is not None:
            raise
        time.sleep(0.05)
proxy.terminate()
print("ended", proxy.wait(10))
"""


@pytest.mark.docker
def test_mitmdump_serves_in_reverse_mode(run: Run) -> None:
    """The capture proxy for real: as its uid, without network, on a read-only root."""
    output = run("/opt/sclate/bin/python", "-c", PROXIED, uid=PROXY_UID, image=BASE)
    assert output.splitlines() == ["from upstream /v1/x", "ended 0"]


@pytest.mark.docker
def test_runtime_is_readable_by_all_and_writable_by_none_but_its_owner(built: Built) -> None:
    for path in [built.runtime, *built.runtime.rglob("*")]:
        mode = path.lstat().st_mode
        assert path.is_symlink() or (mode & 0o044 == 0o044 and mode & 0o022 == 0), path
    modules = list((built.runtime / "site/mitmproxy").rglob("*.py"))
    assert all(list(p.parent.glob(f"__pycache__/{p.stem}.*.pyc")) for p in modules), "start-up would compile"


# --- the image ------------------------------------------------------------------------------------


@pytest.mark.docker
def test_image_has_what_agents_need_and_nothing_of_this_machine(
    engine: docker.DockerClient, built: Built
) -> None:
    def inside(script: str) -> list[str]:
        output: bytes = engine.containers.run(
            built.image, ["sh", "-c", script], remove=True, labels={"sclate.test": "1"}
        )
        return output.decode().split()

    assert inside("for u in agent memory sclate; do id -u $u; done") == ["64001", "64002", "64003"]
    assert inside("python -c 'print(1)'; for c in git tar bash ps jq; do command -v $c; done | wc -l") == [
        "1",
        "5",
    ]
    assert inside("find /host /etc/apt/sources.list* -type f 2>/dev/null; true") == []
    image = engine.images.get(built.image)
    assert image.labels["sclate.build"] == "1"
    history = str(image.history())
    assert "ca.pem" not in history
    with pytest.raises(docker.errors.ImageNotFound):
        engine.images.get(built.image.replace("sandbox:", "sandbox-stage:"))


# --- building -------------------------------------------------------------------------------------


@pytest.mark.docker
def test_nothing_is_done_when_all_is_there(built: Built) -> None:
    said: list[str] = []
    start = time.monotonic()
    assert ensure_all(said.append) == built
    assert said == []
    assert time.monotonic() - start < 1


@pytest.mark.docker
def test_own_programs_change_the_runtime_but_not_its_heavy_part(
    engine: docker.DockerClient, built: Built, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    changed = tmp_path / "containers"
    shutil.copytree(containers_dir(), changed)
    (changed / "runtime/extra.py").write_text("print('hello')\n")
    monkeypatch.setattr(assets, "containers_dir", lambda: changed)
    start = time.monotonic()
    runtime = ensure_runtime(engine, _silent)
    try:
        assert time.monotonic() - start < 20
        assert runtime != built.runtime
        assert (runtime / "sclate/extra.py").stat().st_mode & 0o777 == 0o644
        heavy = "python/bin/python3.11"
        assert (runtime / heavy).samefile(built.runtime / heavy)
    finally:
        shutil.rmtree(runtime)


@pytest.mark.docker
def test_a_failed_build_shows_the_end_of_its_log(engine: docker.DockerClient) -> None:
    with pytest.raises(BuildError, match=r"(?s)building a thing failed: .*gone.*Step 2"):
        build_image(engine, "sclate/never", {"Dockerfile": b"FROM scratch\nCOPY gone /\n"}, "a thing")


def test_digest_knows_where_one_part_ends() -> None:
    assert digest({"ab": b"c"}) != digest({"a": b"bc"})
    assert digest({"a": b"1", "b": b"2"}) == digest({"b": b"2", "a": b"1"})
    assert digest({}, "x") != digest({})


def test_only_one_builder_a_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second builder waits for the first instead of building the same thing beside it."""
    monkeypatch.setenv("SCLATE_CACHE", str(tmp_path))
    order: list[str] = []
    waiting = threading.Event()

    def second() -> None:
        def say(line: str) -> None:
            order.append(line)
            waiting.set()

        with build._sole_builder(say):
            order.append("second")

    thread = threading.Thread(target=second)
    with build._sole_builder(_silent):
        thread.start()
        assert waiting.wait(10)
        order.append("first")
    thread.join(10)
    assert order == ["waiting for another build", "first", "second"]


# --- the source of the clock library --------------------------------------------------------------


def _clock_build() -> ModuleType:
    spec = importlib.util.spec_from_file_location("clock_build", containers_dir() / "clock/build.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_an_unknown_clock_source_is_refused() -> None:
    """A source in which a default sits elsewhere must not build into a library without our changes."""
    module = _clock_build()
    with pytest.raises(ValueError, match="matches 0 times, not once"):
        module.patched("static int cache_enabled = 2;\n", "", "")
    with pytest.raises(ValueError, match="matches 2 times, not once"):
        module.patched("static int cache_enabled = 1;\n" * 2, "", "")
