"""Signals: what a harness is seen to do, decoded from its own output by its `AgentChannel`."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from sclate_adapters.base import Record
from sclate_adapters.errors import FailureClass


class Alive(Record):
    """The harness can take input."""

    signal: Literal["alive"] = "alive"


class TurnStarted(Record):
    """A turn began; `trigger` says why: `user`, `own` for one that nobody sent, `alarm` for one that a schedule
    of the harness's own rang for (then it may come as a second word about a turn that began as `own`)."""

    signal: Literal["turn_started"] = "turn_started"
    trigger: str = "user"


class Consumed(Record):
    """Deliveries that the harness has taken up, by `Delivery.id`."""

    signal: Literal["consumed"] = "consumed"
    ids: tuple[str, ...]


class TurnFinished(Record):
    """The harness's last word of a turn. `stop` is its own reason (`end_turn`, `max_calls`, `error`)."""

    signal: Literal["turn_finished"] = "turn_finished"
    text: str
    stop: str = "end_turn"


class Idle(Record):
    """The harness's own statement that it waits for input."""

    signal: Literal["idle"] = "idle"


class BackgroundTask(Record):
    """A background task of the harness started or ended; while one runs the agent is not idle."""

    signal: Literal["background_task"] = "background_task"
    id: str
    running: bool


class CronSet(Record):
    """The agent asked to be woken: a five-field cron expression in an IANA zone, once if not `recurring`.

    Schedules with the same `id` replace one another.
    """

    signal: Literal["cron_set"] = "cron_set"
    id: str
    cron: str
    zone: str
    prompt: str
    recurring: bool = True


class CronCleared(Record):
    signal: Literal["cron_cleared"] = "cron_cleared"
    id: str


class Failed(Record):
    """The harness reports a failure of its own; the turn in progress fails with this class."""

    signal: Literal["failed"] = "failed"
    failure: FailureClass
    message: str


Signal = Annotated[
    Alive | TurnStarted | Consumed | TurnFinished | Idle | BackgroundTask | CronSet | CronCleared | Failed,
    Field(discriminator="signal"),
]
