"""Model calls on the clock: what they cost in simulated time, and when they fail the turn."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from sclate.clock import HybridClock, Motion
from sclate.errors import PrerequisiteError
from sclate.gateway import CallOutcome, CallTicket, Gateway
from sclate.model_calls import ModelCalls, parse_latency
from sclate.models.scripted import ScriptedModel
from sclate.scheduler import Scheduler
from sclate.session import LiveSession
from sclate_adapters.effects import SessionPlan
from sclate_adapters.errors import FailureClass
from sclate_adapters.events import Phase, SourceContext, Steps, Topic
from sclate_adapters.records import Delivery, DeliveryState, TurnRecord
from sclate_adapters.signals import Signal, TurnStarted
from sclate_agents.harness.reference.adapter import ReferenceChannel
from tests.capture.test_gateway import KEYLESS, opened
from tests.engine.kit import T0, FakeMonotonic, FunctionSource, MemoryTrace, NullRunner, S, hook

ONE, TWO = (CallTicket(n, "agent", "/v1/messages") for n in (1, 2))
ANSWERED = CallOutcome(200)
LIMIT_S = 60


class Life:
    """A scheduler on a clock that the test moves, with a live session in the middle of a turn."""

    def __init__(self, latency_ns: int | None, due_s: tuple[int, ...]) -> None:
        self.mono = FakeMonotonic()
        self.clock = HybridClock(T0, self.mono)
        self.trace = MemoryTrace()
        self.scheduler = Scheduler(self.clock, NullRunner(), self.trace)
        self.calls = ModelCalls(self.scheduler, lambda: self.session, latency_ns=latency_ns, limit_s=LIMIT_S)
        self.session = LiveSession(
            SessionPlan(id="s1", start_ns=T0),
            ReferenceChannel(),
            self.scheduler,
            self,
            turn_timeout_s=60,
            in_flight=self.calls.in_flight,
            calls=lambda: self.calls.started,
        )
        self.turns: list[TurnRecord] = []
        self.begun = asyncio.Event()
        self._due_s = due_s

    def signal(self, session: str, signal: Signal) -> None:
        if isinstance(signal, TurnStarted):
            self.begun.set()

    def delivery(self, delivery: Delivery, state: DeliveryState) -> None:
        return

    def turn(self, record: TurnRecord) -> None:
        self.turns.append(record)

    def says(self, *lines: bytes) -> None:
        self.session.on_output("stdout", lines, 0)

    def source(self, ctx: SourceContext) -> Steps:
        for due in self._due_s:
            ctx.at(T0 + due * S, Phase.WORLD, hook(), kind=f"due {due}")
        yield ctx.fact(Topic.TURN_SETTLED, "s1/own-1")

    @property
    def now_s(self) -> float:
        return (self.clock.now() - T0) / S

    @property
    def dispatched(self) -> list[str]:
        return [line["kind"] for line in self.trace.of("dispatch")]

    async def until(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 10
        while not condition():
            assert time.monotonic() < deadline
            await asyncio.sleep(0)  # one turn of the event loop, in which scheduler and gateway go on


Play = Callable[[Life], Awaitable[None]]


def live(play: Play, latency_s: int | None = None, due_s: tuple[int, ...] = ()) -> tuple[Life, TurnRecord]:
    """One turn in which `play` stands for the gateway; returns how it settled."""

    async def main() -> Life:
        life = Life(None if latency_s is None else latency_s * S, due_s)

        async def agent() -> None:
            await life.begun.wait()
            await play(life)
            life.says(b'{"type":"idle"}')

        life.scheduler.add_sources([FunctionSource(life.source)])
        life.says(b'{"type":"alive"}', b'{"type":"turn_started","trigger":"user"}')
        async with asyncio.timeout(20), asyncio.TaskGroup() as group:
            group.create_task(agent())
            group.create_task(life.scheduler.run())
        return life

    life = asyncio.run(main())
    assert life.calls.in_flight() == 0
    assert life.clock.holders() == []
    (record,) = life.turns
    return life, record


async def call(life: Life, ticket: CallTicket = ONE, real_s: int = 0) -> None:
    """A call that its model answers after so many real seconds."""
    await life.calls.call_started(ticket)
    life.mono.ns += real_s * S
    await life.calls.release(ticket)
    await life.calls.call_finished(ticket, ANSWERED)


# --- latency ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("real_s", [0, 2, 700])
def test_a_call_of_fixed_length_ends_then_however_long_it_took(real_s: int) -> None:
    async def play(life: Life) -> None:
        await life.calls.call_started(ONE)
        life.mono.ns += real_s * S
        assert life.now_s == 0
        assert life.dispatched == []
        await life.calls.release(ONE)
        assert life.now_s == 5
        assert life.dispatched == ["due 3"]  # what is due in between comes first, what is due later does not
        await life.calls.call_finished(ONE, ANSWERED)

    life, record = live(play, latency_s=5, due_s=(3, 8))
    assert [line["lateness_ns"] for line in life.trace.of("dispatch")] == [0, 0]
    assert (record.ended_sim_ns - T0, record.calls, record.failure) == (5 * S, 1, None)


def test_calls_of_fixed_length_follow_each_other_and_tools_take_their_time() -> None:
    async def play(life: Life) -> None:
        await call(life, ONE, real_s=9)
        assert life.clock.motion is Motion.FLOW
        life.mono.ns += 2 * S  # a tool at work
        assert life.now_s == 7
        await call(life, TWO, real_s=9)
        assert life.now_s == 12

    _, record = live(play, latency_s=5)
    assert record.calls == 2


def test_two_calls_at_once_end_together() -> None:
    async def play(life: Life) -> None:
        await life.calls.call_started(ONE)
        await life.calls.call_started(TWO)
        first = asyncio.ensure_future(life.calls.release(ONE))
        await life.until(lambda: life.scheduler.timeline.head() is not None)
        assert life.now_s == 0  # the other model has not answered yet
        assert not first.done()
        await life.calls.release(TWO)
        await first
        assert life.now_s == 5
        await life.calls.call_finished(ONE, ANSWERED)
        await life.calls.call_finished(TWO, ANSWERED)

    live(play, latency_s=5)


def test_a_call_of_real_length_takes_what_it_takes() -> None:
    async def play(life: Life) -> None:
        await call(life, real_s=3)
        assert life.now_s == 3

    live(play)


@pytest.mark.parametrize(
    ("policy", "ns"), [("real", None), ("fixed=2", 2 * S), ("fixed=0.5", S // 2), ("fixed=0", 0)]
)
def test_policies(policy: str, ns: int | None) -> None:
    assert parse_latency(policy) == ns


@pytest.mark.parametrize(
    "policy", ["", "Real", "fixed", "fixed=", "fixed=x", "fixed=-1", "fixed=nan", "fixed=inf", "real=2"]
)
def test_a_policy_that_is_none_is_the_users_to_mend(policy: str) -> None:
    with pytest.raises(PrerequisiteError, match="unknown latency policy"):
        parse_latency(policy)


# --- faults -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("latency_s", [None, 5])
def test_waiting_for_a_provider_takes_no_time(latency_s: int | None) -> None:
    async def play(life: Life) -> None:
        await life.calls.call_started(ONE)
        for _ in range(2):
            await life.calls.upstream_waiting(ONE)
            life.mono.ns += 20 * S
            assert life.now_s == 0
            assert any("provider" in holder.reason for holder in life.clock.holders())
            await life.calls.upstream_resumed(ONE)
        await life.calls.release(ONE)
        assert life.now_s == (latency_s or 0)
        await life.calls.call_finished(ONE, ANSWERED)

    life, record = live(play, latency_s)
    assert life.calls.retries == 2
    assert record.failure is None


@pytest.mark.parametrize("latency_s", [None, 5])
def test_time_does_not_stand_still_for_ever(latency_s: int | None) -> None:
    """A harness whose own request timer runs out must not hang: the turn fails as the model's."""

    async def play(life: Life) -> None:
        await life.calls.call_started(ONE)
        if latency_s is None:
            await life.calls.upstream_waiting(ONE)
        life.mono.ns += LIMIT_S * S
        life.scheduler.arrive(lambda: None)  # the loop looks at the clock
        await life.until(lambda: bool(life.trace.of("clock")))
        assert life.clock.motion is Motion.FLOW
        life.mono.ns += 7 * S
        assert life.now_s == 7
        if latency_s is None:
            await life.calls.upstream_resumed(ONE)
        await life.calls.release(ONE)
        assert life.now_s == 7
        await life.calls.call_finished(ONE, ANSWERED)

    life, record = live(play, latency_s)
    assert life.trace.of("clock")[0]["change"] == "freeze_expired"
    assert record.failure is FailureClass.MODEL
    assert "no answer within 60 s" in record.failure_message


