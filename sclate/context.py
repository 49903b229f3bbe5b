"""What a source sees of the scheduler: its context, its events' handles, the facts."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import simpy

from sclate.errors import InvariantError
from sclate.timeline import Dispatch, Timeline
from sclate_adapters.effects import Effect
from sclate_adapters.events import (
    Event,
    EventEnd,
    EventSource,
    Outcome,
    Phase,
    Scheduled,
    SourceContext,
    Steps,
    Topic,
    Wait,
)

if TYPE_CHECKING:
    from sclate.scheduler import Scheduler


class Board:
    """Facts that are known from then on, and streams of what just happened."""

    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline
        self._facts: dict[tuple[Topic, str], simpy.Event] = {}
        self._streams: dict[Topic, list[simpy.Store]] = {}

    def fact(self, topic: Topic, key: str) -> simpy.Event:
        return self._facts.setdefault((topic, key), simpy.Event(self._timeline))

    def known(self, topic: Topic, key: str) -> bool:
        return (topic, key) in self._facts and self._facts[topic, key].triggered

    def value(self, topic: Topic, key: str) -> Any:
        """The value of a known fact, else None."""
        return self._facts[topic, key].value if self.known(topic, key) else None

    def publish(self, topic: Topic, key: str, value: Any = None) -> None:
        if self.known(topic, key):
            raise InvariantError(f"fact {topic} {key} published twice")
        self.fact(topic, key).succeed(value)

    def stream(self, topic: Topic) -> simpy.Store:
        store = simpy.Store(self._timeline)
        self._streams.setdefault(topic, []).append(store)
        return store

    def tell(self, topic: Topic, item: Any) -> None:
        if self._streams:  # most lives have none, and hashing an enum is a Python call
            for store in self._streams.get(topic, ()):
                store.put(item)


class Entry(Scheduled):
    """An event from its registration to its one end."""

    def __init__(self, scheduler: Scheduler, event: Event, registered: Registered, seq: int) -> None:
        self._scheduler = scheduler
        self.event = event
        self.registered = registered
        self.task: asyncio.Task[None] | None = None
        self.seq = seq
        self.ended = simpy.Event(scheduler.timeline)
        self.dispatch: Dispatch | None = None
        self.dispatched = False
        self.lasting = False
        self.end: EventEnd | None = None

    def on_due(self, _: simpy.Event) -> None:
        self._scheduler.dispatch(self)

    def cancel(self, reason: str) -> bool:
        if self.dispatched or self.end is not None:
            return False
        if self.dispatch is not None:
            self.dispatch.cancelled = True
        self._scheduler.end(self, EventEnd(outcome=Outcome.CANCELLED, reason=reason))
        return True


class Registered(SourceContext):
    """A source with its rank, its counter and its random numbers: the context that it runs in."""

    def __init__(self, scheduler: Scheduler, source: EventSource, rank: int, rng: random.Random) -> None:
        self.source = source
        self.rank = rank
        self.rng = rng
        self.seat = scheduler.seat
        self.main: simpy.Process
        self._scheduler = scheduler
        self._timeline = scheduler.timeline
        self._seq = 0

    def next_seq(self) -> int:
        self._seq += 1
        return self._seq

    @property
    def now(self) -> int:
        return self._timeline.now_ns

    @property
    def world(self) -> Mapping[str, Any]:
        return self._scheduler.world()

    def at(
        self,
        due_ns: int,
        phase: Phase,
        effect: Effect,
        *,
        kind: str,
        parent: Scheduled | str | None = None,
        ambient: bool = False,
    ) -> Entry:
        parent_id = parent.event.id if isinstance(parent, Scheduled) else parent
        return self._scheduler.at(self, due_ns, phase, effect, kind, parent_id, ambient)

    def after(
        self,
        parents: Sequence[Wait],
        delay_ns: int,
        phase: Phase,
        effect: Effect,
        *,
        kind: str,
        anchor_ns: int | None = None,
    ) -> Entry:
        entry = self._scheduler.register(self, 0, phase, effect, kind, None, False)

        def ready(_: simpy.Event) -> None:
            if entry.end is None:
                start = self.now if anchor_ns is None else anchor_ns
                entry.event = entry.event._replace(due_ns=start + delay_ns)
                self._scheduler.place(entry)

        self.all_of(parents).callbacks.append(ready)
        return entry

    def until(self, due_ns: int) -> Wait:
        return self._timeline.timeout(max(0, due_ns - self.now))

    def fact(self, topic: Topic, key: str) -> Wait:
        return self._scheduler.board.fact(topic, key)

    def known(self, topic: Topic, key: str) -> bool:
        return self._scheduler.board.known(topic, key)

    def publish(self, topic: Topic, key: str, value: Any = None) -> None:
        self._scheduler.board.publish(topic, key, value)

    def stream(self, topic: Topic) -> simpy.Store:
        return self._scheduler.board.stream(topic)

    def note(self, text: str) -> None:
        self._scheduler.note(self.source.name, text)

    def any_of(self, waits: Iterable[Wait]) -> Wait:
        return simpy.AnyOf(self._timeline, list(waits))

    def all_of(self, waits: Iterable[Wait]) -> Wait:
        return simpy.AllOf(self._timeline, list(waits))

    def process(self, steps: Steps) -> simpy.Process:
        return self._timeline.process(steps)
