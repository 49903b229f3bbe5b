"""The conversation with Claude Code over its pipes: stream-json, one JSON object a line (2.1.332).

What it says of itself, in the order of a turn: `session_state_changed running`, `command_lifecycle queued`
and `started` (the message is now part of the model's input, each its own also where several are merged into
one), `init`, `assistant` and `user` messages, `result`, `session_state_changed idle` once its queue is empty.
A `result` is not paired with an input: one may answer several. Background tasks outlive `idle`; `task_started`
and `task_notification` bracket them. What its own scheduler starts is a `command_lifecycle` with a
`wakeup_source`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any, Literal
from uuid import NAMESPACE_OID, uuid5

from sclate_adapters.agent import AgentChannel, StopRequest
from sclate_adapters.base import whole_text
from sclate_adapters.errors import FailureClass
from sclate_adapters.records import Delivery
from sclate_adapters.signals import (
    Alive,
    BackgroundTask,
    Consumed,
    CronCleared,
    CronSet,
    Failed,
    Idle,
    Signal,
    TurnFinished,
    TurnStarted,
)

HELLO = "hello"
TASK_ENDED = ("completed", "failed", "killed", "stopped", "cancelled")
NO_SUCH_SHAPE = (ValueError, KeyError, TypeError, AttributeError, RecursionError)
"""What is raised over JSON that is none, or is built in another way or too deep."""
LOGIN = ("Please run /login", "Invalid API key", "OAuth token")


class ClaudeCodeChannel(AgentChannel):
    """State: which deliveries wait to be consumed, by the uuid that they were sent with; which schedules the
    agent asked for, by the id of the tool call, and which are set, by their own.

    Args:
        zone: the IANA zone in which the harness reads cron expressions, its process's own.
        tasks_file: where it keeps the durable ones.
    """

    def __init__(self, zone: str = "UTC", tasks_file: str = "/work/.claude/scheduled_tasks.json") -> None:
        self.zone = zone
        self.tasks_file = tasks_file
        self._waiting: dict[str, Delivery] = {}
        self._asked: dict[str, dict[str, Any]] = {}
        self._set: set[str] = set()

    def greeting(self) -> bytes:
        """It says nothing before its first input; this request it answers once it is up."""
        return _line({"type": "control_request", "request_id": HELLO, "request": {"subtype": "initialize"}})

    def encode(self, delivery: Delivery) -> bytes:
        uuid = str(uuid5(NAMESPACE_OID, delivery.id))
        self._waiting[uuid] = delivery
        return _line(
            {"type": "user", "uuid": uuid, "message": {"role": "user", "content": delivery.text}},
        )

    def interrupt(self) -> bytes:
        return _line(
            {"type": "control_request", "request_id": "interrupt", "request": {"subtype": "interrupt"}}
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
        except NO_SUCH_SHAPE:
            return ()  # the agent's own processes can write here too

    def _signals(self, event: dict[str, Any]) -> Iterator[Signal]:
        match event["type"], event.get("subtype"):
            case "control_response", _ if event["response"].get("request_id") == HELLO:
                yield Alive()
            case "command_lifecycle", _ if event["state"] == "started" and "wakeup_source" in event:
                yield TurnStarted(trigger="alarm")
            case "assistant" | "user", _:
                for block in _blocks(event):
                    yield from self._schedules(block, event.get("tool_use_result"))
            case "command_lifecycle", _ if event["state"] == "started":
                delivery = self._waiting.pop(event["command_uuid"], None)
                if delivery is not None:
                    yield Consumed(ids=(delivery.id,))
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

    def _schedules(self, block: dict[str, Any], outcome: Any) -> Iterator[Signal]:
        """Calls of the tools that set and clear schedules, once they have succeeded."""
        if block.get("type") == "tool_use" and block["name"] in ("CronCreate", "CronDelete"):
            self._asked[block["id"]] = block
        elif block.get("type") == "tool_result" and block["tool_use_id"] in self._asked:
            call = self._asked.pop(block["tool_use_id"])
            if block.get("is_error") or not isinstance(outcome, dict):
                return
            asked = call["input"]
            if call["name"] == "CronDelete":
                self._set.discard(asked["id"])
                yield CronCleared(id=asked["id"])
            else:
                yield self._cron_set(outcome["id"], asked)

    def _cron_set(self, id_: str, job: dict[str, Any]) -> CronSet:
        recurring = bool(job.get("recurring", True))
        job_set = CronSet(
            id=id_, cron=job["cron"], zone=self.zone, prompt=whole_text(job["prompt"]), recurring=recurring
        )
        self._set.add(id_)
        return job_set

    def stores(self) -> tuple[str, ...]:
        return (self.tasks_file,)

    def read_store(self, path: str, data: bytes | None) -> Iterable[Signal]:
        """What the session leaves: schedules of its memory alone have died with it."""
        try:
            jobs = {str(job["id"]): job for job in json.loads(data or b"{}").get("tasks", ())}
            kept = [self._cron_set(id_, job) for id_, job in jobs.items() if id_ not in self._set]
        except NO_SUCH_SHAPE:
            jobs, kept = {}, []  # damaged by the agent: the harness starts without schedules, too
        return [*kept, *(CronCleared(id=id_) for id_ in sorted(self._set - set(jobs)))]


def _blocks(event: dict[str, Any]) -> list[dict[str, Any]]:
    content = event["message"]["content"]
    return [] if isinstance(content, str) else [block for block in content if isinstance(block, dict)]


def _result(event: dict[str, Any]) -> Iterator[Signal]:
    """An answer, or the harness's word that the model gave none: that can come as a success, too. An agent
    may well begin its own answer with the same words; then the turn ended as the model wished."""
    text = event.get("result") or ""
    reason = str(event.get("terminal_reason"))
    if reason.startswith("aborted"):  # only an interrupt of ours does that
        yield TurnFinished(text=whole_text(text), stop="interrupted")
        return
    gave_none = reason == "api_error" or (
        text.startswith("API Error") and event.get("stop_reason") != "end_turn"
    )
    if event.get("is_error") or gave_none:
        failure = FailureClass.SUBSTRATE if any(word in text for word in LOGIN) else FailureClass.MODEL
        message = text or "; ".join(map(str, event.get("errors") or ())) or str(event.get("subtype"))
        yield Failed(failure=failure, message=message[:2000])
    stop = event.get("stop_reason") if event.get("subtype") == "success" else event.get("subtype")
    yield TurnFinished(text=whole_text(text), stop=str(stop or "end_turn"))


def _line(record: dict[str, Any]) -> bytes:
    return json.dumps(record).encode() + b"\n"
