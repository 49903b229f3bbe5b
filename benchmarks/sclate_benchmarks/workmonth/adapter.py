"""A month in a harbour office: the project's own scenario, with everything that a deployed agent's life has.

On MetaClaw-Bench's frame (days, rounds, feedback, five rules that only feedback states) it adds a world that
goes on by itself: mail, appointments and tickets that arrive at any hour, a report that is made at night while
time flows, a customer who answers half an hour after the agent replied, a remark in the middle of a turn, a
job that the agent is asked to schedule for the night, and a change of the clocks in that very hour.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, time
from functools import cached_property
from importlib.resources import files
from pathlib import Path
from typing import Any, ClassVar, Literal

from sclate_adapters.base import NS_PER_S, JsonDict, SimNs, seconds
from sclate_adapters.benchmark import BenchmarkMetadata, HookContext, Scenario, ScenarioContext
from sclate_adapters.effects import AsyncReserve, Deliver, RunHook
from sclate_adapters.events import EventSource
from sclate_adapters.judgments import Judgment
from sclate_adapters.records import Delivery, DeliveryKind, WorldWrite
from sclate_adapters.sources import (
    AppStateConditionedSource,
    Condition,
    ConditionHit,
    HookSource,
    Interjection,
    TimedHook,
    TurnPlan,
)
from sclate_benchmarks.metaclaw.adapter import MetaClawBenchmark, MetaClawOptions
from sclate_benchmarks.metaclaw.data import Day
from sclate_benchmarks.metaclaw.grader import script_files
from sclate_benchmarks.workmonth.office import ZONE, Office, OfficeWorld, Ticket, as_json, load_office

SHIPPED = Path(str(files(__package__))) / "data"
ARRIVAL = "arrival"
REPORT = "night_report"
REPORT_STEPS = ("counting", "adding up", "writing")
REPORT_STEP_S = 1.0
"""Simulated seconds a step; it is lived through, since an asynchronous hook makes time flow."""
FOLLOW_UP_S = 30 * 60.0


class WorkMonthOptions(MetaClawOptions):
    """`graders` as for MetaClaw; the workspace is always carried, since the world writes into it too."""

    workspace: Literal["carry"] = "carry"


class WorkMonthBenchmark(MetaClawBenchmark):
    """The adapter. It ships its data; `data` may name another folder of the same form."""

    metadata: ClassVar[BenchmarkMetadata] = BenchmarkMetadata(
        name="workmonth",
        version="1",
        licence="Apache-2.0",
        citation="SCLATE's own scenario",
        unit="day",
    )
    zone: ClassVar[str] = "Europe/Berlin"
    options_model: ClassVar[type[MetaClawOptions]] = WorkMonthOptions

    def __init__(self, data: Path | None = None, options: Mapping[str, Any] | None = None) -> None:
        super().__init__(data or SHIPPED, options)

    @cached_property
    def office(self) -> Office:
        assert self.data is not None
        return load_office(self.data)

    def name(self) -> str:
        return self.metadata.name

    def notes(self) -> Sequence[str]:
        return ()

    def digest(self) -> str:
        return self.dataset.digest("world.json", "rules.json")

    def scripts(self) -> dict[str, bytes]:
        assert self.data is not None
        own = {"check_value.py": files(__package__).joinpath("value.py").read_bytes()}
        return script_files(own, rules=(self.data / "rules.json").read_bytes())

    # --- the world --------------------------------------------------------------------------------------

    def setup(self, scenario: Scenario, state_dir: Path) -> None:
        (state_dir / "office.json").write_bytes(as_json(self.office.counts(scenario.start_ns)))

    def world_provider(self, ctx: ScenarioContext) -> OfficeWorld:
        return OfficeWorld(self.office)

    async def hook(self, name: str, ctx: HookContext, args: JsonDict) -> JsonDict:
        if name == ARRIVAL:
            return await self._arrival(ctx, args["at_ns"])
        if name == REPORT:
            return await self._report(ctx, args["name"])
        return await super().hook(name, ctx, args)

    async def _arrival(self, ctx: HookContext, at_ns: SimNs) -> JsonDict:
        counts = self.office.counts(at_ns)
        await ctx.workspace.put_files(self.office.files(at_ns))
        (ctx.state_dir / "office.json").write_bytes(as_json(counts))
        ctx.write_world("office", dict(counts))
        return dict(counts)

    async def _report(self, ctx: HookContext, name: str) -> JsonDict:
        """A job of some seconds; its numbers follow from its name."""
        for _ in REPORT_STEPS:
            await ctx.elapse(seconds(REPORT_STEP_S))
        seed = sum(name.encode())
        report = {"name": name, "crossings": 78 + seed % 17, "guests": 4100 + seed % 613, "delays": seed % 5}
        await ctx.workspace.put_files({f"reports/{name}.json": as_json(report)})
        ctx.write_world("report", {"name": name})
        return {"name": name}

    # --- the timeline -----------------------------------------------------------------------------------

    def event_sources(self, ctx: ScenarioContext) -> Sequence[EventSource]:
        days = self.days(ctx.scenario)
        return [
            *super().event_sources(ctx),
            HookSource(self.arrivals(days), name="arrivals"),
            HookSource(self.night_reports(days), name="night_reports"),
            AppStateConditionedSource([self.follow_up(ticket, days) for ticket in self.office.tickets]),
        ]

    def arrivals(self, days: Sequence[Day]) -> list[TimedHook]:
        """What arrives before the last session."""
        return [
            TimedHook(at_ns=at, effect=RunHook(hook=ARRIVAL, args={"at_ns": at}), kind="world.arrival")
            for at in self.office.arrivals()
            if at <= days[-1].start_ns
        ]

    def night_reports(self, days: Sequence[Day]) -> list[TimedHook]:
        """Reports that are made before the last session."""
        return [
            TimedHook(
                at_ns=report.at_ns,
                effect=AsyncReserve(hook=REPORT, args={"name": report.name}),
                kind="world.report",
            )
            for report in self.office.reports
            if report.at_ns < days[-1].start_ns
        ]

    def follow_up(self, ticket: Ticket, days: Sequence[Day]) -> Condition:
        """The customer's answer, half an hour after the agent's reply was written."""

        def replied(world: Mapping[str, Any], log: Sequence[WorldWrite]) -> ConditionHit | None:
            for write in log:
                if write.key == ticket.written:
                    return ConditionHit(at_ns=write.sim_ns, parents=(write.seq,))
            return None

        def answer(hit: ConditionHit) -> Deliver:
            session = max((d for d in days if d.start_ns <= hit.at_ns), key=lambda d: d.start_ns)
            return Deliver(
                delivery=Delivery(
                    id=f"follow-up-{ticket.id}",
                    kind=DeliveryKind.NOTICE,
                    session=session.id,
                    text=ticket.follow_up,
                )
            )

        return Condition(f"replied.{ticket.id}", replied, answer, delay_ns=seconds(FOLLOW_UP_S))

    def turns(self, day: Day) -> list[TurnPlan]:
        """The days' turns, with requests that are not graded, rounds at a time of day, and remarks."""
        intro, *rest = super().turns(day)
        requests = [
            TurnPlan(key=f"{day.id}/{r['id']}", session=day.id, text=r["text"])
            for r in day.extra.get("requests", ())
        ]
        extras = {f"{day.id}/{r.id}": r.extra for r in day.rounds}
        return [intro, *requests, *(self._timed(day, turn, extras.get(turn.key, {})) for turn in rest)]

    def _timed(self, day: Day, turn: TurnPlan, extra: JsonDict) -> TurnPlan:
        remarks = tuple(
            Interjection(id=f"{turn.key}/remark-{n}", delay_ns=seconds(one["after_s"]), text=one["text"])
            for n, one in enumerate(extra.get("say", ()), 1)
        )
        at = time_of_day(day, extra["at"]) if "at" in extra else None
        return turn.model_copy(update={"interjections": remarks, "not_before_ns": at})

    # --- judging ----------------------------------------------------------------------------------------

    def figures(self, scenario: Scenario, judgments: Sequence[Judgment]) -> dict[str, float | None]:
        """As for MetaClaw; the mean of scores is called `mean_score` here."""
        found = super().figures(scenario, judgments)
        return {name.replace("upstream_score", "mean_score"): value for name, value in found.items()}


def time_of_day(day: Day, clock: str) -> SimNs:
    """`HH:MM` on the office's clock, on a day."""
    date = datetime.fromtimestamp(day.start_ns / NS_PER_S, ZONE).date()
    return round(datetime.combine(date, time.fromisoformat(clock), ZONE).timestamp()) * NS_PER_S
