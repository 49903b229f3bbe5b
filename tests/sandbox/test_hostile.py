"""What an agent, or a cancelled engine, could do to the host, to the proof of a kill, or to who comes after."""

from __future__ import annotations

import asyncio
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import docker
import pytest

from sclate.sandbox.build import Built
from sclate.sandbox.docker import MAX_FILES, TAR_OVERHEAD
from sclate.sandbox.protocol import SandboxError
from sclate.sandbox.reaper import reap
from tests.sandbox.conftest import NewBox
from tests.sandbox.kit import SOON_S, Box, Lines

pytestmark = pytest.mark.docker


@pytest.fixture(autouse=True)
def _nobody_left(box: Box) -> Iterator[None]:
    yield
    box.do(box.sandbox.kill_user("agent"))


def to_file(box: Box, script: str, room: int) -> tuple[bytes, bool]:
    """What a command left in a file of the host, and whether some of it was refused."""
    name, path = box.sandbox._exchange("out")
    argv = ["bash", "-c", script]
    result = box.do(box.sandbox._run(argv, user="agent", timeout_s=20, stdout_file=name, stdout_max=room))
    data = path.read_bytes()
    path.unlink()
    return data, result.truncated


def test_the_agent_holds_no_writable_file_of_the_host(box: Box) -> None:
    """The state tool runs as the agent, which may take it over: it writes to a pipe, and init to the file."""
    kind = "test -p /proc/self/fd/1 && test ! -f /proc/self/fd/1 && echo pipe"
    assert to_file(box, kind, 100) == (b"pipe\n", False)


def test_a_saved_tree_cannot_fill_the_host_s_disk(box: Box) -> None:
    data, refused = to_file(box, "head -c 10000000 /dev/zero", 100_000)
    assert refused
    assert len(data) <= 100_000
    exact, refused = to_file(box, "head -c 100000 /dev/zero", 100_000)
    assert (len(exact), refused) == (100_000, False)
    assert MAX_FILES * TAR_OVERHEAD < 1 << 30


def test_output_that_grows_sixfold_on_its_way_does_not_fill_the_host_s_disk(new_box: NewBox) -> None:
    """Control bytes take six in JSON: what is bounded is the file on the host."""
    box = new_box()
    outbox = box.sandbox.gateway_dir.parent / "ctl" / "outbox.jsonl"
    result = box.run("head", "-c", "60000000", "/dev/zero", timeout_s=60)
    assert result.truncated
    assert outbox.stat().st_size < 180 << 20  # 128 MiB, and one more line of 8 MiB
    assert box.out("echo", "still works") == "still works"


def test_a_cancelled_command_does_not_run_on(box: Box) -> None:
    """A hook's or a grader's time limit cancels what waits; the command must end too."""

    async def scene() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.5):
                await box.sandbox.run(["sleep", "600"], user="agent")
        await box.sandbox.channel.ask("ping", "pong", timeout_s=5)

    box.do(scene())
    assert box.alive("agent") == []


def test_a_command_that_is_cancelled_as_it_starts_does_not_run_on(box: Box) -> None:
    async def scene() -> None:
        for _ in range(5):
            running = asyncio.create_task(box.sandbox.run(["sleep", "600"], user="agent"))
            await asyncio.sleep(0)  # the request is on its way
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
        await box.sandbox.channel.ask("ping", "pong", timeout_s=5)

    box.do(scene())
    assert box.alive("agent") == []


def test_a_daemon_that_left_its_tree_dies_with_a_command_that_overran(box: Box) -> None:
    """Forked twice, in a session of its own, its parent gone: the command adopts it while it lives."""
    script = "(setsid sleep 601 >/dev/null 2>&1 </dev/null &); echo up; sleep 602"
    result = box.run("bash", "-c", script, timeout_s=1)
    assert (result.timed_out, result.stdout) == (True, b"up\n")
    assert box.alive("agent") == []


def test_new_content_is_never_older_than_what_was_made_of_the_old(box: Box) -> None:
    """make, and Python's cache of imports, compare ages."""
    put = box.sandbox.put_files
    box.do(put({"/work/src.c": b"1"}, "agent"))
    assert box.out("stat", "-c", "%Y", "/work/src.c") == "946684800"
    box.out("touch", "/work/src.o")
    box.do(put({"/work/src.c": b"2", "/work/other.c": b"3"}, "agent"))
    assert box.out("sh", "-c", "test /work/src.c -nt /work/src.o && stat -c %Y /work/other.c") == "946684800"
    box.out("rm", "/work/src.c", "/work/src.o", "/work/other.c")


