"""Removing what dead owners left: containers whose label names a process that is no more."""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path

import docker
from docker.errors import NotFound

from sclate.errors import PrerequisiteError
from sclate.sandbox.docker import PREFIX, PRIVATE_ROOT
from sclate.sandbox.freezer import freezer_for


def owner_alive(pid: str, start: str) -> bool:
    """Whether the process that made a container still runs: same pid, same start time."""
    try:
        fields = Path(f"/proc/{int(pid)}/stat").read_text().rsplit(")", 1)[1].split()
    except (OSError, ValueError):
        return False
    return fields[19] == start and fields[0] not in "ZX"


def reap(client: docker.DockerClient, *, dry_run: bool) -> list[str]:
    """Remove containers of dead owners with their private folders; returns the containers' names. Others are
    never touched."""
    names = []
    labelled = client.containers.list(all=True, filters={"label": "sclate.owner.pid"}, ignore_removed=True)
    for container in labelled:
        labels = container.labels
        if owner_alive(labels.get("sclate.owner.pid", ""), labels.get("sclate.owner.start", "")):
            continue
        names.append(str(container.name))
        if dry_run:
            continue
        with contextlib.suppress(NotFound):
            container.reload()
            with contextlib.suppress(OSError, PrerequisiteError):  # it has ended
                freezer_for(container.attrs["State"]["Pid"]).thaw()  # with cgroup v1 the frozen cannot die
            container.remove(force=True, v=True)
        for mount in container.attrs["Mounts"]:
            folder = Path(mount.get("Source", "")).parent
            if folder.parent == PRIVATE_ROOT and folder.name.startswith(PREFIX):
                shutil.rmtree(folder, ignore_errors=True)
    return names
