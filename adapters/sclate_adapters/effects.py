"""The six primitives by which a dispatched event acts on the world.

Effects are data: the engine's runner carries them out, and each leaves its start and its end in the trace.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field

from sclate_adapters.base import DurationNs, JsonDict, Record, SimNs
from sclate_adapters.records import Delivery


class SessionPlan(Record):
    """One session as planned: a life span of the harness process, always a new conversation.

    `wake`: opened for a job while no session was open; it holds no benchmark turns and is counted apart.
    `handoff`: a system message that announces the end, delivered before the harness is asked to stop.
    """

    id: str
    start_ns: SimNs
    wake: bool = False
    handoff: str | None = None
    title: str = ""


class Place(StrEnum):
    """Where a hook runs. `host` hooks may touch state only through their context."""

    HOST = "host"
    SANDBOX = "sandbox"
    GRADER = "grader"


class Owner(StrEnum):
    """Whose callback a hook is."""

    BENCHMARK = "benchmark"
    AGENT = "agent"
    MEMORY = "memory"


class Deliver(Record):
    """Hand a delivery to the agent without blocking, also in the middle of a turn.

    Ends `done` when the harness consumes it; `failed` as undelivered or uncertain. Its result is
    `{"state": DeliveryState}`.
    """

    primitive: Literal["Deliver"] = "Deliver"
    delivery: Delivery


class RunHook(Record):
    """Call an adapter's `hook(name, ctx, args)` while simulated time stands still (or flows, `flow=True`).

    `repeatable`: may be called again on resume without harm. The result is what the hook returned.
    """

    primitive: Literal["RunHook"] = "RunHook"
    owner: Owner = Owner.BENCHMARK
    hook: str
    args: JsonDict = Field(default_factory=dict)
    place: Place = Place.HOST
    repeatable: bool = True
    flow: bool = False
    timeout_s: float = Field(60.0, gt=0, description="real seconds")


class AsyncReserve(Record):
    """Run an asynchronous hook under a flow lease: time flows while it runs and the loop is not blocked."""

    primitive: Literal["AsyncReserve"] = "AsyncReserve"
    owner: Owner = Owner.BENCHMARK
    hook: str
    args: JsonDict = Field(default_factory=dict)
    place: Place = Place.HOST
    repeatable: bool = True
    timeout_s: float = Field(600.0, gt=0, description="real seconds")


class Wakeup(StrEnum):
    """`ALARM`: the harness begins a turn by its own schedule; time flows for it until it does."""

    ALIVE = "alive"
    IDLE = "idle"
    ALARM = "alarm"


class AwaitWakeup(Record):
    """Wait until the agent is alive, is idle, or an alarm of its own rings; with both deadlines."""

    primitive: Literal["AwaitWakeup"] = "AwaitWakeup"
    session: str
    until: Wakeup
    sim_timeout_ns: DurationNs = Field(description="simulated ns after dispatch; then `expired`")
    real_timeout_s: float = Field(gt=0)


class StartAgent(Record):
    """Start harness and memory system in the sandbox, from the durable state of the last boundary."""

    primitive: Literal["StartAgent"] = "StartAgent"
    session: SessionPlan


class ShutdownAgent(Record):
    """Ask harness and memory to stop, wait, kill the whole process tree, prove it gone, save the state."""

    primitive: Literal["ShutdownAgent"] = "ShutdownAgent"
    session: str
    reason: str = "session end"


Effect = Annotated[
    Deliver | RunHook | AsyncReserve | AwaitWakeup | StartAgent | ShutdownAgent,
    Field(discriminator="primitive"),
]
