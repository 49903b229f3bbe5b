"""Stopping the agent's processes where they are, invisibly to them: a child cgroup of the container's.

Only what was confined is frozen, with all that it forks; init, the proxy and the engine's own commands live
on. Works with cgroup v1 (freezer) and v2 (cgroup.freeze).
"""

from __future__ import annotations

import contextlib
import time
from pathlib import Path

from sclate.errors import PrerequisiteError
from sclate.sandbox.protocol import SandboxError

CGROUPS = Path("/sys/fs/cgroup")
DEADLINE_S = 20.0
CHILD = "sclate"


class Freezer:
    """A child cgroup `sclate` below the container's own. `freeze` and `thaw` return once the kernel says so."""

    def __init__(self, parent: Path, *, v2: bool) -> None:
        self._parent, self._v2 = parent, v2
        self._child = parent / CHILD
        self._child.mkdir(exist_ok=True)

    def confine(self, pid: int) -> None:
        """Move a process and what it has forked so far; what it forks from now on is born inside.

        Args:
            pid: as the container sees it.
        """
        deadline = time.monotonic() + DEADLINE_S
        found = {host for host in self._outside() if _pid_inside(host) == pid}
        while found:
            for host in found:
                with contextlib.suppress(OSError):  # it ended
                    (self._child / "cgroup.procs").write_text(str(host))
            if time.monotonic() > deadline:
                raise SandboxError("the agent forks faster than it can be confined")
            inside = set(_pids(self._child))
            found = {host for host in self._outside() if _parent_of(host) in inside}

    def freeze(self) -> None:
        self._set("1" if self._v2 else "FROZEN")

    def thaw(self) -> None:
        self._set("0" if self._v2 else "THAWED")

    def remove(self) -> None:
        """Take away what was made on the host; it goes with the container at the latest."""
        with contextlib.suppress(OSError):
            self._child.rmdir()

    def _outside(self) -> list[int]:
        return _pids(self._parent)

    def _set(self, wanted: str) -> None:
        deadline = time.monotonic() + DEADLINE_S
        control = self._child / ("cgroup.freeze" if self._v2 else "freezer.state")
        control.write_text(wanted)
        while self._state() != wanted:
            if time.monotonic() > deadline:
                raise SandboxError(f"cgroup {control} does not become {wanted}")
            control.write_text(wanted)

    def _state(self) -> str:
        if not self._v2:
            return (self._child / "freezer.state").read_text().strip()
        events = (self._child / "cgroup.events").read_text().split()
        return events[events.index("frozen") + 1]


def _pids(cgroup: Path) -> list[int]:
    return [int(pid) for pid in (cgroup / "cgroup.procs").read_text().split()]


def _status(host_pid: int, field: str) -> list[str]:
    """Words of a field in /proc/<pid>/status; none when the process is gone."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{host_pid}/status").read_text().splitlines():
            if line.startswith(field + ":"):
                return line.split()[1:]
    return []


def _pid_inside(host_pid: int) -> int | None:
    words = _status(host_pid, "NSpid")
    return int(words[-1]) if words else None


def _parent_of(host_pid: int) -> int | None:
    words = _status(host_pid, "PPid")
    return int(words[0]) if words else None


def freezer_for(init_pid: int) -> Freezer:
    """The freezer of a container, by the host pid of its init.

    Raises:
        PrerequisiteError: this host lets nobody make cgroups.
    """
    for line in Path(f"/proc/{init_pid}/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        v2 = controllers == ""
        root = CGROUPS if v2 else CGROUPS / "freezer"
        parent = root / path.lstrip("/")
        if not (v2 and (parent / "cgroup.freeze").exists()) and "freezer" not in controllers.split(","):
            continue
        with contextlib.suppress(OSError):
            return Freezer(parent, v2=v2)
    raise PrerequisiteError(
        "the agent's processes cannot be frozen",
        f"no cgroup of the container can be written below {CGROUPS}",
        "run sclate where the Docker engine runs, with a writable cgroup file system",
    )
