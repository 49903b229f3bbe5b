"""Tars of trusted files on their way into a sandbox."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Mapping

MTIME_S = 946_684_800
"""Files of a benchmark are as old as the year 2000: a fixed time, so that digests repeat."""


def pack(files: Mapping[str, bytes], mode: int = 0o644) -> bytes:
    """A tar of files by absolute path, sorted; the same files give the same bytes."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for path in sorted(files):
            info = tarfile.TarInfo(path.lstrip("/"))
            info.size, info.mode, info.mtime = len(files[path]), mode, MTIME_S
            tar.addfile(info, io.BytesIO(files[path]))
    return out.getvalue()
