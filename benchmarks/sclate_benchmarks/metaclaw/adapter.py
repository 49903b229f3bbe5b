"""MetaClaw-Bench on the timeline: one scenario is the whole life of its workdays.

Every day is a session at its morning; the day's inputs arrive as a world update at that boundary; the user
says the first message, then asks round after round, each with the judgment of the one before, and ends with
the last judgment alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Literal, get_args

from pydantic import BaseModel, ConfigDict, ValidationError

from sclate_adapters.base import JsonDict
from sclate_adapters.benchmark import (
    BenchmarkAdapter,
    BenchmarkMetadata,
    EnvironmentSpec,
    HookContext,
    Scenario,
    ScenarioContext,
    SourceManifest,
)
from sclate_adapters.effects import RunHook, SessionPlan
from sclate_adapters.errors import PrerequisiteError
from sclate_adapters.events import EventSource
from sclate_adapters.judgments import Grader, GradingPolicy, Judgment, Subject, SubjectKind
from sclate_adapters.sources import GradingSource, HookSource, TimedHook, TurnPlan, UserInputSource
from sclate_benchmarks.metaclaw.data import PUBLISHED, SOURCE, Dataset, Day, Round, load
from sclate_benchmarks.metaclaw.grader import RoundGrader, script_files
from sclate_benchmarks.metaclaw.rules import rules_of

ADD_DAY = "add_day"
FEEDBACK_MARK = "[Previous Feedback]"
NO_JUDGMENT = "There is no judgment of the last answer."
"""Stands where grading itself failed: the agent is told nothing, and the result is missing."""
GRADE_MARGIN_S = 90.0
"""Real seconds beyond a command's own limit: a copy of the workspace and the sandbox's start."""

METRICS = ("iou", "precision", "recall", "f1", "exact_match", "passed")
"""What upstream calls metrics: `passed` of file rounds, the others of choice rounds."""


class MetaClawOptions(BaseModel):
    """`workspace`: `carry` what the agent left from day to day, or a `fresh` copy each day, as upstream.

    `graders`: `hidden` from the agent, or `visible` in its workspace under `scripts/`, as upstream.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    workspace: Literal["carry", "fresh"] = "carry"
    graders: Literal["hidden", "visible"] = "hidden"

    @classmethod
    def described(cls) -> str:
        """Names and values, for messages."""
        return " and ".join(
            f"{name}={'|'.join(get_args(field.annotation))}" for name, field in cls.model_fields.items()
        )


def compose(turn: TurnPlan, judgments: Mapping[str, Judgment | None]) -> str:
    """A question behind the feedback on the round before; the turn without a question is feedback alone."""
    previous = turn.data.get("previous")
    if previous is None:
        return turn.text
    judgment = judgments.get(previous)
    feedback = judgment.feedback if judgment is not None else ""
    if not turn.text:
        return f"{FEEDBACK_MARK} {feedback or NO_JUDGMENT}"
    return f"{FEEDBACK_MARK} {feedback}\n\n{turn.text}" if feedback else turn.text


