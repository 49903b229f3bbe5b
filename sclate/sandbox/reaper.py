"""Removing what dead owners left: containers whose label names a process that is no more."""

from __future__ import annotations

from pathlib import Path

import docker


def owner_alive(pid: str, start: str) -> bool:
    """Whether the process that made a container still runs: same pid, same start time."""
    try:
        fields = Path(f"/proc/{int(pid)}/stat").read_text().rsplit(")", 1)[1].split()
    except (OSError, ValueError):
        return False
    return fields[19] == start and fields[0] not in "ZX"


def reap(client: docker.DockerClient, *, dry_run: bool) -> list[str]:
    """Remove containers of dead owners; returns their names. Others are never touched."""
    names = []
    for container in client.containers.list(all=True, filters={"label": "sclate.owner.pid"}):
        labels = container.labels
        if owner_alive(labels.get("sclate.owner.pid", ""), labels.get("sclate.owner.start", "")):
            continue
        names.append(str(container.name))
        if not dry_run:
            container.remove(force=True, v=True)
    return names
