"""Claude Code's own schedules on the timeline: the clock steps to each, and the harness rings by itself.

It looks at its wall clock every second while it runs. So at the instant at which it will ring, time is let
flow until it does; when no session is open, a wake session is opened shortly before, and the harness finds
the schedule in its durable file.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import islice
from zoneinfo import ZoneInfo

import simpy
from croniter import croniter

from sclate_adapters.base import NS_PER_S, SimNs
from sclate_adapters.effects import AwaitWakeup, SessionPlan, Wakeup
from sclate_adapters.events import EventSource, Origin, Phase, SourceContext, Steps, Topic
from sclate_adapters.signals import CronCleared, CronSet
from sclate_adapters.sources.cron import OpenSession, cron_instants
from sclate_adapters.sources.session import close_session, open_session

LEAD_NS = 10 * NS_PER_S
"""A wake session opens so long before the instant: a one-off that is past when the harness starts is not
run but asked about."""
RING_SIM_NS = 30 * NS_PER_S
RING_REAL_S = 90.0
TURN_SIM_NS = 3_600 * NS_PER_S
TURN_REAL_S = 600.0
MAX_AGE_NS = 30 * 86_400 * NS_PER_S
MINUTE_NS = 60 * NS_PER_S


def ring_ns(job: CronSet, last_ns: SimNs) -> SimNs:
    """When the harness will ring for a job that was set, or rang last, at `last_ns` (2.1.332, measured).

    Jobs are spread by the first 32 bits of their id, as a fraction f of 1. A recurring one is late by f times
    half its period, at most half an hour; one of every five minutes (`*/5 * * * *`) is 15 s early by its
    period instead. A one-off on the half hour is early by f times 90 s.

    Raises:
        ValueError, KeyError, OSError: no such expression or zone.
    """
    spread = int(job.id[:8], 16) / 2**32 if re.fullmatch(r"[0-9a-f]{8}", job.id[:8]) else 0.0
    due, following = islice(_instants(job, last_ns), 2)
    if not job.recurring:
        early = round(spread * 90 * NS_PER_S) if due // MINUTE_NS % 30 == 0 else 0
        return max(due - early, last_ns)
    period = following - due
    lead = 15 * NS_PER_S
    if re.fullmatch(r"\*/\d+ \* \* \* \*", job.cron) and 300 * NS_PER_S <= period < 300 * NS_PER_S + lead:
        return last_ns + period - lead
    return due + min(round(spread * period / 2), 1800 * NS_PER_S)


def _instants(job: CronSet, after_ns: SimNs) -> Iterator[SimNs]:
    """At a change of the clocks the harness leaves out times that do not exist and takes repeated ones once."""
    zone = ZoneInfo(job.zone)
    for due in cron_instants(job.cron, job.zone, after_ns):
        wall = datetime.fromtimestamp(due // NS_PER_S, zone)
        if wall.fold == 0 and croniter.match(job.cron, wall.replace(tzinfo=UTC)):
            yield due


class ClaudeCodeAlarms(EventSource):
    """Steps the clock to every schedule that the harness holds. A daemon: they do not keep a life going."""

    name = "claude_code_alarms"
    origin = Origin.AGENT
    daemon = True

    def run(self, ctx: SourceContext) -> Steps:
        signals = ctx.stream(Topic.SIGNAL)
        session = OpenSession(ctx)
        jobs: dict[str, tuple[CronSet, simpy.Process]] = {}
        while True:
            _, signal = yield signals.get()
            if not isinstance(signal, CronSet | CronCleared):
                continue
            job, process = jobs.get(signal.id, (None, None))
            if job == signal:
                continue  # every session's store says again what is set
            if process is not None and process.is_alive:
                process.interrupt("replaced")
            jobs.pop(signal.id, None)
            if isinstance(signal, CronSet):
                jobs[signal.id] = signal, ctx.process(self._job(ctx, signal, session))

    def _job(self, ctx: SourceContext, job: CronSet, session: OpenSession) -> Steps:
        set_ns = last_ns = ctx.now
        count = 0
        try:
            while True:
                try:
                    due = ring_ns(job, last_ns)
                except (ValueError, KeyError, OSError) as error:
                    ctx.note(f"schedule {job.id} can never run: {type(error).__name__}: {error}")
                    return
                yield ctx.until(due - LEAD_NS)
                if session.id is not None:
                    yield ctx.until(due)
                count += 1
                yield ctx.process(self._ring(ctx, job, due, count, session))
                if not job.recurring or due - set_ns >= MAX_AGE_NS:
                    return
                last_ns = max(ctx.now, due)
        except simpy.Interrupt:
            return

    def _ring(self, ctx: SourceContext, job: CronSet, due: SimNs, n: int, session: OpenSession) -> Steps:
        if session.id is not None:
            yield self._alarm(ctx, session.id, due)
            return
        with ctx.seat.request() as seat:
            yield seat
            plan = SessionPlan(id=f"wake-{job.id}-{n}", start_ns=ctx.now, wake=True, title=job.prompt)
            end = yield from open_session(ctx, plan)
            if end.ok:
                end = yield self._alarm(ctx, plan.id, due)
            if end.ok:
                settled = AwaitWakeup(
                    session=plan.id,
                    until=Wakeup.IDLE,
                    sim_timeout_ns=TURN_SIM_NS,
                    real_timeout_s=TURN_REAL_S,
                )
                yield ctx.at(ctx.now, Phase.AGENT, settled, kind="agent.idle").ended
            yield from close_session(ctx, plan, "wake session over")
            yield ctx.fact(Topic.SESSION_CLOSED, plan.id)

    def _alarm(self, ctx: SourceContext, session: str, due: SimNs) -> simpy.Event:
        alarm = AwaitWakeup(
            session=session,
            until=Wakeup.ALARM,
            sim_timeout_ns=RING_SIM_NS,
            real_timeout_s=RING_REAL_S,
        )
        return ctx.at(max(due, ctx.now), Phase.AGENT, alarm, kind="agent.alarm").ended
