"""`MemorySystem`: none, the harness's native memory, or an added one with services of its own."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import Field

from sclate_adapters.base import CONTRACT_VERSION, JsonDict, Record
from sclate_adapters.events import EventSource

if TYPE_CHECKING:
    from sclate_adapters.benchmark import HookContext, ServiceSpec


class MemoryHook(Record):
    """A command that the harness adapter renders in the harness's own hook settings."""

    on: Literal["session_start", "user_prompt", "turn_end", "session_end"]
    argv: tuple[str, ...]
    asynchronous: bool = False
    timeout_s: float = 30.0


class MemorySystem(ABC):
    """Entry-point group `sclate.memories`.

    `mode`: `none` turns the harness's memory features off, `native` leaves them as deployed, `added` brings
    services, hooks or MCP servers. `frozen`: reads, no writes.
    """

    contract_version: ClassVar[str] = CONTRACT_VERSION
    name: ClassVar[str]
    mode: ClassVar[Literal["none", "native", "added"]]
    kept: ClassVar[bool] = True
    """Whether what it wrote is there in the next session; a control arm forgets."""
    option_names: ClassVar[tuple[str, ...]] = ()
    """The keys that `options` may have; the registry refuses any other by name."""

    def __init__(self, options: Mapping[str, Any] | None = None, *, frozen: bool = False) -> None:
        self.options: Mapping[str, Any] = options or {}
        self.frozen = frozen

    def services(self) -> Sequence[ServiceSpec]:
        """In start order; stopped in reverse."""
        return ()

    async def quiescent(self, ctx: HookContext) -> bool:
        """Whether nothing is being written: part of what `idle` means."""
        return True

    def durable_state(self) -> tuple[str, ...]:
        """Absolute paths inside the sandbox, beside the harness's native memory."""
        return ()

    def hooks(self) -> Sequence[MemoryHook]:
        return ()

    def mcp_servers(self) -> Mapping[str, JsonDict]:
        return {}

    def routes(self) -> tuple[str, ...]:
        """Route labels of its model calls (`/memory`), proved by its uid."""
        return ()

    def embeddings(self) -> JsonDict | None:
        """The embedding model that it needs, or None."""
        return None

    def event_sources(self) -> Sequence[EventSource]:
        """Consolidation on the timeline."""
        return ()

    @abstractmethod
    def describe(self) -> JsonDict:
        """Settings and versions that could change a result, for the run's lock file."""


class MemorySettings(Record):
    """How a run asks for a memory."""

    name: str
    frozen: bool = False
    options: JsonDict = Field(default_factory=dict)
