"""Protects the laws of the scheduler: total order, deltas, leases, one end for every event."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sclate.clock import HybridClock, Motion
from sclate.errors import InvariantError, StalledError
from sclate.scheduler import Scheduler
from sclate_adapters.effects import AsyncReserve
from sclate_adapters.events import Event, EventEnd, Origin, Outcome, Phase, SourceContext, Steps, Topic

from .kit import DONE, T0, FunctionSource, MemoryTrace, S, hook, run

plans = st.lists(
    st.tuples(
        st.integers(0, 3),  # due
        st.sampled_from(list(Phase)),
        st.integers(0, 2),  # which source
    ),
    max_size=25,
)


@given(plans)
@settings(deadline=None, max_examples=60)
def test_order_is_due_phase_rank_seq(plan: list[tuple[int, Phase, int]]) -> None:
    """Whatever the order of registration, dispatches follow the documented key."""

    def make(n: int) -> FunctionSource:
        def steps(ctx: SourceContext) -> Steps:
            ends = [
                ctx.at(T0 + due * S, phase, hook(), kind="k").ended for due, phase, src in plan if src == n
            ]
            yield ctx.all_of(ends)

        return FunctionSource(steps, f"s{n}")

    _, trace = run(*[make(n) for n in (2, 0, 1)])
    seqs: Counter[int] = Counter()
    expected = []
    for due, phase, src in plan:
        seqs[src] += 1
        expected.append((T0 + due * S, int(phase), src, seqs[src]))
    got = [
        (x["due_sim_ns"], int(Phase[x["phase"].upper()]), int(x["source"][1]), int(x["event"].split(":")[1]))
        for x in trace.of("dispatch")
    ]
    assert got == sorted(expected)


def test_origin_comes_before_name_in_rank() -> None:
    def steps(ctx: SourceContext) -> Steps:
        yield ctx.at(T0 + S, Phase.USER, hook(), kind="k").ended

    _, trace = run(
        FunctionSource(steps, "a", Origin.AGENT),
        FunctionSource(steps, "z", Origin.SHARED),
        FunctionSource(steps, "m", Origin.BENCHMARK),
    )
    assert [x["source"] for x in trace.of("dispatch")] == ["z", "m", "a"]


def test_an_earlier_phase_at_the_same_instant_gets_the_next_delta() -> None:
    def steps(ctx: SourceContext) -> Steps:
        yield ctx.at(T0 + S, Phase.GRADING, hook("late"), kind="late").ended
        yield ctx.at(ctx.now, Phase.WORLD, hook("early"), kind="early").ended
        yield ctx.at(ctx.now, Phase.GRADING, hook("again"), kind="again").ended

    _, trace = run(FunctionSource(steps))
    assert [(x["kind"], x["delta"]) for x in trace.of("dispatch")] == [
        ("late", 0),
        ("early", 1),
        ("again", 1),
    ]


def test_a_source_that_talks_to_itself_is_an_error() -> None:
    def steps(ctx: SourceContext) -> Steps:
        for n in itertools.count():
            yield ctx.at(T0 + S, Phase.WORLD if n % 2 else Phase.USER, hook(), kind="k").ended

    with pytest.raises(InvariantError, match="1000 deltas"):
        run(FunctionSource(steps))


def test_time_jumps_over_a_month_without_real_time() -> None:
    def steps(ctx: SourceContext) -> Steps:
        yield ctx.at(T0 + 30 * 86400 * S, Phase.USER, hook(), kind="k").ended

    scheduler, trace = run(FunctionSource(steps), timeout_s=2)
    assert scheduler.clock.now() == T0 + 30 * 86400 * S
    assert trace.of("dispatch")[0]["lateness_ns"] == 0


class Gate:
    """A runner whose effects end when the test says; `flow` effects hold a lease meanwhile."""

    def __init__(self, clock: HybridClock) -> None:
        self.clock = clock
        self.scheduler: Any = None
        self.jumps_under_lease = 0

    async def _reserved(self, event: Event) -> EventEnd:
        with self.clock.flow(event.id):
            await asyncio.sleep(0.05)
        return DONE

    def start(self, event: Event) -> Any:
        if event.kind == "flowing":
            return self._reserved(event)
        return DONE


def test_no_jump_while_a_lease_is_held_and_events_fire_when_due() -> None:
    """The flowing effect takes 50 ms; an event 20 ms later is dispatched while it runs, in real time."""
    clock = HybridClock(T0)
    changes: list[tuple[str, int]] = []
    clock.on_change.append(lambda change, now: changes.append((change, now)))

    def steps(ctx: SourceContext) -> Steps:
        slow = ctx.at(T0 + S, Phase.WORLD, AsyncReserve(hook="slow"), kind="flowing")
        near = ctx.at(T0 + S + 20_000_000, Phase.USER, hook(), kind="near")
        far = ctx.at(T0 + 100 * S, Phase.USER, hook(), kind="far")
        yield ctx.all_of([slow.ended, near.ended, far.ended])

    _, trace = run(FunctionSource(steps), runner=Gate(clock), clock=clock)
    near = next(x for x in trace.of("dispatch") if x["kind"] == "near")
    ended = next(x for x in trace.of("effect.end") if x["event"] == "test:1")
    assert near["sim_ns"] < ended["sim_ns"] < T0 + 2 * S
    jumps = [now for change, now in changes if change == "jump"]
    assert jumps == [T0 + S, T0 + 100 * S]


def test_a_holding_effect_keeps_the_next_phase_back() -> None:
    """A world update that takes real time is complete before the session of the same instant starts."""

    class Slow:
        async def _slow(self) -> EventEnd:
            await asyncio.sleep(0.03)
            return DONE

        def start(self, event: Event) -> Any:
            return self._slow() if event.kind == "world" else DONE

    def steps(ctx: SourceContext) -> Steps:
        a = ctx.at(T0 + S, Phase.SESSION, hook(), kind="session")
        b = ctx.at(T0 + S, Phase.WORLD, hook(), kind="world")
        yield ctx.all_of([a.ended, b.ended])

    _, trace = run(FunctionSource(steps), runner=Slow())
    order = [(x["type"], x["event"]) for x in trace.lines if x["type"] in ("dispatch", "effect.end")]
    assert order == [
        ("dispatch", "test:2"),
        ("effect.end", "test:2"),
        ("dispatch", "test:1"),
        ("effect.end", "test:1"),
    ]


@given(st.lists(st.integers(0, 5), min_size=1, max_size=12), st.data())
@settings(deadline=None, max_examples=40)
def test_every_event_ends_exactly_once(dues: list[int], data: st.DataObject) -> None:
    cancel = data.draw(st.sets(st.integers(0, len(dues) - 1)))

    def steps(ctx: SourceContext) -> Steps:
        entries = [ctx.at(T0 + (d + 1) * S, Phase.USER, hook(), kind="k") for d in dues]
        for n in cancel:
            assert entries[n].cancel("test")
            assert not entries[n].cancel("again")
        ends = yield ctx.all_of([e.ended for e in entries])
        outcomes = [ends[e.ended].outcome for e in entries]
        assert [o is Outcome.CANCELLED for o in outcomes] == [n in cancel for n in range(len(dues))]

    _, trace = run(FunctionSource(steps))
    assert Counter(x["event"] for x in trace.of("effect.end")) == {
        f"test:{n + 1}": 1 for n in range(len(dues))
    }


def test_an_event_whose_parent_never_comes_expires() -> None:
    def steps(ctx: SourceContext) -> Steps:
        ctx.after([ctx.fact(Topic.JUDGMENT, "never")], 5, Phase.USER, hook(), kind="orphan")
        child = ctx.after([ctx.fact(Topic.TURN_STARTED, "t")], 5 * S, Phase.USER, hook(), kind="child")
        yield ctx.until(T0 + S)
        ctx.publish(Topic.TURN_STARTED, "t", ctx.now)
        end = yield child.ended
        assert end.ok
        assert ctx.now == T0 + 6 * S

    _, trace = run(FunctionSource(steps))
    last = trace.of("effect.end")[-1]
    assert (last["event"], last["outcome"], last["reason"]) == ("test:1", "expired", "parent not reached")


def test_waiting_for_what_cannot_come_is_reported() -> None:
    def steps(ctx: SourceContext) -> Steps:
        yield ctx.fact(Topic.JUDGMENT, "never")

    with pytest.raises(StalledError, match="patient"):
        run(FunctionSource(steps, "patient"))


def test_daemons_do_not_keep_a_life_going() -> None:
    def forever(ctx: SourceContext) -> Steps:
        while True:
            yield ctx.at(ctx.now + S, Phase.AGENT, hook(), kind="tick").ended

    def short(ctx: SourceContext) -> Steps:
        yield ctx.at(T0 + 3 * S, Phase.USER, hook(), kind="k").ended

    _, trace = run(
        FunctionSource(forever, "forever", Origin.AGENT, daemon=True), FunctionSource(short, "short")
    )
    assert sum(x["kind"] == "tick" for x in trace.of("dispatch")) == 2
    assert trace.of("effect.end")[-1]["outcome"] == "cancelled"


def test_stop_ends_everything_that_is_left() -> None:
    clock = HybridClock(T0)

    class Stopper(Gate):
        def start(self, event: Event) -> Any:
            if event.kind == "stop":
                self.scheduler.stop("interrupted")
            return super().start(event)

    def steps(ctx: SourceContext) -> Steps:
        ctx.at(T0 + S, Phase.WORLD, AsyncReserve(hook="slow"), kind="flowing")
        ctx.at(T0 + S, Phase.USER, hook(), kind="stop")
        yield ctx.at(T0 + 9 * S, Phase.USER, hook(), kind="never").ended

    _, trace = run(FunctionSource(steps), runner=Stopper(clock), clock=clock)
    ends = {x["event"]: x["outcome"] for x in trace.of("effect.end")}
    assert ends == {"test:1": "cancelled", "test:2": "done", "test:3": "cancelled"}
    assert clock.motion is Motion.IDLE


def test_same_seed_same_trace() -> None:
    def steps(ctx: SourceContext) -> Steps:
        for _ in range(20):
            yield ctx.at(ctx.now + ctx.rng.randrange(S), ctx.rng.choice(list(Phase)), hook(), kind="k").ended

    def once() -> MemoryTrace:
        return run(FunctionSource(steps, "a"), FunctionSource(steps, "b"))[1]

    assert once().lines == once().lines


def test_work_beside_the_loop_ends_with_it_and_its_error_is_the_runs() -> None:
    ended = []

    def steps(ctx: SourceContext) -> Steps:
        slow = ctx.at(T0 + S, Phase.WORLD, AsyncReserve(hook="slow"), kind="flowing")
        yield slow.ended

    async def watch() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            ended.append(True)

    async def broken() -> None:
        raise LookupError("the watcher broke")

    def lived(work: Any) -> None:
        async def main() -> None:
            clock = HybridClock(T0)
            scheduler = Scheduler(clock, Gate(clock), MemoryTrace())
            scheduler.add_sources([FunctionSource(steps)])
            scheduler.beside(work)
            async with asyncio.timeout(20):
                await scheduler.run()

        asyncio.run(main())

    lived(watch)
    assert ended == [True]
    with pytest.raises(LookupError, match="the watcher broke"):
        lived(broken)
