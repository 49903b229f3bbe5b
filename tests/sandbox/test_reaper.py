"""What dead owners left is removed; nothing else ever is."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import docker
import pytest
from docker.models.containers import Container

from sclate.sandbox.build import Built
from sclate.sandbox.docker import PREFIX, PRIVATE_ROOT, DockerSandbox
from sclate.sandbox.owner import owner_alive
from sclate.sandbox.reaper import reap
from tests.sandbox.kit import Box, spec


def start_time(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[19]


def dead_owner() -> tuple[str, str]:
    """Pid and start time of a process that was."""
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    start = start_time(child.pid)
    child.communicate(b"\n")
    return str(child.pid), start


def test_an_owner_is_its_pid_and_its_start_time() -> None:
    pid = os.getpid()
    assert owner_alive(str(pid), start_time(pid))
    assert not owner_alive(str(pid), str(int(start_time(pid)) + 1)), "the pid was given to another process"
    assert not owner_alive(*dead_owner())
    for nonsense in ("", "x", "0", "-1", "999999999"):
        assert not owner_alive(nonsense, "1")


def test_a_zombie_is_no_living_owner() -> None:
    child = subprocess.Popen([sys.executable, "-c", ""], stdin=subprocess.PIPE)
    start = start_time(child.pid)
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    try:
        assert not owner_alive(str(child.pid), start)
    finally:
        child.communicate()


def test_an_odd_process_name_does_not_confuse_it() -> None:
    code = "import ctypes; ctypes.CDLL(None).prctl(15, b') Z 1 (', 0, 0, 0); print(flush=True); input()"
    child = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert child.stdout is not None
    child.stdout.readline()
    try:
        assert owner_alive(str(child.pid), start_time(child.pid))
    finally:
        child.communicate(b"\n")


@pytest.fixture
def container(
    sandbox_parts: Built, client: docker.DockerClient
) -> Iterator[Callable[[dict[str, str]], Container]]:
    made: list[Container] = []

    def create(labels: dict[str, str]) -> Container:
        made.append(client.containers.create(sandbox_parts.image, ["true"], labels=labels))
        return made[-1]

    yield create
    for each in made:
        try:
            each.remove(force=True)
        except docker.errors.NotFound:
            pass


@pytest.mark.docker
def test_only_containers_of_dead_owners_are_removed(
    client: docker.DockerClient, container: Callable[[dict[str, str]], Container]
) -> None:
    pid, start = dead_owner()
    dead = container({"sclate.owner.pid": pid, "sclate.owner.start": start})
    reused = container({"sclate.owner.pid": str(os.getpid()), "sclate.owner.start": "1"})
    mine = container({"sclate.owner.pid": str(os.getpid()), "sclate.owner.start": start_time(os.getpid())})
    foreign = container({})
    similar = container({"sclate.test": "sandbox", "owner.pid": pid})

    def present(each: Container) -> bool:
        return bool(client.containers.list(all=True, filters={"id": str(each.id)}, ignore_removed=True))

    listed = reap(client, dry_run=True)
    assert {dead.name, reused.name} <= set(listed)
    assert not {mine.name, foreign.name, similar.name} & set(listed)
    assert all(map(present, (dead, reused, mine, foreign, similar))), "a dry run removes nothing"
    assert {dead.name, reused.name} <= set(reap(client, dry_run=False))
    assert not present(dead)
    assert not present(reused)
    assert all(map(present, (mine, foreign, similar)))
    assert not {dead.name, reused.name} & set(reap(client, dry_run=True))


@pytest.mark.docker
def test_a_dead_owner_s_folder_goes_with_its_sandbox(
    sandbox_parts: Built, client: docker.DockerClient
) -> None:
    """It holds saved states, and lies in memory on most hosts."""
    pid, start = dead_owner()
    box = Box(spec(sandbox_parts, labels={"sclate.owner.pid": pid, "sclate.owner.start": start}), client)
    folder = box.sandbox.gateway_dir.parent
    try:
        assert folder.parent == PRIVATE_ROOT
        reap(client, dry_run=True)
        assert folder.is_dir()
        reap(client, dry_run=False)
        assert not folder.exists()
    finally:
        box.close()


NEVER_STARTED = """
import os, signal, sys
from pathlib import Path
from sclate.sandbox.build import Built
from sclate.sandbox.docker import DockerSandbox
from sclate.sandbox.engine import docker_client
from tests.sandbox.kit import spec

