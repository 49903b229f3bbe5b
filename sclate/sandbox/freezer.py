"""Stopping the agent's processes where they are, invisibly to them: a child cgroup of the container's.

Only processes of the given uids are moved and frozen; init and the proxy live on. Works with cgroup v1
(freezer) and v2 (cgroup.freeze) where the host may write cgroupfs; elsewhere the engine pauses the whole
container.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection
from pathlib import Path

from sclate.sandbox.protocol import SandboxError

CGROUPS = Path("/sys/fs/cgroup")
DEADLINE_S = 2.0


class Freezer(ABC):
    """Freezes and thaws; both return once the kernel says that it is so."""

    @abstractmethod
    def freeze(self) -> None: ...

    @abstractmethod
    def thaw(self) -> None: ...

    def remove(self) -> None:
        """Take away what was made on the host."""
        return


class EnginePause(Freezer):
    """The engine's own pause: everything in the container stops, init and proxy too."""

    def __init__(self, pause: Callable[[], object], unpause: Callable[[], object]) -> None:
        self._pause, self._unpause = pause, unpause
        self._paused = False

    def freeze(self) -> None:
        if not self._paused:
            self._pause()
            self._paused = True

    def thaw(self) -> None:
        if self._paused:
            self._unpause()
            self._paused = False


class CgroupFreezer(Freezer):
    """A child cgroup `sclate` below the container's own."""

    def __init__(self, parent: Path, uids: Collection[int], *, v2: bool) -> None:
        self._parent, self._uids, self._v2 = parent, frozenset(uids), v2
        self._child = parent / "sclate"
        self._child.mkdir(exist_ok=True)

    def freeze(self) -> None:
        deadline = time.monotonic() + DEADLINE_S
        self._gather(deadline)
        self._set("1" if self._v2 else "FROZEN", "1" if self._v2 else "FROZEN", deadline)
        self._gather(deadline)  # forked meanwhile; what is moved into a frozen cgroup freezes

    def thaw(self) -> None:
        deadline = time.monotonic() + DEADLINE_S
        self._set("0" if self._v2 else "THAWED", "0" if self._v2 else "THAWED", deadline)

    def remove(self) -> None:
        try:
            self._child.rmdir()
        except OSError:
            pass  # gone with the container

    def _gather(self, deadline: float) -> None:
        """Move every process of the uids; loop, since they may fork while they are moved."""
        while True:
            outside = [pid for pid in self._pids() if self._uid(pid) in self._uids]
            if not outside:
                return
            for pid in outside:
                try:
                    (self._child / "cgroup.procs").write_text(str(pid))
                except OSError:
                    pass  # it ended
            if time.monotonic() > deadline:
                raise SandboxError("the agent forks faster than it can be frozen")

    def _pids(self) -> list[int]:
        return [int(pid) for pid in (self._parent / "cgroup.procs").read_text().split()]

    def _uid(self, pid: int) -> int | None:
        try:
            return Path(f"/proc/{pid}").stat().st_uid
        except OSError:
            return None

    def _set(self, wanted: str, state: str, deadline: float) -> None:
        control = self._child / ("cgroup.freeze" if self._v2 else "freezer.state")
        control.write_text(wanted)
        while self._state() != state:
            if time.monotonic() > deadline:
                raise SandboxError(f"cgroup {control} does not become {wanted}")
            control.write_text(wanted)

    def _state(self) -> str:
        if not self._v2:
            return (self._child / "freezer.state").read_text().strip()
        events = (self._child / "cgroup.events").read_text().split()
        return events[events.index("frozen") + 1]


def freezer_for(init_pid: int, uids: Collection[int], pause: EnginePause) -> Freezer:
    """The lightest freezer that works for a container, by the host pid of its init."""
    for line in Path(f"/proc/{init_pid}/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        v2 = controllers == ""
        if not (v2 or "freezer" in controllers.split(",")):
            continue
        root = CGROUPS / "freezer" if not v2 else CGROUPS
        parent = root / path.lstrip("/")
        if v2 and not (parent / "cgroup.freeze").exists():
            continue
        try:
            return CgroupFreezer(parent, uids, v2=v2)
        except OSError:
            continue
    return pause
