"""`AgentAdapter`: how an unmodified harness is started, spoken to and listened to."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import ConfigDict, Field

from sclate_adapters.base import CONTRACT_VERSION, DurationNs, Record
from sclate_adapters.effects import SessionPlan
from sclate_adapters.events import EventSource
from sclate_adapters.memory import MemorySystem
from sclate_adapters.models import Dialect
from sclate_adapters.records import CallClass, CallRecord, Delivery, LifeKey
from sclate_adapters.signals import Signal

HARNESS_DIR = "/opt/harness"
"""Where a sandbox sees what `AgentAdapter.install` brought, read-only."""


class AgentCapabilities(Record):
    """What the harness can do; checked before anything is spent.

    `request_timeout_ns`: the harness's own monotonic limit on a model call; a freeze while one is in
    flight expires before it. `quiet_ns`: for a harness without an idle signal, how long its process tree
    must be quiet to count as idle.
    """

    delivery: Literal["mid_turn", "next_turn"] = "next_turn"
    resume: bool = False
    crons: bool = False
    memory_hooks: tuple[str, ...] = ()
    dialects: tuple[Dialect, ...] = (Dialect.MESSAGES,)
    signals: tuple[str, ...] = ()
    request_timeout_ns: DurationNs = 300_000_000_000
    quiet_ns: DurationNs | None = None


class AgentContext(Record):
    """What an agent adapter knows about the session that it prepares.

    `base_url` is the proxy's route for the agent, without the dialect's own path
    (`http://127.0.0.1:8080/agent`). Paths are those inside the sandbox.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True, frozen=True, extra="forbid")

    life: LifeKey
    session: SessionPlan
    memory: MemorySystem
    model: str
    base_url: str
    home: str = "/home/agent"
    workdir: str = "/work"
    zone: str = "UTC"
    path: str = "/usr/local/bin:/usr/bin:/bin"


class Provision(Record):
    """What is put in place before the harness starts. Paths are absolute, inside `home`."""

    files: dict[str, bytes] = Field(default_factory=dict)
    env: dict[str, str] = Field(default_factory=dict)


class ProcessSpec(Record):
    argv: tuple[str, ...]
    env: dict[str, str] = Field(default_factory=dict)
    cwd: str = "/work"


class StateSpec(Record):
    """Durable state by absolute paths inside the sandbox; what is not named dies with the session.

    A memory path may lie below one of the harness's: it belongs to the memory alone.
    """

    harness: tuple[str, ...] = ()
    memory: tuple[str, ...] = ()


class StopRequest(Record):
    """How the harness is asked to stop; `bytes` is written to its stdin first, if given."""

    how: Literal["close_stdin", "signal"] = "close_stdin"
    write: bytes = b""
    signal: str = "TERM"
    grace_s: float = Field(10.0, gt=0, description="real seconds until the tree is killed")


class AgentChannel(ABC):
    """One session's conversation with the harness over its pipes. It may keep state; it does no I/O."""

    def greeting(self) -> bytes:
        """What is written to the harness's stdin as soon as it runs, before any delivery."""
        return b""

    @abstractmethod
    def encode(self, delivery: Delivery) -> bytes:
        """The bytes for the harness's stdin, including the line end."""

    @abstractmethod
    def decode(self, stream: Literal["stdout", "stderr"], line: bytes) -> Iterable[Signal]:
        """Signals in one line of output (without its line end); unknown output gives none."""

    def interrupt(self) -> bytes:
        """What ends the turn in progress without ending the harness, for its stdin; empty if nothing does.
        A session that is over interrupts first and then asks the harness to stop."""
        return b""

    def stop(self) -> StopRequest:
        return StopRequest()

    def stores(self) -> tuple[str, ...]:
        """Files of the harness's own, by absolute path, that are read when a session has ended."""
        return ()

    def read_store(self, path: str, data: bytes | None) -> Iterable[Signal]:
        """Signals in what such a file holds at last; None where there is none. The agent can write it."""
        return ()


class AgentAdapter(ABC):
    """Entry-point group `sclate.agents`. Nothing of the harness is patched."""

    contract_version: ClassVar[str] = CONTRACT_VERSION
    name: ClassVar[str]
    version: ClassVar[str] = ""
    capabilities: ClassVar[AgentCapabilities]
    option_names: ClassVar[tuple[str, ...]] = ()
    """The keys that `options` may have; the registry refuses any other by name."""

    def __init__(self, options: Mapping[str, Any] | None = None) -> None:
        self.options: Mapping[str, Any] = options or {}

    def program(self) -> str | None:
        """Names what `install` brings: one name, one set of files. None: nothing has to be installed."""
        return None

    def install(self, folder: Path) -> None:
        """Put the harness's unmodified program into an empty folder on the host; sandboxes see it read-only
        at `HARNESS_DIR`. Called once for a `program` and kept; nothing is fetched at run time.

        Raises:
            PrerequisiteError: it cannot be had.
        """

    def remarks(self, folder: Path) -> Sequence[str]:
        """What the user should know of the program that `install` put into `folder`; said before every run,
        one line each."""
        return ()

    @abstractmethod
    def provision(self, ctx: AgentContext) -> Provision: ...

    @abstractmethod
    def launch(self, ctx: AgentContext) -> ProcessSpec: ...

    @abstractmethod
    def channel(self, ctx: AgentContext) -> AgentChannel: ...

    @abstractmethod
    def durable_state(self, ctx: AgentContext) -> StateSpec:
        """Harness state, and the paths of its native memory when that memory is on."""

    @abstractmethod
    def classify_call(self, record: CallRecord) -> CallClass:
        """Pure, on the host."""

    def event_sources(self, memory: MemorySystem) -> Sequence[EventSource]:
        """The agent's own sources: crons, one-off wake-ups."""
        return ()
