"""Who made a container or a folder: a process, by its pid and its start time, since pids are used again."""

from __future__ import annotations

import os
from pathlib import Path


def _stat(pid: int) -> list[str]:
    """Fields of /proc/<pid>/stat from the state on; a command's name may hold anything, brackets too."""
    return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()


def this_owner() -> tuple[str, str]:
    """Pid and start time of this process."""
    pid = os.getpid()
    return str(pid), _stat(pid)[19]


def owner_alive(pid: str, start: str) -> bool:
    """Whether the process that made a thing still runs: same pid, same start time, no zombie."""
    try:
        fields = _stat(int(pid))
    except (OSError, ValueError):
        return False
    return fields[19] == start and fields[0] not in "ZX"