class MetaClawBenchmark(BenchmarkAdapter):
    """The adapter. `data` is a folder that holds `all_tests.json`.

    Raises:
        PrerequisiteError: no data folder, or an option that it does not have.
        DataError: from `scenarios`, for data that is not as published.
    """

    metadata: ClassVar[BenchmarkMetadata] = BenchmarkMetadata(
        name="metaclaw",
        version="f20581e",
        licence="MIT",
        citation="MetaClaw-Bench, aiming-lab/MetaClaw",
        unit="day",
        variants=tuple(PUBLISHED),
        splits=("all", *PUBLISHED),
    )
    zone: ClassVar[str] = "Asia/Shanghai"
    options_model: ClassVar[type[MetaClawOptions]] = MetaClawOptions
    option_names: ClassVar[tuple[str, ...]] = tuple(MetaClawOptions.model_fields)

    def __init__(self, data: Path | None = None, options: Mapping[str, Any] | None = None) -> None:
        super().__init__(data, options)
        try:
            self.settings = self.options_model.model_validate(dict(self.options))
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            name = ".".join(map(str, first["loc"]))
            raise PrerequisiteError(
                f"option {name!r} of {self.metadata.name}: {first['msg']}",
                "an option that is not understood would change nothing and go unnoticed",
                f"its options are {self.options_model.described()}",
            ) from error

    @cached_property
    def dataset(self) -> Dataset:
        if self.data is None:
            raise PrerequisiteError(
                "no data folder", f"{self.metadata.name} ships no data", f"give --data DIR. {SOURCE}"
            )
        return load(self.data)

    # --- what there is ----------------------------------------------------------------------------------

    def scenarios(self, split: str, limit: int | None, seed: int) -> Iterable[Scenario]:
        """One scenario: the first `limit` days. The split `full` or `small` wants that variant, whole."""
        if split not in self.metadata.splits:
            raise PrerequisiteError(
                f"no split {split!r}", "it selects scenarios", f"one of {', '.join(self.metadata.splits)}"
            )
        if limit is not None and limit < 1:
            raise PrerequisiteError(f"limit {limit}", "it counts days from the first on", "give 1 or more")
        dataset = self.dataset
        if split in PUBLISHED:
            dataset.require(split)
        days = dataset.days[:limit]
        first = "" if len(days) == len(dataset.days) else f"-first{len(days)}"
        rounds = sum(len(day.rounds) for day in days)
        chosen = [
            f"{name} {value}" for name, value in self.settings.model_dump(exclude_defaults=True).items()
        ]
        yield Scenario(
            id=f"{self.name()}{first}",
            start_ns=days[0].start_ns,
            zone=self.zone,
            title="; ".join((f"{len(days)} workdays, {rounds} rounds", *chosen, *self.notes())),
            data={
                "days": len(days),
                "rounds": rounds,
                "digest": self.digest(),
                "options": self.settings.model_dump(),
            },
        )

    def name(self) -> str:
        """Names the scenario, before a limit."""
        return f"{self.metadata.name}-{self.dataset.variant}"

    def notes(self) -> Sequence[str]:
        return self.dataset.notes

    def digest(self) -> str:
        """Of everything in the data that can change a result."""
        return self.dataset.digest()

    def describe(self) -> JsonDict:
        return {"options": self.settings.model_dump(mode="json"), "data": self.digest()}

    def days(self, scenario: Scenario) -> tuple[Day, ...]:
        return self.dataset.days[: scenario.data["days"]]

    def rounds(self, scenario: Scenario) -> Iterator[tuple[str, Round]]:
        """Turn key and round, in order."""
        for day in self.days(scenario):
            for one in day.rounds:
                yield f"{day.id}/{one.id}", one

    def scripts(self) -> dict[str, bytes]:
        """The checkers, by path under the workspace or the grader's folder."""
        return script_files(self.dataset.scripts())

    # --- the workspace ----------------------------------------------------------------------------------

    def environment(self, scenario: Scenario) -> EnvironmentSpec:
        return EnvironmentSpec(workspace=self.dataset.root_files())

    def day_files(self, day: str) -> dict[str, bytes]:
        """What arrives in the workspace at a day's start."""
        visible = self.scripts() if self.settings.graders == "visible" else {}
        return {**self.dataset.day_files(day), **visible}

    async def hook(self, name: str, ctx: HookContext, args: JsonDict) -> JsonDict:
        if name != ADD_DAY:
            return await super().hook(name, ctx, args)
        files = self.day_files(args["day"])
        if self.settings.workspace == "fresh":
            await ctx.workspace.replace({**self.dataset.root_files(), **files})
        else:
            await ctx.workspace.put_files(files)
        return {"files": len(files)}

    # --- the timeline -----------------------------------------------------------------------------------

    def source_manifest(self, ctx: ScenarioContext) -> SourceManifest:
        return SourceManifest(sessions=tuple(self.session(day) for day in self.days(ctx.scenario)))

    def session(self, day: Day) -> SessionPlan:
        return SessionPlan(id=day.id, start_ns=day.start_ns, title=day.title)

    def event_sources(self, ctx: ScenarioContext) -> Sequence[EventSource]:
        days = self.days(ctx.scenario)
        turns = [turn for day in days for turn in self.turns(day)]
        return [
            HookSource([self.day_update(day) for day in days]),
            UserInputSource(turns, compose=compose),
            GradingSource(
                self.grading_policy(ctx.scenario), [t.key for t in turns], [day.id for day in days]
            ),
        ]

    def day_update(self, day: Day) -> TimedHook:
        return TimedHook(at_ns=day.start_ns, effect=RunHook(hook=ADD_DAY, args={"day": day.id}))

    def turns(self, day: Day) -> list[TurnPlan]:
        """The first message, the rounds, and the last round's feedback."""
        turns = [TurnPlan(key=f"{day.id}/intro", session=day.id, text=day.intro, not_before_ns=day.intro_ns)]
        previous: str | None = None
        for one in day.rounds:
            key = f"{day.id}/{one.id}"
            turns.append(TurnPlan(key=key, session=day.id, text=one.question, data={"previous": previous}))
            previous = key
        turns.append(TurnPlan(key=f"{day.id}/feedback", session=day.id, data={"previous": previous}))
        return turns

    # --- judging ----------------------------------------------------------------------------------------

    def grading_policy(self, scenario: Scenario) -> GradingPolicy:
        rounds = list(self.rounds(scenario))
        longest = max((r.check.timeout for _, r in rounds if r.check is not None), default=0.0)
        return GradingPolicy(
            selects=tuple(Subject(kind=SubjectKind.TURN, keys=(key,)) for key, _ in rounds),
            timeout_s=longest + GRADE_MARGIN_S,
        )

    def grader(self, scenario: Scenario) -> Grader:
        whose = "upstream's scripts" if self.dataset.scripts() else "own checks"
        return RoundGrader(dict(self.rounds(scenario)), self.scripts(), f"{self.metadata.name}, {whose}")

    def figures(self, scenario: Scenario, judgments: Sequence[Judgment]) -> dict[str, float | None]:
        """Over judged rounds: `exact_pass_accuracy` (exact passes) and `upstream_score` (partial scores).

        Both, and `rounds_judged`, also by kind (`/file_check`, `/multi_choice`), by day (`/day01`) and by
        rule (`/rule:P1`; a round counts under each rule that it depends on). `mean_metric/...` are the
        further averages of upstream's report, over all rounds: a metric that a round lacks counts as 0.
        `careful_exact_pass_accuracy` has what a careful reader would have read in place of the first box.
        `rounds_missing` counts rounds without a judgment.
        """
        judged = {j.subject.key: j for j in judgments if j.score is not None}
        groups: dict[str, list[Judgment]] = {"": []}
        for day in self.days(scenario):
            for one in day.rounds:
                judgment = judged.get(f"{day.id}/{one.id}")
                rules = (f"/rule:{rule}" for rule in sorted(rules_of(one, day.tags)))
                for group in ("", f"/{one.type}", f"/{day.id}", *rules):
                    members = groups.setdefault(group, [])
                    if judgment is not None:
                        members.append(judgment)
        everything = groups[""]
        figures: dict[str, float | None] = {}
        for group, members in groups.items():
            figures[f"exact_pass_accuracy{group}"] = _mean([float(bool(j.passed)) for j in members])
            figures[f"upstream_score{group}"] = _mean([j.score or 0.0 for j in members])
            figures[f"rounds_judged{group}"] = float(len(members))
        for name in METRICS:
            figures[f"mean_metric/{name}"] = _mean([j.figures.get(name, 0.0) for j in everything])
        figures["careful_exact_pass_accuracy"] = _mean(
            [j.figures.get("careful_exact", float(bool(j.passed))) for j in everything]
        )
        figures["rounds_missing"] = float(scenario.data["rounds"] - len(everything))
        return figures


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None
