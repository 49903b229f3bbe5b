"""Sessions open and close: the two shared sources that hold the agent's seat."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from typing import Any

import simpy

from sclate_adapters.base import NS_PER_S
from sclate_adapters.effects import AwaitWakeup, Deliver, SessionPlan, ShutdownAgent, StartAgent, Wakeup
from sclate_adapters.events import (
    EventEnd,
    EventSource,
    Origin,
    Phase,
    PlannedEvent,
    SourceContext,
    Steps,
    Topic,
    Wait,
)
from sclate_adapters.records import Delivery, DeliveryKind

ALIVE_SIM_TIMEOUT_NS = 300 * NS_PER_S
ALIVE_REAL_TIMEOUT_S = 3_600.0
"""An outer bound: a run's `budgets.start_s` decides."""


def open_session(ctx: SourceContext, plan: SessionPlan) -> Generator[Wait, Any, EventEnd]:
    """Start the agent and wait until it is alive; returns the `EventEnd` of the step that decided.

    The caller holds the seat. The session is published as open by the engine once the harness is alive.
    """
    start = ctx.at(plan.start_ns, Phase.SESSION, StartAgent(session=plan), kind="session.start")
    end: EventEnd = yield start.ended
    if not end.ok:
        return end
    alive = ctx.at(
        ctx.now,
        Phase.SESSION,
        AwaitWakeup(
            session=plan.id,
            until=Wakeup.ALIVE,
            sim_timeout_ns=ALIVE_SIM_TIMEOUT_NS,
            real_timeout_s=ALIVE_REAL_TIMEOUT_S,
        ),
        kind="session.alive",
        parent=start,
    )
    end = yield alive.ended
    return end


def close_session(ctx: SourceContext, plan: SessionPlan, reason: str) -> Generator[Wait, Any, EventEnd]:
    """Two stages: the handoff notice, then the shutdown once the agent settled."""
    if plan.handoff is not None and ctx.known(Topic.SESSION_OPEN, plan.id):
        key = f"{plan.id}/handoff"
        notice = ctx.at(
            ctx.now,
            Phase.SESSION,
            Deliver(
                delivery=Delivery(
                    id=key, kind=DeliveryKind.SYSTEM, session=plan.id, text=plan.handoff, turn=key
                )
            ),
            kind="session.handoff",
        )
        told: EventEnd = yield notice.ended
        if told.ok:
            yield ctx.fact(Topic.TURN_SETTLED, key)
    stop = ctx.at(ctx.now, Phase.SESSION, ShutdownAgent(session=plan.id, reason=reason), kind="session.stop")
    end: EventEnd = yield stop.ended
    return end


class SessionStartSource(EventSource):
    """Opens each planned session at its instant, once the seat is free.

    The seat is handed over to `SessionEndSource`, which frees it; both sources share one object of this
    class. A session that does not come up is closed at once, so that whoever waits for it goes on.
    """

    origin = Origin.SHARED

    def __init__(self, sessions: Sequence[SessionPlan], name: str = "session_start") -> None:
        self.name = name
        self.sessions = tuple(sessions)
        self.seats: dict[str, simpy.resources.resource.Request] = {}

    def run(self, ctx: SourceContext) -> Steps:
        for plan in self.sessions:
            yield ctx.until(plan.start_ns)
            seat = ctx.seat.request()
            yield seat
            self.seats[plan.id] = seat
            end = yield from open_session(ctx, plan)
            if not end.ok and not ctx.known(Topic.SESSION_WORK_DONE, plan.id):
                ctx.publish(Topic.SESSION_WORK_DONE, plan.id)
            yield ctx.fact(Topic.SESSION_CLOSED, plan.id)

    def planned(self) -> Iterable[PlannedEvent]:
        for plan in self.sessions:
            yield PlannedEvent(
                due_ns=plan.start_ns,
                source=self.name,
                origin=self.origin,
                kind="session.start",
                phase=Phase.SESSION,
                label=plan.title or plan.id,
            )


class SessionEndSource(EventSource):
    """Closes each planned session when its work is done, and frees the seat."""

    origin = Origin.SHARED

    def __init__(self, starts: SessionStartSource, name: str = "session_end") -> None:
        self.name = name
        self.starts = starts

    def run(self, ctx: SourceContext) -> Steps:
        for plan in self.starts.sessions:
            yield ctx.fact(Topic.SESSION_WORK_DONE, plan.id)
            yield from close_session(ctx, plan, "work done")
            yield ctx.fact(Topic.SESSION_CLOSED, plan.id)
            ctx.seat.release(self.starts.seats.pop(plan.id))
