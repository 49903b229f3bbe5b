"""Wake-ups of the agent's own: recurring (`CronSource`) and one-off (`WakeupSource`)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Literal
from zoneinfo import ZoneInfo

import simpy
from croniter import croniter
from pydantic import Field

from sclate_adapters.base import NS_PER_S, Record, SimNs
from sclate_adapters.effects import Deliver, Owner, RunHook, SessionPlan
from sclate_adapters.events import EventSource, Origin, Phase, SourceContext, Steps, Topic
from sclate_adapters.records import Delivery, DeliveryKind
from sclate_adapters.signals import CronCleared, CronSet
from sclate_adapters.sources.session import close_session, open_session


class MissedRuns(StrEnum):
    """What happens to a run that became due while the one before it was still under way."""

    EACH = "each"
    ONCE = "once"
    SKIP = "skip"


class Schedule(Record):
    """A recurring job: five-field cron expression, read on the wall clock of an IANA zone.

    `needs`: what must be alive. With `harness`, a wake session is opened when no session is open. With
    `nothing` the job is the memory system's hook named by `prompt`.
    """

    id: str
    cron: str
    zone: str
    prompt: str
    missed: MissedRuns = MissedRuns.ONCE
    needs: Literal["harness", "nothing"] = "harness"
    from_ns: SimNs | None = Field(None, description="no run at or before this instant")


def cron_instants(cron: str, zone: str, after_ns: SimNs) -> Iterator[SimNs]:
    """Due instants strictly after `after_ns`.

    A job at fixed local times (plain hour and minute fields) runs once for each of its wall-clock times a
    day, also where DST makes that time occur twice (the first counts) or never (the instant at which the
    gap ends counts). A job with a step or a star in its minute or hour field follows elapsed time: every
    instant whose wall clock matches.

    Raises:
        ValueError: no expression of five fields, or one at random times.
        KeyError, OSError: an unknown zone.
    """
    tz = ZoneInfo(zone)
    fields = cron.split()
    if len(fields) != 5 or any(re.match(r"[hr](?![a-z])", field, re.IGNORECASE) for field in fields):
        raise ValueError(f"{cron!r} is no cron expression of five fields")  # croniter knows more than cron
    minute, hour = fields[:2]
    fixed = "*" not in minute + hour
    last = after_ns
    if not fixed:
        yield from _elapsed_instants(cron, tz, after_ns)
        return
    # Walk naive wall-clock time, starting a day early so that a repeated hour is not skipped, then map.
    wall = datetime.fromtimestamp(after_ns // NS_PER_S, tz).replace(tzinfo=None) - timedelta(days=1)
    for due in _walk(cron, wall):
        instant = _first_instant(due, tz)
        if instant > last:
            last = instant
            yield instant


def _walk(cron: str, wall: datetime) -> Iterator[datetime]:
    """Wall-clock times of an expression. The zone attached is only a label for croniter."""
    it = croniter(cron, wall.replace(tzinfo=UTC), ret_type=datetime)
    while True:
        yield it.get_next(datetime).replace(tzinfo=None)


def _first_instant(wall: datetime, tz: ZoneInfo) -> SimNs:
    """The first instant at which a clock in `tz` shows `wall`; in a gap, the instant at which it ends."""
    aware = wall.replace(tzinfo=tz, fold=0)
    back = aware.astimezone(UTC).astimezone(tz).replace(tzinfo=None)
    if back != wall:
        # In a gap: fold 0 reads it with the offset before, fold 1 with the offset after the change; the
        # gap ends at the wall time that the old offset shows for the first valid instant.
        before = aware.utcoffset()
        after = wall.replace(tzinfo=tz, fold=1).utcoffset()
        assert before is not None
        assert after is not None
        low = int((wall - after).replace(tzinfo=UTC).timestamp())
        high = int((wall - before).replace(tzinfo=UTC).timestamp())
        while low < high:  # first second that has the new offset
            mid = (low + high) // 2
            if datetime.fromtimestamp(mid, tz).utcoffset() == after:
                high = mid
            else:
                low = mid + 1
        return low * NS_PER_S
    return int(aware.timestamp()) * NS_PER_S


def _elapsed_instants(cron: str, tz: ZoneInfo, after_ns: SimNs) -> Iterator[SimNs]:
    """Every instant whose wall clock matches: offsets are walked one stretch of constant offset at a time."""
    at = after_ns // NS_PER_S
    while True:
        offset = datetime.fromtimestamp(at, tz).utcoffset()
        assert offset is not None
        wall = (datetime.fromtimestamp(at, UTC) + offset).replace(tzinfo=None)
        due_wall = next(_walk(cron, wall))
        due = int((due_wall - offset).replace(tzinfo=UTC).timestamp())
        change = _next_change(at, due, tz)
        if change is None:
            at = due
            yield at * NS_PER_S
        else:
            # The offset changes on the way: go on from just before the change, in the new offset.
            at = change - 1
            offset = datetime.fromtimestamp(change, tz).utcoffset()
            assert offset is not None
            wall = (datetime.fromtimestamp(change, UTC) + offset).replace(tzinfo=None)
            due_wall = next(_walk(cron, wall - timedelta(seconds=1)))
            at = int((due_wall - offset).replace(tzinfo=UTC).timestamp())
            yield at * NS_PER_S


def _next_change(low: int, high: int, tz: ZoneInfo) -> int | None:
    """First second in (low, high] with another UTC offset than at `low`, looked for day by day."""
    start = datetime.fromtimestamp(low, tz).utcoffset()
    step = low
    while step < high:
        nxt = min(step + 86_400, high)
        if datetime.fromtimestamp(nxt, tz).utcoffset() != start:
            a, b = step, nxt
            while b - a > 1:
                mid = (a + b) // 2
                if datetime.fromtimestamp(mid, tz).utcoffset() == start:
                    a = mid
                else:
                    b = mid
            return b
        step = nxt
    return None


def wake_session(ctx: SourceContext, session: str, title: str, deliver: Callable[[str], Delivery]) -> Steps:
    """Open a wake session, hand over one delivery, wait until it settled, close it.

    Wake sessions hold the seat, so they never overlap with a session of the benchmark.
    """
    with ctx.seat.request() as seat:
        yield seat
        plan = SessionPlan(id=session, start_ns=ctx.now, wake=True, title=title)
        end = yield from open_session(ctx, plan)
        if end.ok:
            delivery = deliver(session)
            sent = ctx.at(ctx.now, Phase.AGENT, Deliver(delivery=delivery), kind="agent.wakeup")
            end = yield sent.ended
            if end.ok and delivery.turn is not None:
                yield ctx.fact(Topic.TURN_SETTLED, delivery.turn)
        yield from close_session(ctx, plan, "wake session over")
        yield ctx.fact(Topic.SESSION_CLOSED, session)


class CronSource(EventSource):
    """Fires the schedules that the agent sets (`CronSet`, `CronCleared`) and those given beforehand.

    The clock stops at each due time. A run that is due while the one before is under way follows the
    schedule's `missed` policy; how many were skipped is counted in `skipped`. A schedule of the agent that
    can never run (no cron expression, no zone, 30 February) does nothing, like on a deployed machine;
    `refused` says why, and so does the trace. A daemon: a recurring job does not keep a life going.
    """

    origin = Origin.AGENT
    daemon = True

    def __init__(
        self,
        schedules: Sequence[Schedule] = (),
        *,
        missed: MissedRuns = MissedRuns.ONCE,
        name: str = "cron",
    ) -> None:
        self.name = name
        self.schedules = tuple(schedules)
        self.missed = missed
        self.skipped: dict[str, int] = {}
        self.refused: dict[str, str] = {}
        self._runs: dict[str, int] = {}
        """Runs so far by schedule id; a schedule that replaces another goes on counting."""

    def run(self, ctx: SourceContext) -> Steps:
        signals = ctx.stream(Topic.SIGNAL)
        jobs: dict[str, simpy.Process] = {}
        session = OpenSession(ctx)
        for schedule in self.schedules:
            jobs[schedule.id] = ctx.process(self._job(ctx, schedule, session))
        while True:
            _, signal = yield signals.get()
            if isinstance(signal, CronSet | CronCleared):
                old = jobs.pop(signal.id, None)
                if old is not None and old.is_alive:
                    old.interrupt("replaced")
            if isinstance(signal, CronSet):
                schedule = Schedule(
                    id=signal.id,
                    cron=signal.cron,
                    zone=signal.zone,
                    prompt=signal.prompt,
                    missed=self.missed,
                    from_ns=ctx.now,
                )
                if not self._can_run(schedule, ctx.now):
                    ctx.note(f"schedule {schedule.id} can never run: {self.refused[schedule.id]}")
                    continue
                jobs[signal.id] = ctx.process(self._job(ctx, schedule, session))

    def _can_run(self, schedule: Schedule, now: SimNs) -> bool:
        try:
            next(cron_instants(schedule.cron, schedule.zone, now))
        except (ValueError, KeyError, OSError) as error:  # croniter's, and what ZoneInfo makes of odd names
            self.refused[schedule.id] = f"{type(error).__name__}: {error}"
            return False
        return True

    def _job(self, ctx: SourceContext, schedule: Schedule, session: OpenSession) -> Steps:
        start = schedule.from_ns if schedule.from_ns is not None else ctx.now
        instants = cron_instants(schedule.cron, schedule.zone, start)
        running: simpy.Event | None = None
        try:
            for due in instants:
                yield ctx.until(due)
                if running is not None and not running.processed:
                    if schedule.missed is MissedRuns.SKIP:
                        self._skip(ctx, schedule.id, due)
                        continue
                    yield running
                if schedule.missed is MissedRuns.ONCE and ctx.now > due:
                    following = next(cron_instants(schedule.cron, schedule.zone, due))
                    if following <= ctx.now:  # a later run is due as well: that one stands for both
                        self._skip(ctx, schedule.id, due)
                        continue
                n = self._runs[schedule.id] = self._runs.get(schedule.id, 0) + 1
                running = ctx.process(self._fire(ctx, schedule, due, n, session))
        except simpy.Interrupt:
            return

    def _skip(self, ctx: SourceContext, schedule: str, due_ns: SimNs) -> None:
        self.skipped[schedule] = self.skipped.get(schedule, 0) + 1
        ctx.note(f"schedule {schedule}: the run due at {due_ns} is skipped, {self.skipped[schedule]} so far")

    def _fire(
        self, ctx: SourceContext, schedule: Schedule, due: SimNs, n: int, session: OpenSession
    ) -> Steps:
        if schedule.needs == "nothing":
            hook = ctx.at(
                due, Phase.AGENT, RunHook(owner=Owner.MEMORY, hook=schedule.prompt), kind="cron.hook"
            )
            yield hook.ended
            return
        yield from _wake(ctx, session, due, f"cron-{schedule.id}-{n}", schedule.prompt, "cron.fire")


class OpenSession:
    """Which session is open now, as far as the facts told."""

    def __init__(self, ctx: SourceContext) -> None:
        self.id: str | None = None
        ctx.process(self._watch(ctx))

    def _watch(self, ctx: SourceContext) -> Steps:
        ended = ctx.stream(Topic.EFFECT_ENDED)
        while True:
            event, end = yield ended.get()
            if event.kind == "session.alive" and end.ok:
                self.id = event.effect.session
            elif event.kind == "session.stop" or (event.kind == "session.handoff"):
                self.id = None


def _wake(
    ctx: SourceContext, session: OpenSession, due_ns: SimNs, name: str, prompt: str, kind: str
) -> Steps:
    """Hand a prompt to the agent: in the session that is open, else in a wake session of its own."""

    def delivery(in_session: str) -> Delivery:
        return Delivery(
            id=name,
            kind=DeliveryKind.CRON,
            session=in_session,
            text=prompt,
            turn=f"{in_session}/{name}",
        )

    current = session.id
    if current is None:
        yield from wake_session(ctx, f"wake-{name}", prompt, delivery)
        return
    sent = ctx.at(due_ns, Phase.AGENT, Deliver(delivery=delivery(current)), kind=kind)
    end = yield sent.ended
    if end.ok:
        yield ctx.fact(Topic.TURN_SETTLED, f"{current}/{name}")


class WakeupSource(EventSource):
    """One wake-up at an instant, in the open session or in a wake session."""

    origin = Origin.AGENT

    def __init__(self, at_ns: SimNs, prompt: str, name: str = "wakeup") -> None:
        self.name = name
        self.at_ns = at_ns
        self.prompt = prompt

    def run(self, ctx: SourceContext) -> Steps:
        session = OpenSession(ctx)
        yield ctx.until(self.at_ns)
        yield from _wake(ctx, session, self.at_ns, self.name, self.prompt, "agent.wakeup")
