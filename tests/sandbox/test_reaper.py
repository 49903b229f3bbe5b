"""What dead owners left is removed; nothing else ever is."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import docker
import pytest
from docker.models.containers import Container

from sclate.sandbox.build import Built
from sclate.sandbox.docker import PRIVATE_ROOT
from sclate.sandbox.reaper import owner_alive, reap
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
