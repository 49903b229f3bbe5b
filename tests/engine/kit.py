"""A clock that the tests move, sources from functions, runners without a world."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from sclate.clock import HybridClock
from sclate.scheduler import Scheduler
from sclate_adapters.effects import RunHook
from sclate_adapters.events import Event, EventEnd, EventSource, Origin, Outcome, SourceContext, Steps

T0 = 1_900_000_000_000_000_000
S = 1_000_000_000
DONE = EventEnd(outcome=Outcome.DONE)


class FakeMonotonic:
    """CLOCK_MONOTONIC that moves only when told."""

    def __init__(self) -> None:
        self.ns = 5_000

    def __call__(self) -> int:
        return self.ns


class MemoryTrace:
    """Trace lines as dicts."""

    def __init__(self) -> None:
        self.lines: list[dict[str, Any]] = []

    def write(self, sim_ns: int, type_: str, fields: dict[str, Any], *, hold: bool = False) -> int:
        self.lines.append({"sim_ns": sim_ns, "type": type_, **fields})
        return len(self.lines)

    def flush(self) -> None:
        return

    def of(self, type_: str) -> list[dict[str, Any]]:
        return [x for x in self.lines if x["type"] == type_]


class NullRunner:
    """Every effect is done at once."""

    def start(self, event: Event) -> EventEnd | Awaitable[EventEnd]:
        return DONE


class FunctionSource(EventSource):
    """A source whose process is a function."""

    def __init__(
        self,
        run: Callable[[SourceContext], Steps],
        name: str = "test",
        origin: Origin = Origin.BENCHMARK,
        daemon: bool = False,
    ) -> None:
        self._run, self.name, self.origin, self.daemon = run, name, origin, daemon

    def run(self, ctx: SourceContext) -> Steps:
        return self._run(ctx)


def hook(name: str = "x", **kwargs: Any) -> RunHook:
    return RunHook(hook=name, **kwargs)


def run(
    *sources: EventSource,
    runner: Any = None,
    clock: HybridClock | None = None,
    timeout_s: float = 20.0,
) -> tuple[Scheduler, MemoryTrace]:
    """Run sources to the end of their life; fails loudly when that takes too long."""
    trace = MemoryTrace()

    async def main() -> Scheduler:
        scheduler = Scheduler(clock or HybridClock(T0), runner or NullRunner(), trace)
        if hasattr(runner, "scheduler"):
            runner.scheduler = scheduler
        scheduler.add_sources(sources)
        async with asyncio.timeout(timeout_s):
            await scheduler.run()
        return scheduler

    return asyncio.run(main()), trace
