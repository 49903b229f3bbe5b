"""While time stands still the agent's processes do too; init, proxy and the engine's commands go on."""

from __future__ import annotations

import asyncio
import contextlib
import time
from pathlib import Path

import pytest

from sclate.errors import PrerequisiteError
from sclate.sandbox import freezer
from sclate.sandbox.freezer import Freezer, freezer_for
from sclate.sandbox.protocol import SandboxError, User
from tests.sandbox.kit import Box, Lines

USERS: tuple[User, ...] = ("root", "agent", "memory", "proxy")

COUNT = """
    import time
    n = 0
    while True:
        print(n)
        n += 1
        time.sleep(0.005)
"""

PARENT = """
    import os, time
    while True:
        pid = os.fork()
        if pid == 0:
            print("child", time.monotonic_ns())
            os._exit(0)
        os.waitpid(pid, 0)
"""

ZOMBIE = """
    import os, time
    if os.fork() == 0:
        os._exit(0)
    n = 0
    while True:
        print(n)
        n += 1
        time.sleep(0.005)
"""


async def quiet(box: Box, lines: Lines) -> bool:
    """Whether nothing is printed for a while: all that was written before is fetched first, by a ping, twice,
    since init answers before it looks at pipes again."""
    for _ in range(2):
        await box.sandbox.channel.ask("ping", "pong", timeout_s=5)
    before = len(lines.stdout)
    await asyncio.sleep(0.3)  # the observation itself: 60 lines' worth of time
    return len(lines.stdout) == before


@pytest.mark.docker
@pytest.mark.parametrize("script", [COUNT, PARENT, ZOMBIE], ids=["counts", "forks", "has a zombie child"])
def test_frozen_processes_stand_still_and_go_on_after_the_thaw(box: Box, script: str) -> None:
    async def scene() -> None:
        lines, memory_lines = Lines(), Lines()
        await box.spawn_python("frozen", script, lines)
        await box.spawn_python("memory", COUNT, memory_lines, user="memory")
        await memory_lines.more_than(3)
        for _ in range(3):
            await lines.more_than(len(lines.stdout) + 3)
            box.sandbox.freeze()
            assert await quiet(box, lines)
            memory_count = len(memory_lines.stdout)
            for user in USERS:
                alive = await box.sandbox.run(["echo", "alive"], user=user)
                assert alive.stdout == b"alive\n", "the engine's commands run meanwhile"
            assert len(memory_lines.stdout) == memory_count, "the memory's processes stand still too"
            box.sandbox.thaw()
        await lines.more_than(len(lines.stdout) + 3)
        assert lines.stderr == []
        if script == COUNT:
            assert lines.stdout == [str(n).encode() for n in range(len(lines.stdout))]
        await box.sandbox.kill_user("agent")
        await box.sandbox.kill_user("memory")

    box.do(scene())


@pytest.mark.docker
def test_the_proxy_s_user_goes_on(box: Box) -> None:
    async def scene() -> None:
        lines = Lines()
        await box.spawn_python("proxy", COUNT, lines, user="proxy")
        await lines.more_than(3)
        box.sandbox.freeze()
        await lines.more_than(len(lines.stdout) + 3)
        box.sandbox.thaw()
        await box.sandbox.kill_user("proxy")

    box.do(scene())


@pytest.mark.docker
def test_a_crowd_that_keeps_forking_is_frozen_whole(box: Box) -> None:
    """Newly forked children are in the frozen group, or are found by the second look."""
    script = """
        import os
        for _ in range(4):
            os.fork()
        while True:
            if os.fork() == 0:
                os._exit(0)
            os.wait()
            os.write(1, b"x\\n")
    """

    async def scene() -> None:
        lines = Lines()
        await box.spawn_python("crowd", script, lines)
        for _ in range(5):
            await lines.more_than(len(lines.stdout) + 20)
            box.sandbox.freeze()
            assert await quiet(box, lines)
            box.sandbox.thaw()
        await box.sandbox.kill_user("agent")

    box.do(scene())


