"""How programs in a sandbox come to see simulated time."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from pathlib import Path

LIBRARY = "/opt/sclate/clock/libfaketimeMT.so.1"


class ClockBackend(ABC):
    """`set_offset` moves the clock of every process inside, from its next look on."""

    name: str
    covers_static: bool
    """Whether statically linked programs follow too."""

    @abstractmethod
    def prepare(self, folder: Path) -> dict[str, str]:
        """Make what is mounted, before the container is created; returns read-only binds, host -> inside."""

    @abstractmethod
    def set_offset(self, offset_ns: int) -> None:
        """Simulated minus real time (CLOCK_REALTIME)."""


class LibfaketimeBackend(ClockBackend):
    """libfaketime through /etc/ld.so.preload, with an offset file that is replaced by rename.

    Dynamic programs of the image follow, also under `env -i`, `su` and `setpriv`; static ones see real
    time. CLOCK_MONOTONIC stays real. File times stay real.
    """

    name = "libfaketime"
    covers_static = False

    def prepare(self, folder: Path) -> dict[str, str]:
        self._folder = folder / "clock"
        self._folder.mkdir(mode=0o755)
        preload = folder / "preload"
        preload.write_text(LIBRARY + "\n")
        preload.chmod(0o644)
        self.set_offset(0)
        return {str(self._folder): "/run/sclate/clock", str(preload): "/etc/ld.so.preload"}

    def set_offset(self, offset_ns: int) -> None:
        sign = "-" if offset_ns < 0 else "+"
        seconds, ns = divmod(abs(offset_ns), 1_000_000_000)
        fresh = self._folder / "rc.new"
        fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        try:
            os.write(fd, f"{sign}{seconds}.{ns:09d}\n".encode())
            os.fchmod(fd, 0o644)
        finally:
            os.close(fd)
        fresh.rename(self._folder / "rc")