box = DockerSandbox(spec(Built(sys.argv[1], Path(sys.argv[2]))), docker_client())
print(box.gateway_dir.parent, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.docker
def test_folders_without_a_container_go_when_their_owner_is_dead(
    sandbox_parts: Built, client: docker.DockerClient
) -> None:
    argv = [sys.executable, "-c", NEVER_STARTED, sandbox_parts.image, str(sandbox_parts.runtime)]
    dead = Path(subprocess.run(argv, capture_output=True, text=True).stdout.strip())
    box = Box(spec(sandbox_parts), client)
    mine = box.sandbox.gateway_dir.parent
    similar = [PRIVATE_ROOT / f"{PREFIX}{name}" for name in ("test", "999999999", "1-x-abc")]
    for path in similar:
        path.mkdir()
    try:
        assert dead.is_dir()
        assert str(dead) in reap(client, dry_run=True)
        assert dead.is_dir(), "a dry run removes nothing"
        found = reap(client, dry_run=False)
        assert str(dead) in found
        assert not dead.exists()
        assert not {str(path) for path in (mine, *similar)} & set(found)
        assert all(path.is_dir() for path in (mine, *similar))
        assert box.out("echo", "still works") == "still works"
    finally:
        box.close()
        for path in similar:
            path.rmdir()


@pytest.mark.docker
@pytest.mark.parametrize("after_s", [0.0, 0.02, 0.1, 0.3])
def test_a_start_that_is_cancelled_leaves_nothing(
    sandbox_parts: Built, client: docker.DockerClient, after_s: float
) -> None:
    """At any moment; and who closes it may be cancelled too, as by an impatient user."""
    label = f"cancelled-{uuid.uuid4().hex}"
    sandbox = DockerSandbox(spec(sandbox_parts, labels={"sclate.test": label}), client)

    async def impatient() -> None:
        starting = asyncio.create_task(sandbox.start())
        await asyncio.sleep(after_s)
        starting.cancel()
        assert isinstance((await asyncio.gather(starting, return_exceptions=True))[0], asyncio.CancelledError)
        closing = asyncio.create_task(sandbox.close())
        for _ in range(3):
            await asyncio.sleep(0.01)
            closing.cancel()
        await asyncio.gather(closing, return_exceptions=True)

    asyncio.run(impatient())
    assert client.containers.list(all=True, filters={"label": f"sclate.test={label}"}) == []
    assert not sandbox.gateway_dir.parent.exists()


NO_ROOM = """
import resource, sys
from pathlib import Path
from sclate.sandbox.build import Built
from sclate.sandbox.docker import DockerSandbox
from sclate.sandbox.engine import docker_client
from tests.sandbox.kit import spec

client = docker_client()
resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
DockerSandbox(spec(Built(sys.argv[1], Path(sys.argv[2]))), client)
"""


@pytest.mark.docker
def test_a_sandbox_that_cannot_be_made_leaves_no_folder(sandbox_parts: Built) -> None:
    argv = [sys.executable, "-c", NO_ROOM, sandbox_parts.image, str(sandbox_parts.runtime)]
    run = subprocess.Popen(argv, stderr=subprocess.PIPE, text=True)
    _, said = run.communicate()
    assert "File too large" in said
    assert not list(PRIVATE_ROOT.glob(f"{PREFIX}{run.pid}-*"))


@pytest.mark.docker
def test_closing_leaves_nothing_and_may_be_repeated(
    sandbox_parts: Built, client: docker.DockerClient
) -> None:
    box = Box(spec(sandbox_parts), client)
    folder, name = box.sandbox.gateway_dir.parent, box.sandbox.container_id
    box.do(box.sandbox.spawn("sleeper", ["sleep", "600"], user="agent"))
    box.sandbox.freeze()
    box.do(box.sandbox.close())
    assert not folder.exists()
    assert client.containers.list(all=True, filters={"id": str(name)}, ignore_removed=True) == []
    assert box.sandbox.container_id is None
    box.close()