@pytest.mark.docker
def test_the_frozen_are_killed_once_they_are_thawed(box: Box) -> None:
    async def scene() -> None:
        lines = Lines()
        process = await box.spawn_python("frozen", COUNT, lines)
        await lines.more_than(3)
        box.sandbox.freeze()
        await process.signal(15)
        assert await quiet(box, lines)
        box.sandbox.thaw()
        assert await process.wait() == -15
        await box.spawn_python("frozen again", COUNT, lines)
        box.sandbox.freeze()
        with contextlib.suppress(SandboxError):  # it says that they survive, on kernels where the frozen do
            await box.sandbox.kill_user("agent")
        box.sandbox.thaw()
        await box.sandbox.kill_user("agent")

    box.do(scene())
    assert box.alive("agent") == []


@pytest.mark.docker
def test_freeze_and_thaw_are_idempotent_and_need_nobody(box: Box) -> None:
    for call in ("freeze", "freeze", "thaw", "thaw", "freeze", "thaw"):
        getattr(box.sandbox, call)()
    assert box.out("echo", "ok") == "ok"


@pytest.mark.docker
def test_a_process_spawned_while_frozen_waits_for_the_thaw(box: Box) -> None:
    async def scene() -> None:
        lines = Lines()
        box.sandbox.freeze()
        process = await box.spawn_python("late", COUNT, lines)
        # It may run until it is confined, not longer; Python takes more than that to print.
        assert await quiet(box, lines)
        box.sandbox.thaw()
        await lines.more_than(3)
        await process.signal(9)
        assert await process.wait() == -9

    box.do(scene())


class FakeCgroup:
    """The files of a container's cgroup, as the kernel shows them."""

    def __init__(self, root: Path, *, v2: bool) -> None:
        self.path = root / "docker" / "abc"
        (self.path / "sclate").mkdir(parents=True)
        (self.path / "cgroup.procs").write_text("")
        if v2:
            (self.path / "cgroup.freeze").write_text("0")
            (self.path / "sclate" / "cgroup.events").write_text("populated 1\nfrozen 1\n")
        else:
            (self.path / "sclate" / "freezer.state").write_text("THAWED")


def _choose(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lines: str) -> Freezer:
    proc = tmp_path / "cgroup"
    proc.write_text(lines)
    monkeypatch.setattr(freezer, "CGROUPS", tmp_path / "fs")
    real = Path
    monkeypatch.setattr(freezer, "Path", lambda p: proc if str(p) == "/proc/4711/cgroup" else real(p))
    return freezer_for(4711)


def test_cgroup_v1_is_found_among_its_controllers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    FakeCgroup(tmp_path / "fs/freezer", v2=False)
    text = "9:cpu,cpuacct:/docker/abc\n5:freezer:/docker/abc\n1:name=systemd:/docker/abc\n0::/docker/abc\n"
    chosen = _choose(tmp_path, monkeypatch, text)
    assert isinstance(chosen, Freezer)
    assert chosen._child == tmp_path / "fs/freezer/docker/abc/sclate"


def test_cgroup_v2_is_told_by_its_empty_controller_list(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = FakeCgroup(tmp_path / "fs", v2=True)
    chosen = _choose(tmp_path, monkeypatch, "0::/docker/abc\n")
    assert isinstance(chosen, Freezer)
    chosen.freeze()
    assert (made.path / "sclate/cgroup.freeze").read_text() == "1"
    (made.path / "sclate/cgroup.events").write_text("populated 1\nfrozen 0\n")
    chosen.thaw()
    assert (made.path / "sclate/cgroup.freeze").read_text() == "0"


@pytest.mark.parametrize(
    "lines", ["0::/docker/none\n", "3:cpu:/docker/abc\n", "5:freezer:/docker/none\n", ""]
)
def test_a_host_without_a_freezer_is_told_what_it_lacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lines: str
) -> None:
    with pytest.raises(PrerequisiteError, match="cannot be frozen"):
        _choose(tmp_path, monkeypatch, lines)


def test_a_freeze_that_the_kernel_does_not_confirm_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = FakeCgroup(tmp_path / "fs", v2=True)
    chosen = _choose(tmp_path, monkeypatch, "0::/docker/abc\n")
    (made.path / "sclate/cgroup.events").write_text("populated 1\nfrozen 0\n")
    monkeypatch.setattr(freezer, "DEADLINE_S", 0.05)
    started = time.monotonic()
    with pytest.raises(SandboxError, match="does not become"):
        chosen.freeze()
    assert time.monotonic() - started < 2
