"""The engine's end of the line to a sandbox's init: requests, answers, events, reconnection.

Requests that change something carry a sequence number and are appended to `inbox.jsonl` before they are
sent; init numbers its events and keeps them in `outbox.jsonl`. So after a cut each side knows what the
other has.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sclate.sandbox.protocol import SandboxError

Event = dict[str, Any]

ANSWERS = {"started", "killed", "pong", "ps", "stats", "hello"}
LINE_LIMIT = 64 << 20


def to_text(data: bytes) -> str:
    """Bytes as JSON can carry them, any bytes, to the byte."""
    return data.decode("utf-8", "surrogateescape")


def to_bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


class InitChannel:
    """One sandbox's line.

    Args:
        ctl: host side of the control directory.
        on_event: gets every event that is no answer to a request (`out`, `dead`, `exit`, `error`).
    """

    def __init__(self, ctl: Path, on_event: Callable[[Event], None]) -> None:
        self._ctl = ctl
        self._on_event = on_event
        self._seq = 0
        self.last_event = 0
        self._waiting: dict[tuple[str, str | None], asyncio.Future[Event]] = {}
        self._writer: asyncio.StreamWriter | None = None
        self._reading: asyncio.Task[None] | None = None
        self._inbox = os.open(ctl / "inbox.jsonl", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    async def connect(self, timeout_s: float) -> None:
        """Connect, or connect again, and go on after the last event that was seen.

        Raises:
            SandboxError: init does not answer in time.
        """
        path = str(self._ctl / "init.sock")
        try:
            async with asyncio.timeout(timeout_s):
                while True:
                    try:
                        reader, self._writer = await asyncio.open_unix_connection(path, limit=LINE_LIMIT)
                        break
                    except (FileNotFoundError, ConnectionRefusedError):
                        await asyncio.sleep(0.005)  # the socket is not there before init listens
                self._reading = asyncio.create_task(self._read(reader), name="init channel")
                await self.ask("hello", "hello", after=self.last_event, timeout_s=timeout_s)
        except TimeoutError:
            raise SandboxError(f"init did not answer within {timeout_s:g} s") from None

    async def disconnect(self) -> None:
        """Close the connection; init keeps what happens meanwhile."""
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.gather(self._reading, return_exceptions=True)
            self._reading = None
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    async def close(self) -> None:
        await self.disconnect()
        self._fail(SandboxError("the sandbox was closed"))
        if self._inbox >= 0:
            os.close(self._inbox)
            self._inbox = -1

    def send(self, op: str, **fields: Any) -> None:
        """Send a request that changes something; recorded first."""
        self._seq += 1
        self._write({"seq": self._seq, "op": op, **fields}, record=True)

    async def tell(self, op: str, **fields: Any) -> None:
        """`send`, then wait until the line takes more."""
        self.send(op, **fields)
        if self._writer is not None:
            await self._writer.drain()

    async def ask(
        self, op: str, answer: str, *, key: str | None = None, timeout_s: float, **fields: Any
    ) -> Event:
        """Send and wait for the answering event (with the same `id`, where it has one).

        Raises:
            SandboxError: no answer in time, or the line is gone.
        """
        future: asyncio.Future[Event] = asyncio.get_running_loop().create_future()
        self._waiting[answer, key] = future
        if key is not None:
            fields["id"] = key
        try:
            if op in ("hello", "ping", "ps", "stats"):
                self._write({"op": op, **fields}, record=False)
            else:
                self.send(op, **fields)
            async with asyncio.timeout(timeout_s):
                return await future
        except TimeoutError:
            raise SandboxError(f"init did not answer {op!r} within {timeout_s:g} s") from None
        finally:
            self._waiting.pop((answer, key), None)

    def _write(self, request: dict[str, Any], *, record: bool) -> None:
        line = json.dumps(request, separators=(",", ":")).encode() + b"\n"
        if record:
            os.write(self._inbox, line)
        if self._writer is None or self._writer.is_closing():
            raise SandboxError("the line to init is gone")
        self._writer.write(line)

    async def _read(self, reader: asyncio.StreamReader) -> None:
        try:
            while line := await reader.readline():
                event = json.loads(line)
                self.last_event = event["n"]
                kind = event["ev"]
                waiting = self._waiting.get((kind, event.get("id"))) if kind in ANSWERS else None
                if waiting is not None and not waiting.done():
                    waiting.set_result(event)
                else:
                    self._on_event(event)
        except (OSError, ValueError) as error:
            self._fail(SandboxError(f"the line to init broke: {error}"))
            return
        self._fail(SandboxError("init is gone"))

    def _fail(self, error: SandboxError) -> None:
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_exception(error)
        self._on_event({"ev": "gone", "message": error.message})
