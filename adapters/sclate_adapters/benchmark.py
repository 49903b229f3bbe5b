"""`BenchmarkAdapter`: how a benchmark joins the timeline."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import Field

from sclate_adapters.base import CONTRACT_VERSION, JsonDict, Record, SimNs
from sclate_adapters.effects import Place, SessionPlan
from sclate_adapters.events import EventSource
from sclate_adapters.judgments import CommandResult, Grader, GradingPolicy, Judgment
from sclate_adapters.records import LifeKey, WorldWrite


class BenchmarkMetadata(Record):
    """`r_max` is the largest score of one judgment; `unit` is what `--limit` counts."""

    name: str
    version: str
    licence: str
    citation: str
    r_max: float = 1.0
    unit: str = "scenario"
    variants: tuple[str, ...] = ()
    splits: tuple[str, ...] = ("all",)


class Scenario(Record):
    """One benchmark item. `data` is the adapter's own; the engine only keeps it."""

    id: str
    start_ns: SimNs = Field(description="where the clock stands before the first event")
    zone: str = Field(description="IANA name: the sandbox's TZ and the display zone")
    title: str = ""
    data: JsonDict = Field(default_factory=dict, repr=False)


class ServiceSpec(Record):
    """A process that belongs to the world or to a memory system, started in order, stopped in reverse."""

    name: str
    argv: tuple[str, ...]
    user: Literal["agent", "memory"] = "memory"
    place: Place = Place.SANDBOX
    env: dict[str, str] = Field(default_factory=dict)
    venv: str | None = None
    health: tuple[str, ...] | None = Field(None, description="argv that exits 0 once it serves")
    health_timeout_s: float = 30.0
    stop_signal: str = "TERM"
    simulated_time: bool = True


class Resources(Record):
    memory_mb: int = Field(2048, ge=64)
    pids: int = Field(256, ge=16)
    workspace_mb: int = Field(256, ge=1)
    home_mb: int = Field(256, ge=1)
    tmp_mb: int = Field(256, ge=1)


class EnvironmentSpec(Record):
    """The sandbox that a scenario asks for. `image` None: the project's default image."""

    image: str | None = None
    user: str = "agent"
    workdir: str = "/work"
    workspace: dict[str, bytes] = Field(default_factory=dict, description="initial files, relative paths")
    workspace_owner: Literal["world", "agent"] = "agent"
    services: tuple[ServiceSpec, ...] = ()
    commands: dict[str, bytes] = Field(default_factory=dict, description="executables on the agent's PATH")
    mcp_servers: dict[str, JsonDict] = Field(default_factory=dict)
    allow_hosts: tuple[str, ...] = ()
    resources: Resources = Resources()


class WorkspaceAccess(ABC):
    """The workspace, live or at rest. Paths are relative to the workdir."""

    @abstractmethod
    async def put_files(self, files: Mapping[str, bytes]) -> None:
        """Add or replace files. Between sessions they are laid over the saved state at the next start."""

    @abstractmethod
    async def replace(self, files: Mapping[str, bytes]) -> None:
        """Empty the workspace, then add files."""

    @abstractmethod
    async def read_file(self, path: str, max_bytes: int = 1 << 20) -> bytes | None:
        """A file of the live workspace; None where it, or a live session, is missing."""

    @property
    @abstractmethod
    def live(self) -> bool:
        """Whether a session is open, so that files can be read."""


class HookContext(ABC):
    """What a hook may touch."""

    life: LifeKey
    scenario: Scenario
    now_ns: SimNs
    state_dir: Path
    """The benchmark's own world on the host; never reachable from a sandbox."""
    workspace: WorkspaceAccess

    @abstractmethod
    async def run(self, argv: Sequence[str], *, timeout_s: float = 60.0) -> CommandResult:
        """Run a command where the hook's `place` says (sandbox or grader); an error on `host`."""

    @abstractmethod
    async def elapse(self, sim_ns: int) -> None:
        """Return when so much simulated time has passed: only in a flowing hook."""

    @abstractmethod
    def write_world(self, key: str, value: JsonDict) -> WorldWrite:
        """Append to the world's log as the benchmark, at the current instant."""


class WorldProvider(ABC):
    """The benchmark's read-only world for sources, and its append-only log of writes."""

    @property
    @abstractmethod
    def world(self) -> Mapping[str, Any]:
        """The view that sources see; changed only by `refresh`."""

    @abstractmethod
    async def refresh(self, ctx: HookContext) -> Sequence[WorldWrite]:
        """Look at the world (workspace files, services), bring `world` up to date, and return the writes
        that are new, in order.

        Called at each effect's end and every 250 ms of flowing time. The engine numbers the writes anew
        (`seq` counts from 1 over all actors), records them in the trace and keeps the append-only log.
        """


class SourceManifest(Record):
    """Declarations that the engine turns into shared sources."""

    sessions: tuple[SessionPlan, ...] = ()


class ScenarioContext(Record):
    """What an adapter knows when it makes its sources."""

    life: LifeKey
    scenario: Scenario
    seed: int


class BenchmarkAdapter(ABC):
    """Entry-point group `sclate.benchmarks`.

    Args:
        data: the user's data folder, or None for a benchmark that ships its own.
        options: the adapter's own settings, declared in `option_names`; a wrong value is a
            `PrerequisiteError`.
    """

    contract_version: ClassVar[str] = CONTRACT_VERSION
    metadata: ClassVar[BenchmarkMetadata]
    option_names: ClassVar[tuple[str, ...]] = ()
    """The keys that `options` may have; the registry refuses any other by name."""

    def __init__(self, data: Path | None = None, options: Mapping[str, Any] | None = None) -> None:
        self.data = data
        self.options: Mapping[str, Any] = options or {}

    @abstractmethod
    def scenarios(self, split: str, limit: int | None, seed: int) -> Iterable[Scenario]:
        """Scenarios, lazily. Raises `DataError` for data that does not look like its description."""

    @abstractmethod
    def environment(self, scenario: Scenario) -> EnvironmentSpec: ...

    def setup(self, scenario: Scenario, state_dir: Path) -> None:
        """Make the world's state in an empty folder on the host."""

    def checkpoint(self, ctx: HookContext) -> None:
        """Bring the world to rest in its `state_dir`; called at each session boundary."""

    def source_manifest(self, ctx: ScenarioContext) -> SourceManifest | None:
        """Sessions for which the engine makes the start and end sources."""
        return None

    @abstractmethod
    def event_sources(self, ctx: ScenarioContext) -> Sequence[EventSource]:
        """The benchmark's own sources, and shared ones set up by it."""

    def world_provider(self, ctx: ScenarioContext) -> WorldProvider | None:
        return None

    @abstractmethod
    def grading_policy(self, scenario: Scenario) -> GradingPolicy: ...

    @abstractmethod
    def grader(self, scenario: Scenario) -> Grader: ...

    async def hook(self, name: str, ctx: HookContext, args: JsonDict) -> JsonDict:
        """Carry out a hook that one of its sources asked for."""
        raise NotImplementedError(f"{type(self).__name__} has no hook {name!r}")

    def describe(self) -> JsonDict:
        """Options and digests of data that could change a result, for the run's lock file."""
        return {}

    def figures(self, scenario: Scenario, judgments: Sequence[Judgment]) -> dict[str, float | None]:
        """The benchmark's headline figures over a life's judgments, named as its users name them.

        Judgments without a score are missing: they are in no denominator and counted apart.
        """
        scores = [j.score for j in judgments if j.score is not None]
        return {"mean_score": sum(scores) / len(scores) if scores else None}