def test_a_pipe_in_a_file_s_place_holds_nobody_up(box: Box) -> None:
    box.out("mkfifo", "/tmp/report")

    async def scene() -> bytes | None:
        async with asyncio.timeout(5):
            return await box.sandbox.read_file("/tmp/report", "agent")

    assert box.do(scene()) is None
    box.out("rm", "/tmp/report")


FROZEN_AND_ABANDONED = """
import asyncio, sys
from pathlib import Path
from sclate.run import owner_labels
from sclate.sandbox.build import Built
from sclate.sandbox.docker import DockerSandbox
from sclate.sandbox.engine import docker_client
from tests.sandbox.kit import spec

async def main():
    built = Built(sys.argv[1], Path(sys.argv[2]))
    box = DockerSandbox(spec(built, labels=owner_labels()), docker_client())
    await box.start()
    await box.spawn("sleeper", ["sleep", "600"], user="agent")
    box.freeze()
    print(box.container_id, box.gateway_dir.parent, flush=True)
    await asyncio.sleep(600)

asyncio.run(main())
"""


def test_a_sandbox_whose_owner_was_killed_while_it_was_frozen_is_reaped(
    sandbox_parts: Built, client: docker.DockerClient
) -> None:
    """With cgroup v1 the engine cannot kill what is frozen: it must be thawed first."""
    argv = [sys.executable, "-c", FROZEN_AND_ABANDONED, sandbox_parts.image, str(sandbox_parts.runtime)]
    owner = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
    assert owner.stdout is not None
    with owner.stdout:
        container, folder = owner.stdout.readline().split()
    name = str(client.containers.get(container).name)
    owner.kill()
    owner.wait()
    assert name in reap(client, dry_run=False)
    with pytest.raises(docker.errors.NotFound):
        client.containers.get(container)
    assert not Path(folder).exists()


def test_a_command_whose_output_cannot_be_kept_is_no_saved_tree(box: Box) -> None:
    name, path = box.sandbox._exchange("save.tar")
    result = box.do(
        box.sandbox._run(["yes"], user="agent", timeout_s=20, stdout_file=name, stdout_max=10_000)
    )
    path.unlink()
    with pytest.raises(SandboxError, match="state save failed"):
        box.sandbox._check_state_tool(result, "save")
    assert box.alive("agent") == []


WIDE_PIPE = """
    import fcntl, os, signal, subprocess, sys
    fcntl.fcntl(1, fcntl.F_SETPIPE_SZ, 1 << 20)
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
    print("up", flush=True)
    signal.sigwait([signal.SIGUSR1])
    os.write(1, b"x" * 899_999 + bytes([10]))
    subprocess.Popen(["sleep", "600"])
"""


def test_what_was_written_before_a_kill_is_told(box: Box) -> None:
    """Init is held up until the kill is asked for, and a child keeps the pipe open: all of it is in the pipe."""

    async def scene() -> list[bytes]:
        lines = Lines()
        process = await box.spawn_python("wide", WIDE_PIPE, lines)
        await lines.more_than(0)
        init = int(box.sandbox._container.attrs["State"]["Pid"])  # type: ignore[union-attr]
        found = Path(f"/proc/{init}/task/{init}/children").read_text().split()
        (writer,) = [int(pid) for pid in found if b"SIGUSR1" in Path(f"/proc/{pid}/cmdline").read_bytes()]
        ended = os.pidfd_open(writer)
        os.kill(init, signal.SIGSTOP)
        try:
            os.kill(writer, signal.SIGUSR1)
            assert select.select([ended], [], [], SOON_S)[0]
            killing = asyncio.create_task(box.sandbox.kill_user("agent"))
            await asyncio.sleep(0)
        finally:
            os.kill(init, signal.SIGCONT)
            os.close(ended)
        await killing
        await process.drained()
        return lines.stdout

    assert box.do(scene()) == [b"up", b"x" * 899_999]


def test_output_before_the_end_is_whole(box: Box) -> None:
    async def scene() -> list[bytes]:
        lines = Lines()
        process = await box.sandbox.spawn("p", ["printf", "a\\nb"], user="agent", on_output=lines)
        await process.wait()
        await process.drained()
        return lines.stdout

    assert box.do(scene()) == [b"a", b"b"]
