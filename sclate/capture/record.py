"""From the proxy's lines to `CallRecord`s: what a call said, when on both clocks, and what is missing."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import structlog

from sclate.capture.dialects import endpoint_of
from sclate.capture.heard import Heard
from sclate_adapters.base import JsonDict, whole
from sclate_adapters.records import CallRecord

log = structlog.get_logger()

HALF_PAIR = re.compile(rb"\\u[dD][89a-fA-F]|\xed[\xa0-\xbf]")
"""What programs that cut strings make: half of a surrogate pair is in JSON, but no text."""

SimOfMono = Callable[[int], int]
"""CLOCK_MONOTONIC ns -> simulated ns."""


class CallReader:
    """Reads what is new in a proxy's `calls.jsonl`; never changes it.

    A line that is not complete yet is left for the next time. One that is complete and no record, or that
    repeats a `seq`, is reported, counted in `damaged` and skipped; it is never glued to the next.

    Args:
        sim_of_mono: maps the proxy's instants; it sees the same CLOCK_MONOTONIC as the engine.
    """

    def __init__(self, path: Path, session: str, sim_of_mono: SimOfMono) -> None:
        self.path = path
        self.session = session
        self.damaged = 0
        self._offset = 0
        self._seen: set[int] = set()
        self._sim_of_mono = sim_of_mono

    def take(self, turn: str | None) -> list[CallRecord]:
        """The records that came since the last time, assigned to `turn`."""
        whole, _ = self._read()
        return self._records(whole, turn)

    def rest(self, turn: str | None) -> list[CallRecord]:
        """As `take`, once the proxy has ended: a last line that lacks only its end counts, half a line is
        damage."""
        whole, torn = self._read()
        return self._records(whole + torn, turn)

    def _read(self) -> tuple[bytes, bytes]:
        if not self.path.exists():
            return b"", b""
        with self.path.open("rb") as lines:
            lines.seek(self._offset)
            data = lines.read()
        end = data.rfind(b"\n") + 1
        self._offset += end
        return data[:end], data[end:]

    def _records(self, data: bytes, turn: str | None) -> list[CallRecord]:
        records = []
        for line in data.split(b"\n"):
            if not line.strip():
                continue
            try:
                record = self._record(json.loads(line), turn)
                if record.seq in self._seen:
                    raise ValueError(f"call {record.seq} is recorded twice")
            except (ValueError, KeyError, TypeError, RecursionError) as error:
                self.damaged += 1
                log.error("damaged record of a call", session=self.session, error=repr(error)[:500])
                continue
            self._seen.add(record.seq)
            records.append(record)
        return records

    def _record(self, line: JsonDict, turn: str | None) -> CallRecord:
        request = _json(_bytes(line.get("request")))
        body = _bytes(line.get("response"))
        halves = any(HALF_PAIR.search(data) for data in (_bytes(line.get("request")), body))
        streamed = "text/event-stream" in line.get("response_headers", {}).get("content-type", "")
        endpoint = endpoint_of(line["path"])
        heard = Heard()
        if endpoint is not None:
            wire = endpoint.wire
            heard = wire.hear_stream(body) if streamed else wire.hear_json(_json(body) or {})
        sampling = endpoint.wire.SAMPLING if endpoint is not None and request else ()
        error = line.get("error") or heard.error
        status = line.get("status")
        if error is None and status is not None and status >= 400:
            error = f"HTTP {status}"
        if halves:
            request = None if request is None else whole(request)
            heard = Heard(**whole(vars(heard)))
        start, first, end = line["start"], line.get("first_byte"), line["end"]
        return CallRecord(
            seq=line["seq"],
            session=self.session,
            turn=turn,
            route=line["route"],
            dialect=endpoint.dialect if endpoint else None,
            method=line["method"],
            path=line["path"],
            model=heard.model or str((request or {}).get("model", "")),
            streamed=streamed,
            status=status,
            request=request,
            response={"content": heard.content, "stop_reason": heard.stop_reason} if heard.content else None,
            text=heard.text,
            tool_calls=heard.tool_calls,
            usage=heard.usage,
            raw_usage=tuple(heard.raw_usage),
            finish_reason=heard.stop_reason,
            sampling={k: request[k] for k in sampling if k in request} if request else {},
            start_real_ns=start["real_ns"],
            first_byte_real_ns=first["real_ns"] if first else None,
            end_real_ns=end["real_ns"],
            start_sim_ns=self._sim_of_mono(start["mono_ns"]),
            first_byte_sim_ns=self._sim_of_mono(first["mono_ns"]) if first else None,
            end_sim_ns=self._sim_of_mono(end["mono_ns"]),
            retries=line.get("retries", 0),
            redacted=int(line.get("redacted", 0)),
            truncated=bool(line.get("cut")) or (streamed and not heard.complete),
            error=error,
        )


def _bytes(kept: Any) -> bytes:
    """The proxy's `{"text": ...}` or `{"base64": ...}`."""
    if not kept:
        return b""
    if "base64" in kept:
        return base64.b64decode(kept["base64"])
    return str(kept["text"]).encode()


def _json(data: bytes) -> JsonDict | None:
    try:
        body = json.loads(data)
    except (ValueError, RecursionError):  # no JSON, or nested too deep
        return None
    return body if isinstance(body, dict) else None
