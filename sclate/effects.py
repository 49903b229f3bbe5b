"""The runner of effects: what each of the six primitives does to a life."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import TYPE_CHECKING, Any

import structlog

from sclate.clock import Charge
from sclate.errors import FailureClass, LifeFailure
from sclate.scheduler import Parking
from sclate_adapters.effects import (
    AsyncReserve,
    AwaitWakeup,
    Deliver,
    Owner,
    Place,
    RunHook,
    ShutdownAgent,
    StartAgent,
    Wakeup,
)
from sclate_adapters.events import Event, EventEnd, Outcome
from sclate_adapters.judgments import Subject
from sclate_adapters.records import Delivery, DeliveryState
from sclate_adapters.sources.grading import GRADE_HOOK

if TYPE_CHECKING:
    from sclate.life import Life
    from sclate.session import LiveSession

log = structlog.get_logger()


def failed(failure: FailureClass, message: str) -> EventEnd:
    return EventEnd(outcome=Outcome.FAILED, reason=f"{failure}: {message}", result={"failure": failure.value})


class EffectRunner:
    """Carries out the effects of one life."""

    def __init__(self, life: Life) -> None:
        self._life = life
        self.deliveries: list[Delivery] = []
        """All that were to be handed over, for the account at the end."""

    def start(self, event: Event) -> Awaitable[EventEnd]:
        """Begin the effect of a dispatched event."""
        effect = event.effect
        work: Coroutine[Any, Any, EventEnd]
        match effect:
            case Deliver():
                work = self._deliver(effect)
            case RunHook(hook=name, owner=Owner.BENCHMARK) if name == GRADE_HOOK:
                work = self._grade(effect)
            case RunHook():
                work = self._run_hook(effect)
            case AsyncReserve():
                work = self._async_reserve(effect)
            case AwaitWakeup():
                work = self._await_wakeup(effect)
            case StartAgent():
                work = self._start_agent(effect)
            case ShutdownAgent():
                work = self._shutdown_agent(effect)
        return self._recorded(work)

    async def _recorded(self, work: Coroutine[Any, Any, EventEnd]) -> EventEnd:
        """A failure that has a class is the event's end; any other exception is a bug and ends the run."""
        try:
            end = await work
        except LifeFailure as error:
            end = failed(error.failure, error.message)
        await self._life.refresh_world()
        return end

    async def _deliver(self, effect: Deliver) -> EventEnd:
        self.deliveries.append(effect.delivery)
        session = self._life.session_of(effect.delivery.session)
        if session is None:
            self._life.log.delivery(effect.delivery, DeliveryState.UNDELIVERED)
            return failed(FailureClass.SUBSTRATE, "undelivered: the session is not open")
        state = await session.deliver(effect.delivery)
        if state is DeliveryState.DELIVERED:
            return EventEnd(outcome=Outcome.DONE, result={"state": state.value})
        failure, message = session.failure or (FailureClass.SUBSTRATE, "the session is closing")
        return EventEnd(
            outcome=Outcome.FAILED,
            reason=f"{state.value}: {message}",
            result={"state": state.value, "failure": failure.value},
        )

    async def _grade(self, effect: RunHook) -> EventEnd:
        subject = Subject.model_validate(effect.args["subject"])
        with self._life.clock.freeze(f"grading {subject.key}", Charge.HOOKS):
            limit_s = min(effect.timeout_s, self._life.settings.grade_s)
            judgment = await self._life.grading.judge(subject, limit_s)
        self._life.record_judgment(judgment)
        return EventEnd(outcome=Outcome.DONE, result={"subject": subject.key, "passed": judgment.passed})

    async def _run_hook(self, effect: RunHook) -> EventEnd:
        reason = f"hook {effect.hook}"
        lease = (
            self._life.clock.flow(reason) if effect.flow else self._life.clock.freeze(reason, Charge.HOOKS)
        )
        with lease:
            return await self._call_hook(effect, flowing=effect.flow)

    async def _async_reserve(self, effect: AsyncReserve) -> EventEnd:
        with self._life.clock.flow(f"asynchronous hook {effect.hook}"):
            return await self._call_hook(effect, flowing=True)

    async def _call_hook(self, effect: RunHook | AsyncReserve, *, flowing: bool) -> EventEnd:
        owner = self._life.hook_owner(effect.owner)
        boundary = FailureClass.MEMORY if effect.owner is Owner.MEMORY else FailureClass.BENCHMARK
        sandbox = await self._life.place(effect.place) if effect.place is not Place.HOST else None
        context = self._life.hook_context(sandbox, flowing=flowing)
        try:
            async with asyncio.timeout(effect.timeout_s):
                result = await owner.hook(effect.hook, context, dict(effect.args))
        except TimeoutError:
            return failed(boundary, f"hook {effect.hook} took more than {effect.timeout_s:g} s")
        except LifeFailure:
            raise
        except Exception as error:
            log.exception("hook failed", hook=effect.hook, owner=effect.owner.value)
            return failed(boundary, f"hook {effect.hook}: {type(error).__name__}: {error}")
        return EventEnd(outcome=Outcome.DONE, result=result or {})

    async def _await_wakeup(self, effect: AwaitWakeup) -> EventEnd:
        scheduler = self._life.scheduler
        now = scheduler.timeline.now_ns
        session = self._life.session_of(effect.session)
        if session is None:
            return failed(FailureClass.SUBSTRATE, f"session {effect.session} is not open")
        if effect.until is Wakeup.ALARM:
            return await self._await_alarm(session, effect, now)
        reached = session.alive if effect.until is Wakeup.ALIVE else session.settled
        if not reached:
            waiting = session.on_alive if effect.until is Wakeup.ALIVE else session.on_settled
            await self._await_session(waiting, effect, now)
        if session.failure is not None:
            self._life.session_failed(session)
            return failed(*session.failure)
        if not (session.alive if effect.until is Wakeup.ALIVE else session.settled):
            message = f"session {effect.session} is not {effect.until} in time"
            session.fail(FailureClass.TIMEOUT, message)
            self._life.session_failed(session)
            return EventEnd(outcome=Outcome.EXPIRED, reason=message)
        return EventEnd(outcome=Outcome.DONE)

    async def _await_alarm(self, session: LiveSession, effect: AwaitWakeup, now: int) -> EventEnd:
        """Let time flow, so that the harness's own schedule can ring."""
        rang = session.take_early_alarm()
        if not rang:
            with self._life.clock.flow(f"an alarm of the agent's own in session {effect.session}"):
                rang = await self._await_session(session.on_alarm, effect, now)
        if not rang:
            return EventEnd(outcome=Outcome.EXPIRED, reason="the harness did not ring")
        return EventEnd(outcome=Outcome.DONE)

    async def _await_session(
        self, waiting: list[Callable[[], None]] | list[Callable[[bool], None]], effect: AwaitWakeup, now: int
    ) -> Any:
        """Park until the session says so or one of the deadlines passes; returns what it says."""
        parking = Parking(self._life.scheduler)
        waiting.append(parking.wake)
        sim = self._life.scheduler.call_at(now + effect.sim_timeout_ns, parking.wake)
        limit_s = effect.real_timeout_s
        if effect.until is Wakeup.ALIVE:
            limit_s = min(limit_s, self._life.settings.start_s)
        real = asyncio.get_running_loop().call_later(limit_s, parking.wake)
        try:
            return await parking.wait()
        finally:
            sim.cancelled = True
            real.cancel()

    async def _start_agent(self, effect: StartAgent) -> EventEnd:
        with self._life.clock.freeze(f"start of session {effect.session.id}", Charge.SESSIONS):
            await self._life.open_session(effect.session)
        return EventEnd(outcome=Outcome.DONE)

    async def _shutdown_agent(self, effect: ShutdownAgent) -> EventEnd:
        record = await self._life.close_session(effect.session)
        if record is None:
            return EventEnd(outcome=Outcome.CANCELLED, reason="the session never opened")
        return EventEnd(outcome=Outcome.DONE, result={"after": record.after.model_dump(mode="json")})
