"""A benchmark for tests of harnesses: sessions and turns as a JSON file says; nothing is graded.

{"zone": "UTC", "start": "2031-03-03T09:00:00+00:00",
 "sessions": [{"id": "a", "at_s": 0, "stop_after_s": null}],
 "turns": [{"key": "a/1", "text": "...", "at_s": null, "interjections": [["a/x", 1.0, "..."]]}]}
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from sclate_adapters.base import NS_PER_S
from sclate_adapters.benchmark import (
    BenchmarkAdapter,
    BenchmarkMetadata,
    EnvironmentSpec,
    Scenario,
    ScenarioContext,
    SourceManifest,
)
from sclate_adapters.effects import SessionPlan
from sclate_adapters.events import EventSource, Origin, SourceContext, Steps, Topic
from sclate_adapters.judgments import GradeContext, Grader, GradingPolicy, Judgment
from sclate_adapters.sources import GradingSource, TurnPlan, UserInputSource
from sclate_adapters.sources.user_input import Interjection


class Nobody(Grader):
    name = "nobody"

    async def evaluate(self, ctx: GradeContext) -> Judgment:
        raise AssertionError("nothing is graded")


class Hurry(EventSource):
    """Ends a session at an instant, whatever goes on in it."""

    origin = Origin.BENCHMARK

    def __init__(self, session: str, at_ns: int) -> None:
        self.name, self.session, self.at_ns = f"hurry_{session}", session, at_ns

    def run(self, ctx: SourceContext) -> Steps:
        yield ctx.until(self.at_ns)
        if not ctx.known(Topic.SESSION_WORK_DONE, self.session):
            ctx.publish(Topic.SESSION_WORK_DONE, self.session)


class Days(BenchmarkAdapter):
    metadata = BenchmarkMetadata(name="days", version="1", licence="CC0-1.0", citation="")

    def _plan(self) -> dict[str, Any]:
        assert self.data is not None
        plan: dict[str, Any] = json.loads(Path(self.data, "plan.json").read_text())
        return plan

    def scenarios(self, split: str, limit: int | None, seed: int) -> Iterator[Scenario]:
        plan = self._plan()
        start = int(datetime.fromisoformat(plan["start"]).timestamp()) * NS_PER_S
        yield Scenario(id="days", start_ns=start, zone=plan.get("zone", "UTC"))

    def environment(self, scenario: Scenario) -> EnvironmentSpec:
        return EnvironmentSpec()

    def source_manifest(self, ctx: ScenarioContext) -> SourceManifest:
        start = ctx.scenario.start_ns
        return SourceManifest(
            sessions=tuple(
                SessionPlan(id=s["id"], start_ns=start + round(s["at_s"] * NS_PER_S))
                for s in self._plan()["sessions"]
            )
        )

    def event_sources(self, ctx: ScenarioContext) -> Sequence[EventSource]:
        plan, start = self._plan(), ctx.scenario.start_ns
        turns = [
            TurnPlan(
                key=t["key"],
                session=t["key"].partition("/")[0],
                text=t["text"],
                not_before_ns=None if t.get("at_s") is None else start + round(t["at_s"] * NS_PER_S),
                interjections=tuple(
                    Interjection(id=i, delay_ns=round(delay * NS_PER_S), text=text)
                    for i, delay, text in t.get("interjections", ())
                ),
            )
            for t in plan["turns"]
        ]
        hurries = [
            Hurry(s["id"], start + round((s["at_s"] + s["stop_after_s"]) * NS_PER_S))
            for s in plan["sessions"]
            if s.get("stop_after_s") is not None
        ]
        sessions = [s["id"] for s in plan["sessions"]]
        policy = self.grading_policy(ctx.scenario)
        return [UserInputSource(turns), GradingSource(policy, [t.key for t in turns], sessions), *hurries]

    def grading_policy(self, scenario: Scenario) -> GradingPolicy:
        return GradingPolicy(selects=())

    def grader(self, scenario: Scenario) -> Grader:
        return Nobody()
