"""World updates at planned instants."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sclate_adapters.base import Record, SimNs
from sclate_adapters.effects import AsyncReserve, RunHook
from sclate_adapters.events import EventSource, Origin, Phase, PlannedEvent, SourceContext, Steps


class TimedHook(Record):
    """A hook of the benchmark at an instant. `phase` WORLD puts it before a session at the same instant."""

    at_ns: SimNs
    effect: RunHook | AsyncReserve
    kind: str = "world.update"
    phase: Phase = Phase.WORLD


class HookSource(EventSource):
    """Puts planned hooks on the timeline, all known beforehand."""

    origin = Origin.BENCHMARK

    def __init__(self, hooks: Sequence[TimedHook], name: str = "world_updates") -> None:
        self.name = name
        self.hooks = tuple(hooks)

    def run(self, ctx: SourceContext) -> Steps:
        yield ctx.all_of([ctx.at(h.at_ns, h.phase, h.effect, kind=h.kind).ended for h in self.hooks])

    def planned(self) -> Iterable[PlannedEvent]:
        for h in self.hooks:
            yield PlannedEvent(
                due_ns=h.at_ns,
                source=self.name,
                origin=self.origin,
                kind=h.kind,
                phase=h.phase,
                label=h.effect.hook,
            )
