"""A session's end is the end of all its processes, whatever they do to survive."""

from __future__ import annotations

import asyncio
import time

import pytest

from sclate.sandbox.protocol import Limits, SandboxError
from tests.sandbox.conftest import NewBox
from tests.sandbox.kit import Box, Lines

pytestmark = pytest.mark.docker

ORPHANS = """
    import os, time
    for _ in range(200):
        if os.fork() == 0:
            if os.fork() == 0:
                time.sleep(600)
            os._exit(0)
        os.wait()
    print("up")
"""

DAEMONS = """
    import os, signal, time
    for _ in range(20):
        if os.fork() == 0:
            os.setsid()
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            signal.signal(signal.SIGHUP, signal.SIG_IGN)
            if os.fork() == 0:
                for fd in range(3):
                    os.close(fd)
                while True:
                    time.sleep(600)
            os._exit(0)
        os.wait()
    print("up")
"""

BOMB = """
    import os, time
    print("up")
    while True:
        try:
            os.fork()
        except OSError:
            pass
"""


@pytest.mark.parametrize(
    ("script", "at_least"),
    [(ORPHANS, 200), (DAEMONS, 20)],
    ids=["200 double-forked orphans", "daemons that ignore SIGTERM"],
)
def test_kill_user_leaves_nothing(box: Box, script: str, at_least: int) -> None:
    async def up() -> None:
        lines = Lines()
        await box.spawn_python("crowd", script, lines)
        await lines.more_than(0)

    box.do(up())
    assert len(box.alive("agent")) >= at_least
    box.do(box.sandbox.kill_user("agent"))
    assert box.alive("agent") == []
    assert box.out("echo", "still works") == "still works"


def test_a_fork_bomb_at_the_pids_limit_is_killed(new_box: NewBox) -> None:
    """Init cannot fork there: the killer must not need to. Repeated, since a bomb may outrun one kill."""
    box = new_box(limits=Limits(pids=64))

    async def spawn_until_full(key: str) -> None:
        for n in range(1000):
            await box.sandbox.spawn(f"{key}-{n}", ["true"], user="agent")

    async def explode(key: str) -> None:
        lines = Lines()
        await box.spawn_python(key, BOMB, lines)
        await lines.more_than(0)
        with pytest.raises(SandboxError, match="cannot start"):
            await spawn_until_full(key)
        await box.sandbox.kill_user("agent")

    for round_ in range(3):
        box.do(explode(f"bomb-{round_}"))
        assert box.alive("agent") == []
    assert box.out("echo", "still works") == "still works"


def test_the_other_users_live_on(box: Box) -> None:
    async def scene() -> tuple[int, list[bytes]]:
        lines = Lines()
        memory = await box.spawn_python("memory", "print('up')\nprint(input())", lines, user="memory")
        await lines.more_than(0)
        agent = await box.sandbox.spawn("sleeper", ["sleep", "600"], user="agent")
        await box.sandbox.kill_user("agent")
        assert await agent.wait() == -9
        await memory.write(b"hello\n")
        rc = await memory.wait()
        await memory.drained()
        return rc, lines.stdout

    assert box.do(scene()) == (0, [b"up", b"hello"])


def test_the_agent_cannot_end_init_while_it_kills(new_box: NewBox) -> None:
    """Init takes the agent's uid for its kill: signals sent to it in that moment must not reach it."""
    box = new_box()
    spam = """
        import os, signal
        for _ in range(4):
            os.fork()
        print("up")
        while True:
            for sig in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGSTOP):
                try:
                    os.kill(1, sig)
                except PermissionError:
                    pass
    """

    async def scene(key: str) -> None:
        lines = Lines()
        await box.spawn_python(key, spam, lines)
        await lines.more_than(0)
        await box.sandbox.kill_user("agent")

    for round_ in range(20):
        box.do(scene(f"spam-{round_}"))
    assert box.out("echo", "still works") == "still works"


def test_run_with_a_timeout_kills_its_tree(box: Box) -> None:
    script = "trap '' TERM; sleep 601 & setsid sleep 602 & (sleep 603 & wait) & echo up; wait"
    started = time.monotonic()
    result = box.run("bash", "-c", script, timeout_s=0.5)
    assert result.timed_out
    assert result.rc is None
    assert result.stdout == b"up\n"
    assert time.monotonic() - started < 5
    assert box.alive("agent") == []


def test_a_child_that_holds_the_pipe_does_not_hold_up_the_end(box: Box) -> None:
    """`wait` returns when the process is reaped; `drained` when nobody can write to its pipes any more."""

    async def scene() -> None:
        process = await box.sandbox.spawn("holder", ["sh", "-c", "sleep 600 & exit 7"], user="agent")
        assert await asyncio.wait_for(process.wait(), 5) == 7
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(process.drained(), 0.2)
        await box.sandbox.kill_user("agent")
        await asyncio.wait_for(process.drained(), 5)

    box.do(scene())


def test_run_counts_a_child_that_holds_the_pipe_as_not_ended(box: Box) -> None:
    result = box.run("sh", "-c", "sleep 600 & echo up", timeout_s=0.5)
    assert result.timed_out
    assert result.stdout == b"up\n"
    assert box.alive("agent") == []


def test_a_command_in_a_sandbox_that_dies_is_no_result(new_box: NewBox) -> None:
    """Else a grader would take the sandbox's death for the agent's failure."""
    box = new_box()

    async def scene() -> None:
        running = asyncio.create_task(box.sandbox.run(["sleep", "600"], user="agent"))
        await box.sandbox.channel.ask("ping", "pong", timeout_s=5)
        box.sandbox.channel.send("halt")
        with pytest.raises(SandboxError):
            await asyncio.wait_for(running, 20)

    box.do(scene())
