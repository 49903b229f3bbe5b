"""A run: its folder, its lives one after another, its result."""

from __future__ import annotations

import platform
import re
import time
from collections import Counter
from importlib.metadata import version
from pathlib import Path
from typing import Any

import structlog
from pydantic import Field

from sclate import registry
from sclate.clock import Charge
from sclate.config import RunConfig
from sclate.errors import FailureClass
from sclate.failures import FailureCount, count_failures
from sclate.life import Life, LifeSettings
from sclate.lifelog import LifeLog
from sclate.model_calls import parse_latency
from sclate.outage import Outage, Patience
from sclate.plugin_guard import Guard, PluginError
from sclate.progress import Progress
from sclate.sandbox.build import Built, ensure_all, ensure_harness
from sclate.sandbox.docker import DockerSandbox
from sclate.sandbox.engine import docker_client
from sclate.sandbox.owner import this_owner
from sclate.sandbox.protocol import Limits, Sandbox, SandboxSpec
from sclate.trace import TraceWriter, write_json
from sclate_adapters.agent import AgentAdapter
from sclate_adapters.base import CONTRACT_VERSION, JsonDict, Record
from sclate_adapters.benchmark import BenchmarkAdapter, Scenario, ScenarioContext
from sclate_adapters.effects import SessionPlan
from sclate_adapters.judgments import Judgment, Subject, SubjectKind
from sclate_adapters.memory import MemorySystem
from sclate_adapters.models import ModelBackend
from sclate_adapters.records import LifeKey, SessionRecord, TurnRecord

log = structlog.get_logger()


class LifeSummary(Record):
    """What came of one life. Figures are the benchmark's own, named by it; None is missing, never 0."""

    key: LifeKey
    figures: dict[str, float | None]
    judged: int
    passed: int
    missing: int
    sessions: int
    wake_sessions: int
    turns: int
    calls: int
    tokens: dict[str, int]
    tokens_by_class: dict[str, dict[str, int]] = Field(default_factory=dict)
    calls_without_usage: int
    simulated_s: float
    real_s: float
    real_s_by: dict[Charge, float]
    sources: dict[str, int]
    effects: dict[str, int]
    lateness_p99_ms: float | None
    failure: FailureClass | None = None
    failure_message: str = ""
    failures: tuple[FailureCount, ...] = ()
    interrupted: bool = False

    @property
    def nothing_judged(self) -> bool:
        """There were judgments to be made, and every one is missing."""
        return 0 < self.judged == self.missing

    @property
    def session_overhead_s(self) -> float | None:
        """The substrate's own real seconds for a session: start, restore, save, graders."""
        sessions = self.sessions + self.wake_sessions
        return self.real_s_by[Charge.SESSIONS] / sessions if sessions else None

    @property
    def turn_overhead_s(self) -> float | None:
        """The substrate's own real seconds for a turn: scheduling, recording, copies for graders."""
        return self.real_s_by[Charge.ENGINE] / self.turns if self.turns else None

    @property
    def compression(self) -> float | None:
        """Simulated over real time."""
        return self.simulated_s / self.real_s if self.real_s else None


class RunSummary(Record):
    """`result.json` of a run."""

    v: int = 1
    benchmark: str
    arm: str
    model: str
    keyless: bool
    lives: tuple[LifeSummary, ...]
    host_rss_mb: float | None = Field(None, description="peak resident memory of the engine's process, MiB")

    @property
    def ok(self) -> bool:
        """Whether no life broke off, and none came to nothing. Other failures inside a life are its data."""
        return all(life.failure is None and not life.nothing_judged for life in self.lives)