def test_a_call_that_failed_fails_its_turn() -> None:
    async def play(life: Life) -> None:
        await life.calls.call_started(ONE)
        await life.calls.call_finished(ONE, CallOutcome(529, retries=5, error="overloaded"))

    _, record = live(play, latency_s=5)
    assert record.failure is FailureClass.MODEL
    assert record.failure_message == "model call failed: overloaded"
    assert record.ended_sim_ns == T0


def test_a_harness_that_tries_again_and_is_answered_has_not_failed() -> None:
    async def play(life: Life) -> None:
        await life.calls.call_started(ONE)
        await life.calls.call_finished(ONE, CallOutcome(200, retries=0, error="the stream broke off"))
        await call(life, CallTicket(**{**vars(ONE), "id": ONE.id + 1}))

    _, record = live(play)
    assert (record.failure, record.failure_message) == (None, "")


def test_a_turn_does_not_settle_while_a_call_is_in_flight() -> None:
    async def play(life: Life) -> None:
        await life.calls.call_started(ONE)
        life.says(b'{"type":"idle"}')
        seen = asyncio.Event()
        life.scheduler.arrive(seen.set)  # comes after what was said
        await life.until(seen.is_set)
        assert life.turns == []
        await life.calls.release(ONE)
        await life.calls.call_finished(ONE, ANSWERED)
        await life.until(lambda: bool(life.turns))

    live(play)


