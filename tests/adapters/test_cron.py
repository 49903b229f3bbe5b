"""Protects recurring wake-ups: DST laws, missed-run policies, replacement, one-off wake-ups."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from itertools import islice, pairwise
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sclate_adapters.events import Event, EventEnd, EventSource, Outcome, Phase, SourceContext, Steps, Topic
from sclate_adapters.signals import CronSet
from sclate_adapters.sources import CronSource, MissedRuns, Schedule, WakeupSource
from sclate_adapters.sources.cron import cron_instants
from tests.engine.kit import DONE, FunctionSource, hook, run

S = 1_000_000_000
ZONES = ["Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Shanghai", "America/Sao_Paulo"]


def ns(text: str, zone: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)).timestamp()) * S


def local(instant: int, zone: str) -> str:
    return datetime.fromtimestamp(instant // S, ZoneInfo(zone)).isoformat()


def test_a_time_that_does_not_exist_runs_once_at_the_end_of_the_gap() -> None:
    """02:30 on 30 March 2031 does not exist in Berlin; the clock goes from 02:00 to 03:00."""
    after = ns("2031-03-29T12:00", "Europe/Berlin")
    got = [local(i, "Europe/Berlin") for i in islice(cron_instants("30 2 * * *", "Europe/Berlin", after), 3)]
    assert got == ["2031-03-30T03:00:00+02:00", "2031-03-31T02:30:00+02:00", "2031-04-01T02:30:00+02:00"]


def test_a_time_that_comes_twice_runs_once() -> None:
    after = ns("2031-10-25T12:00", "Europe/Berlin")
    got = [local(i, "Europe/Berlin") for i in islice(cron_instants("30 2 * * *", "Europe/Berlin", after), 2)]
    assert got == ["2031-10-26T02:30:00+02:00", "2031-10-27T02:30:00+01:00"]


@given(
    st.sampled_from(ZONES),
    st.integers(0, 23),
    st.integers(0, 59),
    st.integers(0, 400),
    st.integers(0, 86_399),
)
@settings(deadline=None, max_examples=80)
def test_a_daily_job_runs_once_on_every_local_day(
    zone: str, hour: int, minute: int, day: int, at: int
) -> None:
    """Whatever the zone and the transition: one run for each wall-clock day, strictly increasing."""
    start = int(datetime(2031, 1, 1, tzinfo=UTC).timestamp() + day * 86_400 + at) * S
    instants = list(islice(cron_instants(f"{minute} {hour} * * *", zone, start), 12))
    assert all(b > a for a, b in zip([start, *instants], instants, strict=False))
    days = Counter(datetime.fromtimestamp(i // S, ZoneInfo(zone)).date() for i in instants)
    first = min(days)
    # A gap may move a late-evening run past midnight in zones that change at midnight; never in these.
    assert days == Counter(first + timedelta(n) for n in range(12))


@given(st.sampled_from(ZONES), st.sampled_from([5, 10, 15, 30]), st.integers(0, 400), st.integers(0, 86_399))
@settings(deadline=None, max_examples=60)
def test_a_step_follows_elapsed_time(zone: str, step: int, day: int, at: int) -> None:
    """`*/step` never skips or doubles an interval, transitions included."""
    start = int(datetime(2031, 1, 1, tzinfo=UTC).timestamp() + day * 86_400 + at) * S
    instants = list(islice(cron_instants(f"*/{step} * * * *", zone, start), 200))
    assert {b - a for a, b in pairwise(instants)} == {step * 60 * S}
    assert 0 < instants[0] - start <= step * 60 * S


class Wake:
    """A runner for crons: sessions open and close at once; a delivery takes `busy_s` simulated seconds."""

    def __init__(self, busy_ns: int) -> None:
        self.busy_ns = busy_ns
        self.scheduler: Any = None
        self.delivered: list[str] = []

    def start(self, event: Event) -> Any:
        return self._run(event)

    async def _run(self, event: Event) -> EventEnd:
        from sclate_adapters.events import Topic

        board, effect = self.scheduler.board, event.effect
        if event.kind == "session.alive":
            board.publish(Topic.SESSION_OPEN, effect.session, None)
        elif event.kind == "session.stop":
            board.publish(Topic.SESSION_CLOSED, effect.session, None)
        elif hasattr(effect, "delivery"):
            self.delivered.append(effect.delivery.id)
            await self.scheduler.sleep_until(self.scheduler.clock.now() + self.busy_ns)
            board.publish(Topic.TURN_SETTLED, effect.delivery.turn, None)
        return DONE


def lived(source: EventSource, runner: Wake, until: int) -> Any:
    def wait(ctx: SourceContext) -> Steps:
        yield ctx.at(until, Phase.BOOKKEEPING, hook(), kind="end").ended

    from sclate.clock import HybridClock

    return run(source, FunctionSource(wait, "end"), runner=runner, clock=HybridClock(START))[1]


START = ns("2031-03-03T00:30", "Europe/Berlin")
HOURLY = {"id": "h", "cron": "0 * * * *", "zone": "Europe/Berlin", "prompt": "digest"}


@pytest.mark.parametrize(
    ("missed", "runs", "skipped"),
    [(MissedRuns.EACH, 3, 0), (MissedRuns.ONCE, 3, 1), (MissedRuns.SKIP, 2, 2)],
)
def test_missed_runs_follow_the_policy_and_are_counted(missed: MissedRuns, runs: int, skipped: int) -> None:
    """Each run takes 100 minutes, so the next hour is missed; due at 1, 2, 3, 4, lived from 00:30 to 04:30.

    each: 1:00, 2:40 for 2, 4:20 for 3. once: 1:00, 2:40 for 2, 4:20 for 3 and 4. skip: 1:00, 3:00.
    """
    source = CronSource([Schedule(**HOURLY, missed=missed)])
    runner = Wake(100 * 60 * S)
    trace = lived(source, runner, START + 4 * 3600 * S)
    assert runner.delivered == [f"cron-h-{n + 1}" for n in range(runs)]
    assert source.skipped.get("h", 0) == skipped
    assert len(trace.of("note")) == skipped, "a skipped run is in the trace"


def test_a_schedule_that_can_never_run_is_in_the_trace() -> None:
    """An agent can ask for one; nothing happens, as on a desk, and the record says why."""

    def ask(ctx: SourceContext) -> Steps:
        yield ctx.until(START + 1)  # the other source listens by then
        signal = CronSet(id="never", cron="0 0 30 2 *", zone="UTC", prompt="x")
        ctx._scheduler.board.tell(Topic.SIGNAL, ("s", signal))  # type: ignore[attr-defined]
        yield ctx.until(START + 10**9)

    from sclate.clock import HybridClock

    trace = run(CronSource(), FunctionSource(ask, "ask"), clock=HybridClock(START))[1]
    (note,) = trace.of("note")
    assert note["source"] == "cron"
    assert "never can never run" in note["text"]


def test_a_single_wake_up_opens_a_session_at_its_instant() -> None:
    source = WakeupSource(START + 7 * S, "look after the boats")
    runner = Wake(S)
    trace = lived(source, runner, START + 60 * S)
    assert runner.delivered == ["wakeup"]
    starts = [x["due_sim_ns"] for x in trace.of("dispatch") if x["kind"] == "session.start"]
    assert starts == [START + 7 * S]


def test_the_clock_stops_at_each_due_time_and_a_wake_session_opens() -> None:
    source = CronSource([Schedule(**HOURLY)])
    trace = lived(source, Wake(S), START + 3 * 3600 * S)
    starts = [x for x in trace.of("dispatch") if x["kind"] == "session.start"]
    assert [local(x["due_sim_ns"], "Europe/Berlin")[11:16] for x in starts] == ["01:00", "02:00", "03:00"]
    assert all(x["lateness_ns"] == 0 for x in starts)
    ends = Counter(x["outcome"] for x in trace.of("effect.end"))
    assert set(ends) <= {Outcome.DONE, Outcome.CANCELLED}


def test_a_wrong_expression_is_refused() -> None:
    with pytest.raises(ValueError):
        next(cron_instants("61 * * * *", "Europe/Berlin", START))
    with pytest.raises(ValueError):
        next(cron_instants("x y", "Europe/Berlin", START))
