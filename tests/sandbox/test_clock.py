"""Simulated time inside: everything agrees with what was set, a jump is seen at once, waits are real."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from sclate.sandbox.protocol import SandboxError
from tests.sandbox.conftest import NewBox
from tests.sandbox.kit import Box, Lines

pytestmark = pytest.mark.docker

S = 1_000_000_000
DAY = 86_400 * S
SLACK_NS = 2 * S
"""For a slow machine: a wrong clock here is wrong by days."""


@pytest.fixture(autouse=True)
def _real_time_again(box: Box) -> Iterator[None]:
    yield
    box.sandbox.set_offset(0)


READERS = {
    "date": ("date", "+%s"),
    "date without environment": ("env", "-i", "date", "+%s"),
    "bash": ("bash", "-c", "printf '%(%s)T' -1"),
    "python": ("python3", "-c", "import time; print(int(time.time()))"),
    "python, isolated": ("env", "-i", "python3", "-IS", "-c", "import time; print(int(time.time()))"),
    "clock_gettime": ("python3", "-c", "import time; print(int(time.clock_gettime(time.CLOCK_REALTIME)))"),
    "clock_gettime coarse": ("python3", "-c", "import time; print(int(time.clock_gettime(5)))"),
    "git": ("sh", "-c", "git -c user.name=a -c user.email=b@c var GIT_AUTHOR_IDENT | cut -d' ' -f3"),
    "jq": ("jq", "-n", "now | floor"),
    "deep in the tree": ("sh", "-c", "nohup setsid env -u PATH /usr/bin/env -i /bin/sh -c '/bin/date +%s'"),
}


@pytest.mark.parametrize("days", [200, -200])
def test_every_program_agrees(box: Box, days: int) -> None:
    box.sandbox.set_offset(days * DAY)
    assert box.do(box.sandbox.probe_clock()) < SLACK_NS
    for name, argv in READERS.items():
        before = time.time_ns() + days * DAY
        said = int(box.out(*argv)) * S
        assert before - SLACK_NS < said < time.time_ns() + days * DAY + SLACK_NS, name


@pytest.mark.parametrize("days", [200, -200])
def test_every_user_agrees(box: Box, days: int) -> None:
    box.sandbox.set_offset(days * DAY)
    for user in ("agent", "memory", "root"):
        said = int(box.out("date", "+%s", user=user))
        assert abs(said * S - time.time_ns() - days * DAY) < SLACK_NS, user
    said = int(
        box.out(
            "setpriv", "--reuid", "64002", "--regid", "64002", "--clear-groups", "date", "+%s", user="root"
        )
    )
    assert abs(said * S - time.time_ns() - days * DAY) < SLACK_NS


def test_the_zone_is_the_spec_s(box: Box) -> None:
    box.sandbox.set_offset(0)
    assert box.out("date", "+%Z") == "UTC"


def test_a_running_process_sees_a_jump_on_its_next_look(box: Box) -> None:
    async def scene() -> None:
        lines = Lines()
        script = "import sys, time\nfor _ in sys.stdin: print(time.time_ns())"
        process = await box.spawn_python("watch", script, lines)
        for n, days in enumerate((0, 1, 200, -200, 0, 3650)):
            box.sandbox.set_offset(days * DAY)
            want = time.time_ns() + days * DAY
            await process.write(b"\n")
            said = int((await lines.more_than(n))[n])
            assert 0 <= said - want < SLACK_NS, days
        await process.close_stdin()
        assert await process.wait() == 0

    box.do(scene())


def test_offsets_are_exact_to_the_ns(box: Box) -> None:
    """A fraction below zero is the classic error: -0.5 s must not become +0.5 s."""
    for offset in (-DAY // 2 - 500_000_001, -1_500_000_000, 500_000_000, -250_000_000):
        box.sandbox.set_offset(offset)
        before = time.time_ns() + offset
        said = int(box.out("date", "+%s%N"))
        assert before <= said <= time.time_ns() + offset, offset


@pytest.mark.parametrize("days", [200, -200])
def test_waits_are_real_and_a_jump_does_not_move_them(box: Box, days: int) -> None:
    waits = """
        import queue, subprocess, sys, threading, time
        def timed(name, wait):
            start = time.monotonic()
            wait()
            sys.stdout.write(f"{name} {time.monotonic() - start:.3f}\\n")  # one write: threads
        def empty(call):
            try:
                call()
            except (queue.Empty, subprocess.TimeoutExpired):
                pass
        lock = threading.Lock()
        lock.acquire()
        print("up")
        threads = [threading.Thread(target=timed, args=job) for job in [
            ("sleep", lambda: time.sleep(0.6)),
            ("event", lambda: threading.Event().wait(0.6)),
            ("queue", lambda: empty(lambda: queue.Queue().get(timeout=0.6))),
            ("lock", lambda: lock.acquire(timeout=0.6)),
            ("child", lambda: subprocess.run(["sleep", "0.6"])),
            ("timeout", lambda: empty(lambda: subprocess.run(["sleep", "9"], timeout=0.6))),
        ]]
        [t.start() for t in threads]
        [t.join() for t in threads]
    """

    async def scene() -> list[bytes]:
        lines = Lines()
        process = await box.spawn_python("waits", waits, lines)
        await lines.more_than(0)
        box.sandbox.set_offset(days * DAY)
        assert await process.wait() == 0
        await process.drained()
        return lines.stdout[1:]

    box.sandbox.set_offset(DAY)
    took = {line.split()[0]: float(line.split()[1]) for line in box.do(scene())}
    assert set(took) == {b"sleep", b"event", b"queue", b"lock", b"child", b"timeout"}
    assert all(0.55 < seconds < 5 for seconds in took.values()), took


def test_monotonic_time_stays_real(box: Box) -> None:
    box.sandbox.set_offset(200 * DAY)
    said = int(box.python("import time; print(time.monotonic_ns())"))
    assert abs(said - time.monotonic_ns()) < SLACK_NS


def test_a_static_program_sees_real_time(box: Box, tmp_path: Path) -> None:
    """A known limit of this backend (`covers_static`), pinned: where it ends, the docs must say so."""
    source = tmp_path / "now.c"
    source.write_text(
        '#include <stdio.h>\n#include <time.h>\nint main(){printf("%ld\\n",(long)time(0));return 0;}\n'
    )
    subprocess.run(["cc", "-static", "-O", "-o", tmp_path / "now", source], check=True)
    box.do(box.sandbox.put_files({"/tmp/now": (tmp_path / "now").read_bytes()}, "agent", 0o755))
    box.sandbox.set_offset(200 * DAY)
    assert not box.sandbox.clock.covers_static
    assert abs(int(box.out("/tmp/now")) * S - time.time_ns()) < SLACK_NS


def test_file_times_are_real(box: Box) -> None:
    """The other known limit: a file made now has the host's time, in and outside of the program that made it."""
    box.sandbox.set_offset(200 * DAY)
    said = int(box.python("import os; open('/tmp/f', 'w'); print(os.stat('/tmp/f').st_mtime_ns)"))
    assert abs(said - time.time_ns()) < SLACK_NS


