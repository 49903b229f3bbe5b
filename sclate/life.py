"""One life: adapters, scheduler, clock and sandboxes wired together, and the folder that it leaves.

The way of a turn: a source yields an event, the scheduler dispatches it, `effects` hands it to the
`session`, its bytes go through the sandbox to the harness; the harness calls the model through proxy and
`gateway`; its output comes back as signals; the session settles the turn; a source asks for its grading.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal as signals
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import structlog

from sclate.capture.proxy import BASE_URL, start_proxy
from sclate.capture.record import CallReader
from sclate.clock import Charge, HybridClock
from sclate.effects import EffectRunner
from sclate.errors import FailureClass, LifeFailure, PrerequisiteError
from sclate.gateway import Gateway, RetryPolicy
from sclate.grading import Grading
from sclate.hooks import EngineHookContext
from sclate.lifelog import LifeLog
from sclate.model_calls import ModelCalls
from sclate.sandbox.protocol import DEFAULT_ENV, UIDS, Process, Sandbox
from sclate.scheduler import Scheduler
from sclate.session import LiveSession
from sclate.state import EMPTY, StateStore, Workspace, home_is_full, tree_digest
from sclate_adapters.agent import AgentAdapter, AgentContext
from sclate_adapters.base import JsonDict
from sclate_adapters.benchmark import BenchmarkAdapter, EnvironmentSpec, Scenario, ScenarioContext
from sclate_adapters.effects import Owner, Place, SessionPlan
from sclate_adapters.events import EventSource, Topic
from sclate_adapters.judgments import Judgment, Subject, SubjectKind
from sclate_adapters.memory import MemorySystem
from sclate_adapters.models import ModelBackend, ModelProfile
from sclate_adapters.records import CallRecord, LifeKey, SessionRecord, Snapshot, TurnRecord, WorldWrite
from sclate_adapters.sources import SessionEndSource, SessionStartSource

log = structlog.get_logger()

WORLD_POLL_S = 0.25


@dataclass(frozen=True)
class LifeSettings:
    """What a run decides for its lives; real seconds."""

    seed: int = 0
    latency_ns: int | None = None
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    start_s: float = 120.0
    turn_s: float = 300.0
    grade_s: float = 120.0
    stop_s: float = 20.0
    session_s: float = 7_200.0
    total_s: float = 172_800.0


@dataclass
class _Open:
    """The session that is open now, and what belongs to it."""

    plan: SessionPlan
    sandbox: Sandbox
    context: AgentContext
    before: Snapshot
    started_sim_ns: int
    started_mono_ns: int
    spent_before_ns: int
    session: LiveSession
    calls: CallReader
    harness: Process | None = None
    stderr: list[bytes] = field(default_factory=list)
    proxy: asyncio.Task[None] | None = None

    async def end_proxy(self) -> None:
        """Its start, if it is still under way."""
        if self.proxy is not None:
            self.proxy.cancel()
            await asyncio.wait([self.proxy])


async def together(*work: Coroutine[Any, Any, None]) -> None:
    """Do all of it at once; the first failure cancels the others and is raised."""
    try:
        async with asyncio.TaskGroup() as group:
            for part in work:
                group.create_task(part)
    except BaseExceptionGroup as failures:
        raise failures.exceptions[0] from failures


class Life:
    """One life of one agent through one scenario.

    Args:
        make_sandbox: makes a sandbox of a role (`agent`, `grader`) that is not started yet.
        folder: an empty folder of this life.
    """

    def __init__(
        self,
        key: LifeKey,
        scenario: Scenario,
        benchmark: BenchmarkAdapter,
        agent: AgentAdapter,
        memory: MemorySystem,
        profile: ModelProfile,
        backend: ModelBackend | None,
        make_sandbox: Callable[[str], Sandbox],
        folder: Path,
        settings: LifeSettings,
        log: LifeLog,
    ) -> None:
        self.key = key
        self.scenario = scenario
        self.benchmark = benchmark
        self.agent = agent
        self.memory = memory
        self.profile = profile
        self.make_sandbox = make_sandbox
        self.settings = settings
        self.log = log
        self.environment = benchmark.environment(scenario)
        _refuse_what_is_not_carried_out(self.environment, memory)
        self.store = StateStore(folder / "state")
        self.workspace = Workspace(self.store, self.environment.workspace, self.environment.workdir)
        self.world_dir = folder / "world"
        self.world_dir.mkdir()
        self.failure: tuple[FailureClass, str] | None = None
        self.sessions: list[SessionRecord] = []
        self.judgments: list[Judgment] = []
        self._saved: dict[str, str | None] = {"harness": None, "memory": None}
        self._turns: dict[str, TurnRecord] = {}
        self._world_log: list[WorldWrite] = []
        self._refreshing = asyncio.Lock()
        self._open: _Open | None = None
        self._stop_at_boundary: str | None = None
        self.usage: Counter[str] = Counter()
        """Tokens by kind, of the calls that said."""
        self.usage_by_class: dict[str, Counter[str]] = {}
        """The same, and the number of calls, by `route/class`."""
        self.calls_without_usage = 0

        self.clock = HybridClock(scenario.start_ns)
        self.clock.on_change.append(self._clock_changed)
        self.clock.before_stop.append(self._before_time_stops)
        self.grading = Grading(self, benchmark.grader(scenario))
        self._provider = benchmark.world_provider(self._scenario_context())
        self.runner = EffectRunner(self)
        self.scheduler = Scheduler(
            self.clock,
            self.runner,
            log.trace,
            seed=settings.seed,
            world=lambda: self._provider.world if self._provider else {},
        )
        log.attach(self.clock)
        self.calls = ModelCalls(
            self.scheduler,
            lambda: self._open.session if self._open else None,
            latency_ns=settings.latency_ns,
            limit_s=agent.capabilities.request_timeout_ns / 1e9 * 0.9,
        )
        self.gateway = Gateway(profile, backend, self.calls, settings.retry)

    # --- the whole life ---------------------------------------------------------------------------------

    async def run(self) -> None:
        """Live it. A failure with a class is recorded in `failure`; a bug raises."""
        self.benchmark.setup(self.scenario, self.world_dir)
        self.scheduler.add_sources(self.sources())
        total = asyncio.get_running_loop().call_later(
            self.settings.total_s,
            lambda: self.fail(FailureClass.TIMEOUT, f"the life took more than {self.settings.total_s:g} s"),
        )
        if self._provider is not None:
            self.scheduler.beside(self._watch_world)
        try:
            await self.scheduler.run()
        except LifeFailure as error:
            self.failure = (error.failure, error.message)
        finally:
            total.cancel()
            await self._tear_down()
        self.log.check_deliveries(self.runner.deliveries)

    def sources(self) -> list[EventSource]:
        """Everything that puts events on this life's timeline."""
        context = self._scenario_context()
        sources = list(self.benchmark.event_sources(context))
        manifest = self.benchmark.source_manifest(context)
        if manifest is not None and manifest.sessions:
            starts = SessionStartSource(manifest.sessions)
            sources += [starts, SessionEndSource(starts)]
        sources += self.agent.event_sources(self.memory)
        sources += self.memory.event_sources()
        return sources

    def stop(self, reason: str) -> None:
        """End at the next safe point: when no session is open, or when the open one has closed."""
        if self._open is None:
            self.scheduler.stop(reason)
        else:
            self._stop_at_boundary = reason

    def fail(self, failure: FailureClass, message: str) -> None:
        """End the life now, with this failure."""
        self.failure = self.failure or (failure, message)
        self.log.fault(self.clock.now(), failure, message)
        self.scheduler.stop(f"{failure}: {message}")

    async def _tear_down(self) -> None:
        """Whatever fails, and however often it is interrupted, no sandbox stays."""
        opened, self._open = self._open, None
        async with contextlib.AsyncExitStack() as stack:
            stack.push_async_callback(self.grading.close)
            if opened is not None:
                stack.push_async_callback(opened.sandbox.close)
                stack.push_async_callback(opened.end_proxy)
            await self.gateway.close()

    def _scenario_context(self) -> ScenarioContext:
        return ScenarioContext(life=self.key, scenario=self.scenario, seed=self.settings.seed)

    # --- time inside the sandbox ------------------------------------------------------------------------

    def _clock_changed(self, change: str, now: int) -> None:
        """The agent's processes run only while time flows, and see it from its first moment on."""
        if self._open is not None and change == "flow":
            self._open.sandbox.set_offset(self.clock.offset_ns())
            self._open.sandbox.thaw()

    def _before_time_stops(self) -> None:
        if self._open is not None:
            self._open.sandbox.freeze()

    # --- sessions ---------------------------------------------------------------------------------------

    def session_of(self, session: str) -> LiveSession | None:
        return self._open.session if self._open is not None and self._open.plan.id == session else None

    @property
    def live_sandbox(self) -> Sandbox | None:
        return self._open.sandbox if self._open is not None else None

    async def open_session(self, plan: SessionPlan) -> None:
        """A fresh sandbox with the state of the last boundary, and the harness started in it.

        Raises:
            LifeFailure: and then the life ends.
        """
        try:
            async with asyncio.timeout(self.settings.start_s):
                await self._start_session(plan)
        except TimeoutError:
            message = f"session {plan.id} does not start within {self.settings.start_s:g} s"
            self.fail(FailureClass.TIMEOUT, message)
            raise LifeFailure(FailureClass.TIMEOUT, message) from None
        except LifeFailure as error:
            self.fail(error.failure, f"session {plan.id} does not start: {error.message}")
            raise

    async def _start_session(self, plan: SessionPlan) -> None:
        started = time.monotonic_ns()
        spent = self.clock.real_ns()[Charge.SESSIONS]
        context = AgentContext(
            life=self.key,
            session=plan,
            memory=self.memory,
            model=self.profile.model or self.profile.name,
            base_url=f"{BASE_URL}/agent",
            workdir=self.environment.workdir,
            zone=self.scenario.zone,
            **({"path": f"/home/agent/bin:{DEFAULT_ENV['PATH']}"} if self.environment.commands else {}),
        )
        session = LiveSession(
            plan,
            self.agent.channel(context),
            self.scheduler,
            self.log,
            turn_timeout_s=self.settings.turn_s,
            in_flight=self.calls.in_flight,
            calls=lambda: self.calls.started,
        )
        before = self.snapshot()
        sandbox = self.make_sandbox("agent")  # the last that can fail: from here on it is closed at the end
        calls = CallReader(sandbox.capture_dir / "calls.jsonl", plan.id, self.clock.sim_of_mono)
        self._open = _Open(plan, sandbox, context, before, self.clock.now(), started, spent, session, calls)
        self.log.session_opened(plan)
        sandbox.set_offset(self.clock.offset_ns())
        await self.gateway.open(sandbox.gateway_dir, UIDS["proxy"], self._is_proxy)
        await sandbox.start()
        self._open.proxy = asyncio.create_task(self._start_proxy(sandbox, session))
        await self._restore(sandbox, context)
        sandbox.set_offset(self.clock.offset_ns())
        self.log.clock_probed(self.clock.now(), plan.id, await sandbox.probe_clock())
        launch = self.agent.launch(context)
        provision = self.agent.provision(context)
        if provision.files:
            await sandbox.put_files(provision.files, "agent")
        if self.environment.commands:
            commands = {f"/home/agent/bin/{n}": data for n, data in self.environment.commands.items()}
            await sandbox.put_files(commands, "agent", 0o755)
        session.limit(self.settings.session_s)
        session.hold_time("harness start")
        harness = await sandbox.spawn(
            "harness",
            launch.argv,
            user="agent",
            cwd=launch.cwd,
            env={**launch.env, **provision.env},
            on_output=self._harness_output(self._open),
        )
        self._open.harness = session.process = harness
        self._open_watch = asyncio.ensure_future(self._watch_exit(harness, session))
        if greeting := session.channel.greeting():
            with contextlib.suppress(OSError):  # it is gone already, as its exit will say
                await harness.write(greeting)

    async def _start_proxy(self, sandbox: Sandbox, session: LiveSession) -> None:
        """Beside the start of the harness, which needs the way to its model only when it is sent something."""
        try:
            await start_proxy(sandbox)
        except LifeFailure as error:
            failure, message = error.failure, error.message
            self.scheduler.arrive(lambda: session.fail(failure, message))
        else:
            self.scheduler.arrive(session.model_in_reach)

    async def _restore(self, sandbox: Sandbox, context: AgentContext) -> None:
        await self.workspace.attach(sandbox)
        for part, digest in self._saved.items():
            if digest is not None:
                log.debug("restore", part=part, digest=digest)
                await sandbox.restore(self.store.path(digest), digest, "agent")

    def _is_proxy(self, pid: int, uid: int) -> bool:
        """Whether a peer of the gateway's socket is the proxy of the sandbox that is open."""
        container = self._open.sandbox.container_id if self._open else None
        if container is None or uid != UIDS["proxy"]:
            return False
        try:
            return container in Path(f"/proc/{pid}/cgroup").read_text()
        except OSError:
            return False

    def _harness_output(self, opened: _Open) -> Callable[[Any, list[bytes], int], None]:
        def output(stream: Any, lines: list[bytes], mono_ns: int) -> None:
            if stream == "stderr":
                opened.stderr = (opened.stderr + lines)[-20:]
            opened.session.on_output(stream, lines, mono_ns)

        return output

    async def _watch_exit(self, harness: Process, session: LiveSession) -> None:
        session.on_exit(await harness.wait())

    def session_failed(self, session: LiveSession) -> None:
        """A session that never came up ends the life: every later one would fail in the same way."""
        assert session.failure is not None
        assert self._open is not None
        said = b"\n".join(self._open.stderr).decode("utf-8", "backslashreplace")
        failure, message = session.failure
        if failure is FailureClass.AGENT and not self.sessions:
            failure = FailureClass.SUBSTRATE  # the agent has done nothing yet that could have broken it
        self.fail(failure, f"the harness did not come up: {message}" + (f"\n{said}" if said else ""))

    async def close_session(self, session_id: str) -> SessionRecord | None:
        """Ask, wait, kill, prove; then save the state. Durable before it is called done.

        Raises:
            LifeFailure: the state cannot be kept, or something survives; then the life ends.
        """
        try:
            return await self._stop_session(session_id)
        except LifeFailure as error:
            self.fail(error.failure, f"session {session_id} does not close: {error.message}")
            raise

    async def _stop_session(self, session_id: str) -> SessionRecord | None:
        opened = self._open
        if opened is None or opened.plan.id != session_id:
            if not self.scheduler.board.known(Topic.SESSION_CLOSED, session_id):
                self.scheduler.arrive(
                    lambda: self.scheduler.board.publish(Topic.SESSION_CLOSED, session_id, None)
                )
            return None
        opened.session.stopping = True
        if opened.harness is not None:
            with self.clock.flow(f"stop of session {session_id}"):
                await self._ask_to_stop(opened, opened.harness)
            await self.refresh_world()  # what the agent did last, while it can still be seen
        async with self._refreshing:  # a look at the world never meets a sandbox that is going
            return await self._save_session(opened)

    async def _save_session(self, opened: _Open) -> SessionRecord:
        session, sandbox, session_id = opened.session, opened.sandbox, opened.plan.id
        with self.clock.freeze(f"saving session {session_id}", Charge.SESSIONS):
            if opened.harness is not None:
                await sandbox.kill_user("agent")
                await sandbox.kill_user("memory")
                await self._open_watch
            session.close()
            await opened.end_proxy()
            for path in session.channel.stores():
                session.read_store(path, await sandbox.read_file(path, "agent"))
            await sandbox.kill_user("proxy")
            self._log_calls(opened.calls.rest(None))
            if opened.calls.damaged:
                message = f"{opened.calls.damaged} damaged records of calls in session {session_id}"
                self.log.fault(self.clock.now(), FailureClass.SUBSTRATE, message)
            full = await home_is_full(sandbox, opened.context.home)
            durable = self.agent.durable_state(opened.context)
            memory = (*durable.memory, *self.memory.durable_state())
            await together(
                self.workspace.detach(),
                self._save(sandbox, "harness", durable.harness, memory),
                self._save(sandbox, "memory", memory if self.memory.kept else (), ()),
            )
            self.benchmark.checkpoint(self.hook_context(None, flowing=False))
            await self.gateway.close()
            self._open = None
            await sandbox.close()
        failure, message = session.failure or ((FailureClass.BUDGET, full) if full else (None, ""))
        record = SessionRecord(
            id=session_id,
            wake=opened.plan.wake,
            started_sim_ns=opened.started_sim_ns,
            ended_sim_ns=self.clock.now(),
            real_ns=time.monotonic_ns() - opened.started_mono_ns,
            overhead_real_ns=self.clock.real_ns()[Charge.SESSIONS] - opened.spent_before_ns,
            turns=session.turns,
            before=opened.before,
            after=self.snapshot(),
            failure=failure,
            failure_message=message,
        )
        self.sessions.append(record)
        self.log.session_closed(record)
        self.scheduler.arrive(lambda: self.scheduler.board.publish(Topic.SESSION_CLOSED, session_id, record))
        if full is not None:
            self.fail(FailureClass.BUDGET, full)
        if self._stop_at_boundary is not None:
            self.scheduler.stop(self._stop_at_boundary)
        return record

    async def _save(self, sandbox: Sandbox, part: str, paths: Sequence[str], without: Sequence[str]) -> None:
        if paths:
            self._saved[part] = self.store.adopt(await sandbox.save(paths, "agent", without))

    async def _ask_to_stop(self, opened: _Open, harness: Process) -> None:
        request = opened.session.channel.stop()
        grace = min(request.grace_s, self.settings.stop_s)
        with contextlib.suppress(OSError):
            if not opened.session.settled and (interrupt := opened.session.channel.interrupt()):
                await harness.write(interrupt)
                await opened.session.until_settled(grace / 2)
            if request.write:
                await harness.write(request.write)
            if request.how == "close_stdin":
                await harness.close_stdin()
            else:
                await harness.signal(getattr(signals, f"SIG{request.signal}"))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(grace):
                await harness.wait()

    def snapshot(self) -> Snapshot:
        """The states at rest."""
        return Snapshot(
            world=tree_digest(self.world_dir),
            workspace=self.workspace.digest(),
            harness=self._saved["harness"] or EMPTY,
            memory=self._saved["memory"] or EMPTY,
        )

    # --- turns and judgments ----------------------------------------------------------------------------

    def turn_settled(self, record: TurnRecord) -> None:
        """Called by the log for every turn."""
        self._turns[record.key] = record
        self._take_calls(record.key)

    def _take_calls(self, turn: str) -> None:
        if self._open is None:
            return
        self._log_calls(self._open.calls.take(turn))

    def _log_calls(self, records: list[CallRecord]) -> None:
        for record in records:
            classified = record.model_copy(update={"call_class": self.agent.classify_call(record)})
            self._count_usage(classified)
            self.log.call(classified)

    def _count_usage(self, record: CallRecord) -> None:
        """Add what is known; a call that does not say is counted, not taken for 0."""
        known = {name: n for name, n in record.usage.model_dump().items() if n is not None}
        self.usage.update(known)
        whose = f"{record.route}/{record.call_class.value if record.call_class else 'unknown'}"
        self.usage_by_class.setdefault(whose, Counter()).update({"calls": 1, **known})
        if not known:
            self.calls_without_usage += 1

    def turns_of(self, subject: Subject) -> list[TurnRecord]:
        if subject.kind is SubjectKind.LIFE:
            return list(self._turns.values())
        if subject.kind is SubjectKind.SESSION:
            return [t for t in self._turns.values() if t.session in subject.keys]
        return [self._turns[key] for key in subject.keys]

    def record_judgment(self, judgment: Judgment) -> None:
        self.judgments.append(judgment)
        self.log.judgment(self.clock.now(), judgment)
        key = judgment.subject.key
        self.scheduler.arrive(lambda: self.scheduler.board.publish(Topic.JUDGMENT, key, judgment))

    # --- hooks and the world ----------------------------------------------------------------------------

    def hook_owner(self, owner: Owner) -> Any:
        """Whose `hook` is called."""
        return {Owner.BENCHMARK: self.benchmark, Owner.AGENT: self.agent, Owner.MEMORY: self.memory}[owner]

    def hook_context(self, sandbox: Sandbox | None, *, flowing: bool) -> EngineHookContext:
        return EngineHookContext(
            self.key,
            self.scenario,
            self.scheduler,
            self.world_dir,
            self.workspace,
            self._benchmark_writes,
            sandbox=sandbox,
            flowing=flowing,
        )

    async def place(self, place: Place) -> Sandbox:
        """The sandbox that a hook runs in."""
        if place is Place.GRADER:
            return await self.grading.sandbox()
        if self._open is None:
            raise LifeFailure(FailureClass.BENCHMARK, "a hook wants the sandbox while no session is open")
        return self._open.sandbox

    def _benchmark_writes(self, key: str, value: JsonDict) -> WorldWrite:
        return self._world_wrote(
            WorldWrite(seq=0, sim_ns=self.clock.now(), actor="benchmark", key=key, value=value)
        )

    def _world_wrote(self, write: WorldWrite) -> WorldWrite:
        numbered = write.model_copy(update={"seq": len(self._world_log) + 1})
        self._world_log.append(numbered)
        self.log.world(numbered)
        self.scheduler.arrive(lambda: self.scheduler.board.tell(Topic.WORLD_WRITE, numbered))
        return numbered

    async def refresh_world(self) -> None:
        """Look at the world now; new writes reach the sources."""
        if self._provider is None:
            return
        async with self._refreshing:
            for write in await self._provider.refresh(self.hook_context(None, flowing=False)):
                self._world_wrote(write)

    async def _watch_world(self) -> None:
        """Look every 250 ms while time flows."""
        while True:
            await asyncio.sleep(WORLD_POLL_S)
            if self.clock.motion.value == "flow":
                await self.refresh_world()


def _refuse_what_is_not_carried_out(environment: EnvironmentSpec, memory: MemorySystem) -> None:
    """Parts of the contract that this version does not carry out are refused, never left out silently.

    Raises:
        PrerequisiteError: names them.
    """
    asked = {
        "services of the environment": environment.services,
        "MCP servers of the environment": environment.mcp_servers,
        "network hosts": environment.allow_hosts,
        "services of the memory": memory.services(),
        "hooks of the memory": memory.hooks(),
        "MCP servers of the memory": memory.mcp_servers(),
    }
    wanted = [name for name, value in asked.items() if value]
    if wanted:
        raise PrerequisiteError(
            f"not carried out by this version: {', '.join(wanted)}",
            "the contract has them, the engine does not start them yet",
            "use an adapter without them",
        )
