"""Removing what dead owners left: containers by their labels, private folders by their names."""

from __future__ import annotations

import contextlib
import re
import shutil
from pathlib import Path

import docker
from docker.errors import NotFound
from docker.models.containers import Container

from sclate.errors import PrerequisiteError
from sclate.sandbox.docker import PREFIX, PRIVATE_ROOT
from sclate.sandbox.freezer import freezer_for
from sclate.sandbox.owner import owner_alive

OWNED = re.compile(re.escape(PREFIX) + r"(\d+)-(\d+)-\w+")
"""The name of a private folder: its owner's pid and start time."""


def reap(client: docker.DockerClient, *, dry_run: bool) -> list[str]:
    """Remove containers of dead owners with their private folders, and such folders without a container.

    Others are never touched.

    Returns:
        Names of containers, and paths of the folders that had none.
    """
    names: list[str] = []
    with_container: set[Path] = set()
    labelled = client.containers.list(all=True, filters={"label": "sclate.owner.pid"}, ignore_removed=True)
    for container in labelled:
        labels = container.labels
        if owner_alive(labels.get("sclate.owner.pid", ""), labels.get("sclate.owner.start", "")):
            continue
        names.append(str(container.name))
        folders = _folders_of(container)
        with_container |= folders
        if not dry_run:
            _remove(container)
            for folder in folders:
                shutil.rmtree(folder, ignore_errors=True)
    for folder in sorted(PRIVATE_ROOT.glob(f"{PREFIX}*")):
        owned = OWNED.fullmatch(folder.name)
        if owned is None or folder in with_container or owner_alive(owned[1], owned[2]):
            continue
        names.append(str(folder))
        if not dry_run:
            shutil.rmtree(folder, ignore_errors=True)
    return names


def _folders_of(container: Container) -> set[Path]:
    """The private folder that is mounted into a container."""
    parents = {Path(mount.get("Source", "")).parent for mount in container.attrs["Mounts"]}
    return {path for path in parents if path.parent == PRIVATE_ROOT and path.name.startswith(PREFIX)}


def _remove(container: Container) -> None:
    with contextlib.suppress(NotFound):
        container.reload()
        with contextlib.suppress(OSError, PrerequisiteError):  # it has ended
            freezer_for(container.attrs["State"]["Pid"]).thaw()  # with cgroup v1 the frozen cannot die
        container.remove(force=True, v=True)
