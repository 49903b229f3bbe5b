"""Times in what a session left behind: transcripts and notes of its saved harness and memory.

The states are tar files of trees that an agent wrote. They are read in place, uncompressed, a bounded amount
of them, and nothing is ever extracted.
"""

from __future__ import annotations

import re
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson

from sclate.report.moments import CLOCK, DATE
from sclate_adapters.records import Snapshot

STATES = ("harness", "memory")
MOST_MEMBERS = 20_000
MOST_BYTES = 512 * 1024
"""Of one file: its end, for what was written last is sought."""
MOST_BYTES_ALL = 16 * 1024 * 1024
MOST_TIMES = 2_000
NOTES = (".md", ".txt", ".json", ".yaml", ".yml", ".toml")
TIME = re.compile(rf"{DATE}[T ]{CLOCK}")
STAMPED = re.compile(
    r"(?:^[ \t#>*\[(-]*|(?i:written|created|updated|saved|recorded|timestamp)\w*[\"']?[ \t]*[:=][ \t]*[\"']?)"
    rf"({TIME.pattern})",
    re.MULTILINE,
)
"""A time at a line's start, or after a word that says when a note was made: not one that a note speaks of."""
STAMP_KEYS = re.compile(r"timestamp|ts|time|at|date|\w+_at|\w+At")
_DIGEST = re.compile(r"sha256:([0-9a-f]{64})")
_UNREADABLE = (tarfile.TarError, OSError, EOFError, ValueError, OverflowError, RecursionError)

Known = dict[str, tuple[int, float]]
"""Size and time of change of each file of a tree."""


def times_recorded(states: Path, before: Snapshot, after: Snapshot) -> list[str]:
    """ISO times that the session's own transcripts say, in the order of files and lines; else its notes'.

    Only files that it made or changed are looked at, and of a file that grew only what was added. `states` is
    the folder of `<digest>.tar`. What is missing or damaged has no times.
    """
    transcripts: list[str] = []
    notes: list[str] = []
    left = MOST_BYTES_ALL
    for name in STATES:
        old, new = getattr(before, name), getattr(after, name)
        if old == new:
            continue
        known = _index(_path(states, old))
        for path, data in _changed(_path(states, new), known, left):
            left -= len(data)
            if path.endswith(".jsonl"):
                transcripts += _of_lines(data)
            else:
                notes += STAMPED.findall(data.decode(errors="replace"))
            del transcripts[:-MOST_TIMES], notes[:-MOST_TIMES]
    return transcripts or notes


def _path(states: Path, digest: str) -> Path | None:
    """None for what is no digest, so that no other file is ever opened."""
    found = _DIGEST.fullmatch(digest)
    return states / f"{found[1]}.tar" if found else None


def _index(path: Path | None) -> Known:
    found: Known = {}
    if path is None or not path.is_file():
        return found
    try:
        with tarfile.open(path, "r:") as tar:
            for member in _files(tar):
                found[member.name] = member.size, member.mtime
    except _UNREADABLE:
        pass
    return found


def _changed(path: Path | None, known: Known, most: int) -> Iterator[tuple[str, bytes]]:
    """Name and end of each transcript and note that is new or other than it was."""
    if path is None or not path.is_file():
        return
    try:
        with tarfile.open(path, "r:") as tar:
            for member in _files(tar):
                size, changed = known.get(member.name, (0, None))
                if (member.size, member.mtime) == (size, changed):
                    continue
                file = tar.extractfile(member)
                if file is None or most <= 0:
                    return
                added = member.size - size if member.size > size else member.size
                file.seek(member.size - min(added, MOST_BYTES, most))
                data = file.read(MOST_BYTES)
                most -= len(data)
                yield member.name, data
    except _UNREADABLE:
        return


def _files(tar: tarfile.TarFile) -> Iterator[tarfile.TarInfo]:
    """Regular files that may hold times: no links, devices or files with holes, whose size is a claim."""
    for n, member in enumerate(tar):
        if n >= MOST_MEMBERS:
            return
        if member.isreg() and not member.issparse() and member.name.endswith((".jsonl", *NOTES)):
            yield member


def _of_lines(data: bytes) -> Iterator[str]:
    """The times of JSON lines: values of the line itself, not of what was said in it."""
    for line in data.splitlines():
        try:
            value: Any = orjson.loads(line)
        except ValueError:
            continue
        if isinstance(value, dict):
            for key, said in value.items():
                if STAMP_KEYS.fullmatch(key) and isinstance(said, str) and TIME.fullmatch(said[:64]):
                    yield said
