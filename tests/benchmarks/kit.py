"""A benchmark on the real scheduler without a sandbox: a folder is the workspace, a function the agent.

Grading commands run for real, in a private copy of the folder. What this kit does stands for the engine's
life, in a few lines; it proves an adapter's timeline, files and judgments, not the sandbox.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sclate.clock import Charge, HybridClock
from sclate.scheduler import NullTrace, Scheduler
from sclate_adapters.base import NS_PER_S, JsonDict
from sclate_adapters.benchmark import (
    BenchmarkAdapter,
    HookContext,
    Scenario,
    ScenarioContext,
    WorkspaceAccess,
)
from sclate_adapters.effects import (
    AsyncReserve,
    AwaitWakeup,
    Deliver,
    RunHook,
    ShutdownAgent,
    StartAgent,
)
from sclate_adapters.events import Event, EventEnd, EventSource, Outcome, Topic
from sclate_adapters.judgments import CommandResult, GradeContext, Grader, Judgment, Subject
from sclate_adapters.records import Delivery, DeliveryKind, LifeKey, TurnRecord, WorldWrite
from sclate_adapters.signals import CronCleared, CronSet
from sclate_adapters.sources import SessionEndSource, SessionStartSource
from sclate_adapters.sources.grading import GRADE_HOOK

LIFE = LifeKey(scenario="test", arm="function+none")
DONE = EventEnd(outcome=Outcome.DONE)
GRADER_PATH = "/usr/local/bin:/usr/bin:/bin"


def put(base: Path, files: Mapping[str, bytes]) -> None:
    for name, data in files.items():
        path = base / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


def tree(base: Path) -> dict[str, bytes]:
    return {p.relative_to(base).as_posix(): p.read_bytes() for p in sorted(base.rglob("*")) if p.is_file()}


class FolderGrading(GradeContext):
    """A private copy of a folder, and commands run in it for real."""

    def __init__(
        self, grader: Grader, workspace: Path, subject: Subject, answer: str, now_ns: int = 0
    ) -> None:
        self._base = Path(tempfile.mkdtemp())
        self.life, self.subject, self.now_ns = LIFE, subject, now_ns
        self.turns = [
            TurnRecord(key=k, session="s", text=answer, started_sim_ns=0, ended_sim_ns=0)
            for k in subject.keys
        ]
        self.workdir, self.grader_dir = str(self._base / "work"), str(self._base / "grader")
        shutil.copytree(workspace, self.workdir, symlinks=True)
        put(Path(self.grader_dir), grader.files)

    async def run(
        self,
        argv: Sequence[str],
        *,
        timeout_s: float = 30.0,
        env: Mapping[str, str] | None = None,
        max_output: int = 1 << 20,
    ) -> CommandResult:
        try:
            done = await asyncio.to_thread(
                subprocess.run,
                list(argv),
                cwd=self.workdir,
                env={"PATH": GRADER_PATH, "HOME": str(self._base), "LANG": "C.UTF-8", **(env or {})},
                capture_output=True,
                timeout=timeout_s,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return CommandResult(rc=None, timed_out=True)
        return CommandResult(rc=done.returncode, stdout=done.stdout, stderr=done.stderr)

    async def put_files(self, files: Mapping[str, bytes]) -> None:
        put(Path(self.workdir), files)

    async def read_file(self, path: str, max_bytes: int = 1 << 20) -> bytes | None:
        target = Path(self.workdir) / path
        return target.read_bytes()[:max_bytes] if target.is_file() else None

    def drop(self) -> None:
        shutil.rmtree(self._base, ignore_errors=True)


def judge(grader: Grader, workspace: Path, key: str, answer: str = "") -> Judgment:
    """Judge one turn over a folder."""
    ctx = FolderGrading(grader, workspace, Subject(kind="turn", keys=(key,)), answer)
    try:
        return asyncio.run(grader.evaluate(ctx))
    finally:
        ctx.drop()


class FolderWorkspace(WorkspaceAccess):
    def __init__(self, base: Path) -> None:
        self.base = base
        self.open = False

    async def put_files(self, files: Mapping[str, bytes]) -> None:
        put(self.base, files)

    async def replace(self, files: Mapping[str, bytes]) -> None:
        shutil.rmtree(self.base)
        self.base.mkdir()
        put(self.base, files)

    async def read_file(self, path: str, max_bytes: int = 1 << 20) -> bytes | None:
        target = self.base / path
        return target.read_bytes()[:max_bytes] if self.open and target.is_file() else None

    @property
    def live(self) -> bool:
        return self.open


@dataclass
class Did:
    """One thing that happened, at a simulated instant."""

    at_ns: int
    what: str
    session: str = ""
    text: str = ""
    key: str | None = None
    in_turn: str | None = None


@dataclass
class FakeLife:
    """Runs an adapter's timeline. The agent answers a delivery after `turn_s` simulated seconds.

    `agent(delivery, workspace)` returns its answer, or an answer and the crons that it set.
    """

    adapter: BenchmarkAdapter
    scenario: Scenario
    agent: Callable[[Delivery, Path], str | tuple[str, Sequence[CronSet | CronCleared]]]
    base: Path
    turn_s: Callable[[Delivery], float] = lambda _: 60.0
    extra_sources: Sequence[EventSource] = ()
    log: list[Did] = field(default_factory=list)
    judgments: list[Judgment] = field(default_factory=list)
    writes: list[WorldWrite] = field(default_factory=list)
    ends: list[tuple[Event, EventEnd]] = field(default_factory=list)
    session: str | None = None
    turn: str | None = None

    def run(self, timeout_s: float = 120.0) -> FakeLife:
        asyncio.run(self._main(timeout_s))
        return self

    async def _main(self, timeout_s: float) -> None:
        context = ScenarioContext(life=LIFE, scenario=self.scenario, seed=0)
        self.workspace = FolderWorkspace(self.base / "work")
        self.workspace.base.mkdir()
        put(self.workspace.base, self.adapter.environment(self.scenario).workspace)
        self.state_dir = self.base / "state"
        self.state_dir.mkdir()
        self.adapter.setup(self.scenario, self.state_dir)
        self.provider = self.adapter.world_provider(context)
        self.grader = self.adapter.grader(self.scenario)
        self.scheduler = Scheduler(HybridClock(self.scenario.start_ns), self, NullTrace(), world=self._world)
        manifest = self.adapter.source_manifest(context)
        starts = SessionStartSource(manifest.sessions if manifest else ())
        sources = [starts, SessionEndSource(starts), *self.adapter.event_sources(context)]
        self.scheduler.add_sources([*sources, *self.extra_sources])
        async with asyncio.timeout(timeout_s):
            await self.scheduler.run()

    def _world(self) -> Mapping[str, Any]:
        return self.provider.world if self.provider else {}

    def _did(self, what: str, **fields: Any) -> None:
        self.log.append(Did(int(self.scheduler.timeline.now), what, **fields))

    # --- effects ----------------------------------------------------------------------------------------

    async def start(self, event: Event) -> EventEnd:
        end = await self._carry_out(event)
        await self.refresh()
        self.ends.append((event, end))
        return end

    async def refresh(self) -> None:
        if self.provider is None:
            return
        for write in await self.provider.refresh(self._hook_context(flowing=False)):
            self._record(write.key, write.value, write.actor)

    def _record(self, key: str, value: JsonDict, actor: str = "benchmark") -> WorldWrite:
        write = WorldWrite(
            seq=len(self.writes) + 1,
            sim_ns=int(self.scheduler.timeline.now),
            actor=actor,
            key=key,
            value=value,
        )
        self.writes.append(write)
        self.scheduler.arrive(lambda: self.scheduler.board.tell(Topic.WORLD_WRITE, write))
        return write

    async def _carry_out(self, event: Event) -> EventEnd:
        effect, board = event.effect, self.scheduler.board
        match effect:
            case StartAgent():
                self.session = effect.session.id
                self.workspace.open = True
                self._did("wake" if effect.session.wake else "open", session=self.session)
                self.scheduler.arrive(
                    lambda: board.publish(Topic.SESSION_OPEN, effect.session.id, effect.session)
                )
            case ShutdownAgent():
                self._did("close", session=effect.session)
                self.session, self.workspace.open = None, False
                self.scheduler.arrive(lambda: board.publish(Topic.SESSION_CLOSED, effect.session, None))
            case Deliver():
                return self._deliver(effect.delivery)
            case RunHook(hook=name) if name == GRADE_HOOK:
                await self._grade(Subject.model_validate(effect.args["subject"]))
            case RunHook():
                self._did(f"hook {effect.hook}")
                with self.scheduler.clock.freeze(effect.hook, Charge.HOOKS):
                    result = await self.adapter.hook(
                        effect.hook, self._hook_context(flowing=effect.flow), effect.args
                    )
                return EventEnd(outcome=Outcome.DONE, result=result)
            case AsyncReserve():
                self._did(f"reserve {effect.hook}")
                result = await self.adapter.hook(effect.hook, self._hook_context(flowing=True), effect.args)
                self._did(f"reserved {effect.hook}")
                return EventEnd(outcome=Outcome.DONE, result=result)
            case AwaitWakeup():
                pass
        return DONE

    def _deliver(self, delivery: Delivery) -> EventEnd:
        if self.session != delivery.session:
            return EventEnd(outcome=Outcome.FAILED, reason="undelivered", result={"state": "undelivered"})
        self._did(
            delivery.kind.value,
            session=delivery.session,
            text=delivery.text,
            key=delivery.turn,
            in_turn=self.turn,
        )
        if delivery.turn is not None:
            self.turn = delivery.turn
            now = int(self.scheduler.timeline.now)
            key = delivery.turn
            self.scheduler.arrive(lambda: self.scheduler.board.publish(Topic.TURN_STARTED, key, now))
            self.scheduler.call_at(
                now + round(self.turn_s(delivery) * NS_PER_S), lambda: self._settle(delivery, now)
            )
        return EventEnd(outcome=Outcome.DONE, result={"state": "delivered"})

    def _settle(self, delivery: Delivery, started_ns: int) -> None:
        answer = self.agent(delivery, self.workspace.base)
        text, crons = answer if isinstance(answer, tuple) else (answer, ())
        for cron in crons:
            self.scheduler.board.tell(Topic.SIGNAL, (delivery.session, cron))
        self.turn = None
        assert delivery.turn is not None
        self.answers = {**getattr(self, "answers", {}), delivery.turn: text}
        record = TurnRecord(
            key=delivery.turn,
            session=delivery.session,
            deliveries=(delivery,),
            trigger="cron" if delivery.kind is DeliveryKind.CRON else "user",
            text=text,
            started_sim_ns=started_ns,
            ended_sim_ns=int(self.scheduler.timeline.now),
        )
        self.scheduler.board.publish(Topic.TURN_SETTLED, delivery.turn, record)

    async def _grade(self, subject: Subject) -> None:
        answer = self.answers[subject.keys[0]]
        ctx = FolderGrading(self.grader, self.workspace.base, subject, answer)
        try:
            judgment = await self.grader.evaluate(ctx)
        finally:
            ctx.drop()
        self.judgments.append(judgment)
        self.scheduler.arrive(lambda: self.scheduler.board.publish(Topic.JUDGMENT, subject.key, judgment))

    def _hook_context(self, *, flowing: bool) -> HookContext:
        return _FakeHookContext(self, flowing)


class _FakeHookContext(HookContext):
    def __init__(self, life: FakeLife, flowing: bool) -> None:
        self.life, self.scenario = LIFE, life.scenario
        self.now_ns = int(life.scheduler.timeline.now)
        self.state_dir, self.workspace = life.state_dir, life.workspace
        self._life, self._flowing = life, flowing

    async def run(self, argv: Sequence[str], *, timeout_s: float = 60.0) -> CommandResult:
        done = await asyncio.to_thread(
            subprocess.run,
            list(argv),
            cwd=self._life.workspace.base,
            capture_output=True,
            timeout=timeout_s,
            env={**os.environ, "PATH": GRADER_PATH},
            check=False,
        )
        return CommandResult(rc=done.returncode, stdout=done.stdout, stderr=done.stderr)

    async def elapse(self, sim_ns: int) -> None:
        assert self._flowing, "time stands still in this hook"
        await self._life.scheduler.sleep_until(int(self._life.scheduler.timeline.now) + sim_ns)

    def write_world(self, key: str, value: JsonDict) -> WorldWrite:
        return self._life._record(key, value)