class Run:
    """One call of `sclate run`."""

    def __init__(self, config: RunConfig, progress: Progress) -> None:
        self.config = config
        self.progress = progress
        self.interrupted: str | None = None
        self._life: Life | None = None
        self.guard = Guard()
        kind, agent, memory = config.benchmark, config.agent, config.memory
        self.benchmark: BenchmarkAdapter = registry.make(
            "benchmarks", kind.name, kind.data, options=kind.options, guard=self.guard
        )
        self.agent: AgentAdapter = registry.make(
            "agents", agent.name, options=agent.options, guard=self.guard
        )
        self.memory: MemorySystem = registry.make(
            "memories", memory.name, options=memory.options, guard=self.guard, frozen=memory.frozen
        )
        self.profile = config.profile()
        self.latency_ns = parse_latency(config.clock.latency)
        self.arm = f"{config.agent.name}+{config.memory.name}"

    def scenarios(self) -> list[Scenario]:
        """The scenarios that were asked for."""
        settings = self.config.benchmark
        found = self.benchmark.scenarios(settings.split, settings.limit, self.config.seed)
        return [s for s in found if settings.selects(s.id)]

    def rehearse(self, scenario: Scenario) -> None:
        """Ask the plug-ins for all that they can say before anything runs.

        Raises:
            PluginError: one of them raises.
        """
        context = ScenarioContext(
            life=LifeKey(scenario=scenario.id, arm=self.arm), scenario=scenario, seed=self.config.seed
        )
        self.benchmark.environment(scenario)
        self.benchmark.event_sources(context)
        self.benchmark.source_manifest(context)
        self.benchmark.world_provider(context)
        self.benchmark.grader(scenario)
        self.agent.event_sources(self.memory)
        self.memory.event_sources()
        self.memory.describe()
        self.benchmark.describe()

    def interrupt(self, reason: str) -> None:
        """End at the next safe point."""
        self.interrupted = reason
        if self._life is not None:
            self._life.stop(reason)

    async def execute(self, folder: Path) -> RunSummary:
        """Live all lives; `folder` exists and is empty."""
        scenarios = self.scenarios()
        built = ensure_all(self.progress.note)
        harness = ensure_harness(self.agent, self.progress.note)
        client = docker_client()
        (folder / "lives").mkdir()
        write_json(folder / "lock.json", self._lock(built.image, built.runtime.name))
        summaries = []
        try:
            for scenario in scenarios:
                for sample in range(self.config.samples):
                    if self.interrupted is not None:
                        break
                    key = LifeKey(scenario=scenario.id, arm=self.arm, sample=sample)

                    def make_sandbox(role: str, scenario: Scenario = scenario) -> Sandbox:
                        return DockerSandbox(self._spec(role, scenario, built, harness), client)

                    summaries.append(await self._live(key, scenario, make_sandbox, folder / "lives"))
        finally:
            client.close()
        summary = RunSummary(
            benchmark=self.config.benchmark.name,
            arm=self.arm,
            model=self.profile.name,
            keyless=self.profile.backend is not None,
            lives=tuple(summaries),
            host_rss_mb=peak_rss_mb(),
        )
        write_json(folder / "result.json", summary)
        return summary

    def _spec(self, role: Any, scenario: Scenario, built: Built, harness: Path | None) -> SandboxSpec:
        environment = self.benchmark.environment(scenario)
        resources = environment.resources
        return SandboxSpec(
            image=self.config.sandbox.image or environment.image or built.image,
            runtime=built.runtime,
            role=role,
            limits=Limits(
                resources.memory_mb,
                resources.pids,
                resources.workspace_mb,
                resources.home_mb,
                resources.tmp_mb,
            ),
            labels=owner_labels(),
            workdir=environment.workdir,
            zone=scenario.zone,
            harness=harness if role == "agent" else None,
        )

    async def _live(self, key: LifeKey, scenario: Scenario, make_sandbox: Any, lives: Path) -> LifeSummary:
        folder = lives / key.slug()
        folder.mkdir()
        backend: ModelBackend | None = None
        if self.profile.backend is not None:
            backend = registry.make_model(self.profile.backend, self.profile.options)
        budgets = self.config.budgets
        settings = LifeSettings(
            seed=self.config.seed,
            latency_ns=self.latency_ns,
            retry=self.config.retry(),
            **budgets.model_dump(),
        )
        write_json(folder / "life.json", {"v": 1, "key": key, "seed": settings.seed, "scenario": scenario})
        started = time.monotonic()
        with TraceWriter(folder / "trace.jsonl") as trace:
            lifelog = LifeLog(folder, trace)
            life = self._life = Life(
                key,
                scenario,
                self.benchmark,
                self.agent,
                self.memory,
                self.profile,
                backend,
                make_sandbox,
                folder,
                settings,
                lifelog,
            )
            opened = self._listen(life)
            trace.write(
                scenario.start_ns, "run", {"life": key, "scenario": scenario.id, "zone": scenario.zone}
            )
            self.progress.life_started(life)
            try:
                await life.run()
            except PluginError:
                pass  # the guard has told the life
            self._life = None
            summary = self._summary(life, opened, time.monotonic() - started)
            self.guard.on_error = lambda error: None
            trace.write(life.clock.now(), "end", {"result": summary})
        write_json(folder / "result.json", summary)
        self.progress.life_ended(summary)
        return summary

    def _listen(self, life: Life) -> list[SessionPlan]:
        """Show and log what happens in a life, and give up where it must be; returns sessions as they open."""
        opened: list[SessionPlan] = []
        outage, patience = Outage(self.progress.note), Patience(life.fail)
        life.gateway.on_waiting, life.gateway.on_answer = outage.waiting, outage.answered
        self.guard.on_error = lambda error: life.fail(error.failure, error.message)

        def turn_settled(record: TurnRecord) -> None:
            life.turn_settled(record)
            if record.failure is not None:
                said = record.failure_message
                log.warning("turn failed", turn=record.key, failure=record.failure.value, message=said)
            patience.turn(record)

        def session_opened(plan: SessionPlan) -> None:
            opened.append(plan)
            self.progress.session(plan, life)

        def session_ended(record: SessionRecord) -> None:
            if record.failure is not None:
                said = record.failure_message
                log.warning("session failed", session=record.id, failure=record.failure.value, message=said)
            self.progress.session_ended(record, life)

        def judged(judgment: Judgment) -> None:
            if judgment.score is None:
                log.warning("judgment missing", subject=judgment.subject.key, failure=judgment.failure)
            self.progress.judged(judgment, life)

        life.log.on_turn, life.log.on_judgment = turn_settled, judged
        life.log.on_session, life.log.on_session_end = session_opened, session_ended
        return opened

    def _summary(self, life: Life, opened: list[SessionPlan], real_s: float) -> LifeSummary:
        lateness = sorted(life.scheduler.lateness_ns)
        judged = life.judgments
        turns = life.turns_of(Subject(kind=SubjectKind.LIFE))
        try:
            figures = self.benchmark.figures(life.scenario, judged)
        except PluginError:  # the guard has told the life
            figures = {}
        return LifeSummary(
            key=life.key,
            figures=figures,
            judged=len(judged),
            passed=sum(j.passed is True for j in judged),
            missing=sum(j.score is None for j in judged),
            sessions=sum(not plan.wake for plan in opened),
            wake_sessions=sum(plan.wake for plan in opened),
            turns=sum(turn.real_ns > 0 for turn in turns),  # a delivery that nobody took up has a record too
            calls=life.calls.finished,
            tokens=dict(life.usage),
            tokens_by_class={whose: dict(known) for whose, known in life.usage_by_class.items()},
            calls_without_usage=life.calls_without_usage,
            simulated_s=(life.clock.now() - life.scenario.start_ns) / 1e9,
            real_s=real_s,
            real_s_by={charge: ns / 1e9 for charge, ns in life.clock.real_ns().items()},
            sources=dict(Counter(life.scheduler.by_source)),
            effects=dict(Counter(life.scheduler.by_primitive)),
            lateness_p99_ms=lateness[int(len(lateness) * 0.99)] / 1e6 if lateness else None,
            failure=life.failure[0] if life.failure else None,
            failure_message=life.failure[1] if life.failure else "",
            failures=count_failures(judged, turns, life.sessions),
            interrupted=self.interrupted is not None,
        )

    def _lock(self, image: str, runtime: str) -> JsonDict:
        """Versions and digests of what could change a result."""
        return {
            "v": 1,
            "sclate": version("sclate"),
            "contract": CONTRACT_VERSION,
            "python": platform.python_version(),
            "benchmark": self.benchmark.metadata.model_dump(mode="json") | self.benchmark.describe(),
            "agent": {
                "name": self.agent.name,
                "version": self.agent.version,
                "program": self.agent.program(),
                "options": self.agent.options,
            },
            "memory": self.memory.describe(),
            "model": self.profile.model_dump(mode="json", exclude={"key_env"}),
            "image": image,
            "runtime": runtime,
            "seed": self.config.seed,
            "latency": self.config.clock.latency,
        }


def peak_rss_mb() -> float | None:
    """Peak resident memory of this process in MiB; not getrusage's, which a child inherits from its maker."""
    found = re.search(r"^VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text(), re.MULTILINE)
    return int(found.group(1)) / 1024 if found else None


def owner_labels() -> dict[str, str]:
    """Labels by which `sclate clean` tells whose a container is: our pid and when we started."""
    pid, start = this_owner()
    return {"sclate": "1", "sclate.owner.pid": pid, "sclate.owner.start": start}
