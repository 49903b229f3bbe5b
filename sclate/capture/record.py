"""From the proxy's lines to `CallRecord`s: what a call said, when on both clocks, and what is missing."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import structlog

from sclate.capture import dialect_messages
from sclate_adapters.base import JsonDict
from sclate_adapters.models import Dialect
from sclate_adapters.records import CallRecord

log = structlog.get_logger()

SimOfMono = Callable[[int], int]


class CallReader:
    """Reads what is new in a proxy's `calls.jsonl`.

    A line that is not complete yet is left for the next time; one that is complete and no JSON is reported
    and skipped, never glued to the next.
    """

    def __init__(self, path: Path, session: str, sim_of_mono: SimOfMono) -> None:
        self.path = path
        self.session = session
        self.damaged = 0
        self._offset = 0
        self._sim_of_mono = sim_of_mono

    def take(self, turn: str | None) -> list[CallRecord]:
        """The records that came since the last time, assigned to `turn`."""
        if not self.path.exists():
            return []
        with self.path.open("rb") as lines:
            lines.seek(self._offset)
            data = lines.read()
        whole = data[: data.rfind(b"\n") + 1]
        self._offset += len(whole)
        records = []
        for line in whole.splitlines():
            try:
                records.append(self._record(json.loads(line), turn))
            except (ValueError, KeyError) as error:
                self.damaged += 1
                log.error("damaged record of a call", session=self.session, error=repr(error))
        return records

    def _record(self, line: JsonDict, turn: str | None) -> CallRecord:
        request = _json(_bytes(line.get("request")))
        body = _bytes(line.get("response"))
        streamed = "text/event-stream" in line.get("response_headers", {}).get("content-type", "")
        heard = dialect_messages.Heard()
        is_messages = line["path"].partition("?")[0].endswith("/v1/messages")
        if is_messages:
            heard = (
                dialect_messages.hear_stream(body)
                if streamed
                else dialect_messages.hear_json(_json(body) or {})
            )
        error = line.get("error") or heard.error
        status = line.get("status")
        if error is None and status is not None and status >= 400:
            error = f"HTTP {status}"
        first = line.get("first_byte")
        return CallRecord(
            seq=line["seq"],
            session=self.session,
            turn=turn,
            route=line["route"],
            dialect=Dialect.MESSAGES if is_messages else None,
            method=line["method"],
            path=line["path"],
            model=heard.model or (request or {}).get("model", ""),
            streamed=streamed,
            status=status,
            request=request,
            response={"content": heard.content, "stop_reason": heard.stop_reason} if heard.content else None,
            text=heard.text,
            tool_calls=heard.tool_calls,
            usage=heard.usage,
            raw_usage=tuple(heard.raw_usage),
            finish_reason=heard.stop_reason,
            sampling={k: request[k] for k in dialect_messages.SAMPLING if k in request} if request else {},
            start_real_ns=line["start"]["real_ns"],
            first_byte_real_ns=first["real_ns"] if first else None,
            end_real_ns=line["end"]["real_ns"],
            start_sim_ns=self._sim_of_mono(line["start"]["mono_ns"]),
            first_byte_sim_ns=self._sim_of_mono(first["mono_ns"]) if first else None,
            end_sim_ns=self._sim_of_mono(line["end"]["mono_ns"]),
            truncated=streamed and not heard.complete,
            error=error,
        )


def _bytes(kept: Any) -> bytes:
    if not kept:
        return b""
    if "base64" in kept:
        return base64.b64decode(kept["base64"])
    return str(kept["text"]).encode()


def _json(data: bytes) -> JsonDict | None:
    try:
        body = json.loads(data)
    except ValueError:
        return None
    return body if isinstance(body, dict) else None
