"""The conversation with Claude Code over its pipes: stream-json, one JSON object a line (2.1.332).

What it says of itself, in the order of a turn: `session_state_changed running`, `command_lifecycle queued`
and `started` (the message is now part of the model's input), `init`, `assistant` and `user` messages,
`result`, `session_state_changed idle` once its queue is empty. A `result` is not paired with an input: one
may answer several. Background tasks outlive `idle`; `task_started` and `task_notification` bracket them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any, Literal
from uuid import NAMESPACE_OID, uuid5

from sclate_adapters.agent import AgentChannel, StopRequest
from sclate_adapters.errors import FailureClass
from sclate_adapters.records import Delivery
from sclate_adapters.signals import (
    Alive,
    BackgroundTask,
    Consumed,
    Failed,
    Idle,
    Signal,
    TurnFinished,
    TurnStarted,
)

HELLO = "hello"
TASK_ENDED = ("completed", "failed", "killed", "stopped", "cancelled")
LOGIN = ("Please run /login", "Invalid API key", "OAuth token")


class ClaudeCodeChannel(AgentChannel):
    """State: which deliveries wait to be consumed, by the uuid that they were sent with."""

    def __init__(self) -> None:
        self._waiting: dict[str, Delivery] = {}

    def greeting(self) -> bytes:
        """It says nothing before its first input; this request it answers once it is up."""
        return _line({"type": "control_request", "request_id": HELLO, "request": {"subtype": "initialize"}})

    def encode(self, delivery: Delivery) -> bytes:
        uuid = str(uuid5(NAMESPACE_OID, delivery.id))
        self._waiting[uuid] = delivery
        return _line(
            {"type": "user", "uuid": uuid, "message": {"role": "user", "content": delivery.text}},
        )

    def stop(self) -> StopRequest:
        """The end of its input: it finishes the turn and goes; later it is killed with its tree."""
        return StopRequest(how="close_stdin", grace_s=10.0)

    def decode(self, stream: Literal["stdout", "stderr"], line: bytes) -> Iterable[Signal]:
        if stream != "stdout":
            return ()
        try:
            event = json.loads(line)
            return tuple(self._signals(event)) if isinstance(event, dict) else ()
        except (ValueError, KeyError, TypeError, AttributeError):
            return ()  # the agent's own processes can write here too

    def _signals(self, event: dict[str, Any]) -> Iterator[Signal]:
        match event["type"], event.get("subtype"):
            case "control_response", _ if event["response"].get("request_id") == HELLO:
                yield Alive()
            case "command_lifecycle", _ if event["state"] in ("started", "completed", "cancelled"):
                yield from self._consumed([event["command_uuid"]])
            case "user", _ if event.get("isReplay"):
                yield from self._consumed(self._replayed(event))
            case "system", "session_state_changed":
                if event["state"] == "running":
                    yield TurnStarted(trigger="user" if self._waiting else "own")
                elif event["state"] == "idle":
                    yield Idle()
            case "system", "task_started":
                yield BackgroundTask(id=event["task_id"], running=True)
            case "system", "task_notification":
                yield BackgroundTask(id=event["task_id"], running=False)
            case "system", "task_updated" if (event.get("patch") or {}).get("status") in TASK_ENDED:
                yield BackgroundTask(id=event["task_id"], running=False)
            case "result", _:
                yield from _result(event)

    def _consumed(self, uuids: Iterable[str]) -> Iterator[Signal]:
        ids = tuple(self._waiting.pop(uuid).id for uuid in uuids if uuid in self._waiting)
        if ids:
            yield Consumed(ids=ids)

    def _replayed(self, event: dict[str, Any]) -> list[str]:
        """Messages that were merged into one come back as one, with an uuid of its own."""
        if event.get("uuid") in self._waiting:
            return [event["uuid"]]
        content = event["message"]["content"]
        text = content if isinstance(content, str) else "\n".join(b.get("text", "") for b in content)
        return [uuid for uuid, delivery in self._waiting.items() if delivery.text in text]


def _result(event: dict[str, Any]) -> Iterator[Signal]:
    """An answer, or the harness's word that the model gave none: that can come as a success, too."""
    text = event.get("result") or ""
    if event.get("is_error") or text.startswith("API Error"):
        failure = FailureClass.SUBSTRATE if any(word in text for word in LOGIN) else FailureClass.MODEL
        message = text or "; ".join(map(str, event.get("errors") or ())) or str(event.get("subtype"))
        yield Failed(failure=failure, message=message[:2000])
    stop = event.get("stop_reason") if event.get("subtype") == "success" else event.get("subtype")
    yield TurnFinished(text=_whole(text), stop=str(stop or "end_turn"))


def _whole(text: str) -> str:
    """Half of a surrogate pair is in JSON, but no text: it is written out."""
    return text.encode("utf-8", "backslashreplace").decode()


def _line(record: dict[str, Any]) -> bytes:
    return json.dumps(record).encode() + b"\n"