# --- callers that go away -----------------------------------------------------------------------------------


def test_a_caller_that_goes_away_takes_its_instant_with_it() -> None:
    async def play(life: Life) -> None:
        await life.calls.call_started(ONE)
        await life.calls.call_started(TWO)
        held = asyncio.ensure_future(life.calls.release(ONE))
        await life.until(lambda: life.scheduler.timeline.head() is not None)
        held.cancel()
        with pytest.raises(asyncio.CancelledError):
            await held
        assert life.scheduler.timeline.head() is None
        await life.calls.upstream_waiting(TWO)
        await life.calls.call_finished(ONE, CallOutcome(None))
        await life.calls.call_finished(TWO, CallOutcome(None))
        assert life.clock.motion is Motion.FLOW

    _, record = live(play, latency_s=5)
    assert record.ended_sim_ns == T0
    assert record.failure is None


@pytest.mark.parametrize("latency_s", [None, 5])
@pytest.mark.parametrize("step", [{"delay_s": 60}, {"status": 429}])
def test_a_caller_that_hangs_up_at_the_gateway_leaves_nothing_behind(
    tmp_path: Path, latency_s: int | None, step: dict[str, Any]
) -> None:
    async def play(life: Life) -> None:
        async with opened(Gateway(KEYLESS, ScriptedModel([step] * 9), life.calls), tmp_path) as client:
            asked = asyncio.ensure_future(client.post())
            busy = "status" in step
            await life.until(lambda: life.calls.retries == 1 if busy else life.calls.in_flight() == 1)
            asked.cancel()
            await life.until(lambda: life.calls.in_flight() == 0)

    life, record = live(play, latency_s)
    assert record.failure is None
    assert (life.calls.started, life.calls.finished) == (1, 1)
