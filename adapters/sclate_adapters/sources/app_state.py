"""Events that depend on what the world has become."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sclate_adapters.base import DurationNs, Record, SimNs
from sclate_adapters.effects import Effect
from sclate_adapters.events import EventSource, Origin, Phase, SourceContext, Steps, Topic
from sclate_adapters.records import WorldWrite


class ConditionHit(Record):
    """A condition that became true at `at_ns`: the instant of the write, not of the look at it."""

    at_ns: SimNs
    parents: tuple[int, ...] = ()
    """Sequence numbers of the writes that made it true."""


Test = Callable[[Mapping[str, Any], Sequence[WorldWrite]], ConditionHit | None]
"""Pure: the world and the log of writes so far -> when the condition became true, or None."""


class Condition:
    """Fires once, `delay_ns` after `test` became true.

    Args:
        name: names the event's kind, `condition.<name>`.
        test: pure function of the world and its log.
        effect: what then happens, made from the hit.
        delay_ns: counted from the instant at which it became true.
    """

    def __init__(
        self,
        name: str,
        test: Test,
        effect: Callable[[ConditionHit], Effect],
        *,
        delay_ns: DurationNs = 0,
        phase: Phase = Phase.USER,
    ) -> None:
        self.name = name
        self.test = test
        self.effect = effect
        self.delay_ns = delay_ns
        self.phase = phase


class AppStateConditionedSource(EventSource):
    """Looks at the world at every write and fires what depends on it.

    The engine refreshes the world at each effect's end and every 250 ms of flowing time, and streams the
    writes; so a look at each write misses nothing. It is a daemon: a condition that never comes true does
    not keep the life going.
    """

    origin = Origin.BENCHMARK
    daemon = True

    def __init__(self, conditions: Sequence[Condition], name: str = "app_state") -> None:
        self.name = name
        self.conditions = tuple(conditions)

    def run(self, ctx: SourceContext) -> Steps:
        writes = ctx.stream(Topic.WORLD_WRITE)
        log: list[WorldWrite] = []
        open_conditions = list(self.conditions)
        while open_conditions:
            log.append((yield writes.get()))
            for condition in list(open_conditions):
                hit = condition.test(ctx.world, log)
                if hit is not None:
                    open_conditions.remove(condition)
                    ctx.at(
                        hit.at_ns + condition.delay_ns,
                        condition.phase,
                        condition.effect(hit),
                        kind=f"condition.{condition.name}",
                    )