def _rc(box: Box) -> Path:
    return box.sandbox.gateway_dir.parent / "clock" / "rc"


@pytest.mark.parametrize("content", ["", "garbage\n", "+1.000000000\n", "@2031-03-03 09:00:00\n", None])
def test_a_clock_that_is_off_is_found(new_box: NewBox, content: str | None) -> None:
    box = new_box()
    box.sandbox.set_offset(200 * DAY)
    assert box.do(box.sandbox.probe_clock()) < SLACK_NS
    if content is None:
        _rc(box).unlink()
    else:
        _rc(box).write_text(content)
    with pytest.raises(SandboxError, match="clock"):
        box.do(box.sandbox.probe_clock())
    box.sandbox.set_offset(200 * DAY)
    assert box.do(box.sandbox.probe_clock()) < SLACK_NS


def test_the_proxy_s_python_keeps_real_time(box: Box) -> None:
    box.sandbox.set_offset(200 * DAY)
    said = int(box.out("/opt/sclate/bin/python", "-c", "import time; print(time.time_ns())"))
    assert abs(said - time.time_ns()) < SLACK_NS


def test_the_offset_file_is_never_seen_half_written(box: Box) -> None:
    """Readers during 2,000 jumps always read one of the two instants."""
    script = """
        import time
        print("up")
        end = time.monotonic() + 1.0
        seen = set()
        while time.monotonic() < end:
            seen.add(round((time.time() - BASE) / 86400))
        print(sorted(seen))
    """.replace("BASE", str(time.time()))

    async def scene() -> bytes:
        lines = Lines()
        process = await box.spawn_python("reader", script, lines)
        await lines.more_than(0)
        for n in range(2000):
            box.sandbox.set_offset((n % 2 or -1) * 100 * DAY)
        await process.wait()
        await process.drained()
        return lines.stdout[1]

    assert box.do(scene()) in (b"[-100, 100]", b"[-100, 0, 100]")
    assert os.listdir(_rc(box).parent) == ["rc"]
