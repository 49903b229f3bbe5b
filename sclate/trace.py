"""The trace: one JSON object a line, written before the effect that it announces. Format: docs/trace.md."""

from __future__ import annotations

import os
import time
from pathlib import Path
from types import TracebackType
from typing import Any

import orjson
from pydantic import BaseModel
from pydantic_core import PydanticSerializationError

from sclate_adapters.base import whole

TRACE_VERSION = 1


def _default(value: Any) -> Any:
    """Records of the contract inside trace lines."""
    if isinstance(value, BaseModel):
        return orjson.Fragment(value.__pydantic_serializer__.to_json(value))
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    raise TypeError(f"{type(value).__name__} has no place in the trace")


def dumps(record: Any) -> bytes:
    """JSON as in every file of a run: UTF-8, keys in the order given. Half of a surrogate pair, which a
    harness or a model can say and which is no text, is written out as `\\udc80`."""
    try:
        return orjson.dumps(record, default=_default)
    except (orjson.JSONEncodeError, PydanticSerializationError):
        return orjson.dumps(whole(record), default=_default)


def write_json(path: Path, value: Any) -> None:
    """Durable and whole, or not there at all."""
    partial = path.with_name(path.name + ".partial")
    with partial.open("wb") as out:
        out.write(dumps(value) + b"\n")
        os.fsync(out.fileno())
    partial.rename(path)


class TraceWriter:
    """Appends to `trace.jsonl` with one write(2) a line; `sync` makes it durable.

    A killed process loses nothing, a lost machine goes back to the last `sync`. Every line has
    `v, seq, sim_ns, real_ns, type`; further fields by type.

    Raises:
        FileExistsError: there is a trace already; a run folder is never written over.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o644)
        self.seq = 0
        self._held: list[bytes] = []

    def write(self, sim_ns: int, type_: str, fields: dict[str, Any], *, hold: bool = False) -> int:
        """Append a line; returns its `seq`, which counts from 1. `hold`: write it together with the next
        (the scheduler flushes before it waits, and an effect is never started with its line held)."""
        self.seq += 1
        record = {
            "v": TRACE_VERSION,
            "seq": self.seq,
            "sim_ns": sim_ns,
            "real_ns": time.time_ns(),
            "type": type_,
            **fields,
        }
        self._held += (dumps(record), b"\n")
        if not hold:
            self.flush()
        return self.seq

    def flush(self) -> None:
        """Write what was held."""
        rest = b"".join(self._held)
        self._held.clear()
        while rest:
            rest = rest[os.write(self._fd, rest) :]

    def sync(self) -> None:
        self.flush()
        os.fsync(self._fd)

    def close(self) -> None:
        if self._fd >= 0:
            self.flush()
            os.fsync(self._fd)
            os.close(self._fd)
            self._fd = -1

    def __enter__(self) -> TraceWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        self.close()
