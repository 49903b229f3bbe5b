"""Model calls as the clock sees them: latency policy, and waits that are the provider's and not the agent's.

Under the policy `real` a call takes what it takes. Under `fixed=S` its completion is an instant of the
timeline, `S` after its start: time stands still while the model answers in reality, then jumps (other
events that are due fire first), and only then the end of the response is let go. Waiting out a provider's
rate limit or fault freezes time under every policy, within the harness's own request timeout.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from dataclasses import dataclass

from sclate.clock import Charge, Lease
from sclate.errors import FailureClass, PrerequisiteError
from sclate.gateway import CallOutcome, CallTicket
from sclate.scheduler import Scheduler
from sclate.session import LiveSession
from sclate_adapters.base import seconds


def parse_latency(policy: str) -> int | None:
    """`real` -> None, `fixed=S` -> S in ns.

    Raises:
        PrerequisiteError: anything else.
    """
    if policy == "real":
        return None
    kind, _, value = policy.partition("=")
    try:
        if kind == "fixed" and 0 <= float(value) < math.inf:
            return seconds(float(value))
    except ValueError:
        pass
    raise PrerequisiteError(
        f"unknown latency policy {policy!r}",
        "the policy decides how long a model call takes in simulated time",
        "--set clock.latency=real or --set clock.latency=fixed=2",
    )


@dataclass
class _Call:
    start_ns: int
    freeze: Lease | None = None
    waiting: Lease | None = None


class ModelCalls:
    """Observes the gateway for one life (`sclate.gateway.CallObserver`).

    Args:
        session: the live session, if any.
        latency_ns: simulated length of a call, or None for the real one.
        limit_s: real seconds that a freeze may last while a call is under way.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        session: Callable[[], LiveSession | None],
        *,
        latency_ns: int | None,
        limit_s: float,
    ) -> None:
        self.started = 0
        self.finished = 0
        self.retries = 0
        self._scheduler = scheduler
        self._clock = scheduler.clock
        self._session = session
        self._latency_ns = latency_ns
        self._limit_s = limit_s
        self._calls: dict[int, _Call] = {}

    def in_flight(self) -> int:
        return len(self._calls)

    async def call_started(self, ticket: CallTicket) -> None:
        self.started += 1
        call = self._calls[ticket.id] = _Call(self._clock.now())
        if self._latency_ns is not None:
            call.freeze = self._clock.freeze_lease(f"model call {ticket.id}", Charge.MODEL, self._limit_s)

    async def upstream_waiting(self, ticket: CallTicket) -> None:
        call = self._calls[ticket.id]
        self.retries += 1
        if call.waiting is None:
            call.waiting = self._clock.freeze_lease(
                f"provider, call {ticket.id}", Charge.MODEL, self._limit_s
            )

    async def upstream_resumed(self, ticket: CallTicket) -> None:
        self._end_waiting(self._calls[ticket.id])

    async def release(self, ticket: CallTicket) -> None:
        """Return when the end of the response may be let go."""
        call = self._calls[ticket.id]
        if self._latency_ns is None or call.freeze is None:
            return
        session = self._session()
        flow = session.flow_lease if session else None
        due = call.start_ns + self._latency_ns
        there: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def arrived() -> None:
            if flow is not None and not flow.released:
                self._clock.resume(flow)
            if not there.done():
                there.set_result(None)

        if flow is not None:
            self._clock.suspend(flow)
        alarm = self._scheduler.call_at(due, arrived)
        self._end_freeze(call)
        try:
            await there
        finally:
            if not there.done() or there.cancelled():
                alarm.cancelled = True
                arrived()

    async def call_finished(self, ticket: CallTicket, outcome: CallOutcome) -> None:
        call = self._calls.pop(ticket.id)
        self._end_waiting(call)
        self._end_freeze(call)
        self.finished += 1
        session = self._session()
        if session is not None:
            if outcome.error is not None:
                message = f"model call failed: {outcome.error}"
                self._scheduler.arrive(
                    lambda: session.fail_turn(FailureClass.MODEL, message, recoverable=True)
                )
            elif outcome.status is not None:  # answered, not hung up on
                self._scheduler.arrive(session.recover_turn)
            session.on_call_finished()

    def _end_waiting(self, call: _Call) -> None:
        if call.waiting is not None:
            self._end(call.waiting)
            call.waiting = None

    def _end_freeze(self, call: _Call) -> None:
        if call.freeze is not None:
            self._end(call.freeze)
            call.freeze = None

    def _end(self, lease: Lease) -> None:
        self._clock.release(lease)
        session = self._session()
        if lease.expired and session is not None:
            session.fail_turn(FailureClass.MODEL, f"{lease.reason}: no answer within {self._limit_s:g} s")
