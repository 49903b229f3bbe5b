"""Events, their total order, and the sources that put them on the timeline.

A source is a SimPy process over a `SourceContext`. It is a deterministic function of what the context
gives it: it does no I/O and reads no clock. Every answer from outside reaches it as a *fact* (level
triggered: known from then on) or in a *stream* (edge triggered), and is in the trace; so resume and replay
rebuild sources by feeding them the recorded answers.
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Generator, Iterable, Mapping, Sequence
from enum import IntEnum, StrEnum
from typing import Any, NamedTuple

import simpy
from pydantic import Field

from sclate_adapters.base import DurationNs, JsonDict, Record, SimNs
from sclate_adapters.effects import Effect

Wait = simpy.Event
Steps = Generator[Wait, Any, None]
"""What a source's process is: it yields SimPy events and gets their values."""


class Phase(IntEnum):
    """Order at one simulated instant."""

    WORLD = 0
    SESSION = 1
    USER = 2
    AGENT = 3
    GRADING = 4
    BOOKKEEPING = 5


class Origin(StrEnum):
    SHARED = "shared"
    BENCHMARK = "benchmark"
    AGENT = "agent"


class Outcome(StrEnum):
    """The one end of every event."""

    DONE = "done"
    CANCELLED = "cancelled"
    FAILED = "failed"
    EXPIRED = "expired"


class EventEnd(Record):
    """How an event ended, with its effect's result."""

    outcome: Outcome
    result: JsonDict = Field(default_factory=dict)
    reason: str = ""

    @property
    def ok(self) -> bool:
        return self.outcome is Outcome.DONE


class Event(NamedTuple):
    """One entry of the timeline. `ambient` events (a cron's next run) do not keep a life going.

    A named tuple, not a `Record`: one is made for every dispatch, by the engine alone.
    """

    id: str
    source: str
    origin: Origin
    kind: str
    due_ns: SimNs
    phase: Phase
    effect: Effect
    parent: str | None = None
    ambient: bool = False


class PlannedEvent(Record):
    """A line of the timeline as known before anything runs (`--dry-run`)."""

    due_ns: SimNs
    source: str
    origin: Origin
    kind: str
    phase: Phase
    label: str = ""


class Topic(StrEnum):
    """Names of facts and streams.

    Facts (`ctx.fact(topic, key)`), with their value:
      SESSION_OPEN session id -> SessionPlan, once the harness is alive;
      SESSION_WORK_DONE session id -> None, when its last turn is settled and judged (a source publishes it);
      SESSION_CLOSED session id -> SessionRecord, or None when it never opened;
      TURN_STARTED turn key -> instant (int ns); TURN_SETTLED turn key -> TurnRecord;
      JUDGMENT Subject.key -> Judgment, or None for what the policy does not select;
      EVENT_ENDED event id -> EventEnd.
    Streams (`ctx.stream(topic)`):
      SIGNAL of (session id, Signal); WORLD_WRITE of WorldWrite;
      DISPATCHED of Event and EFFECT_ENDED of (Event, EventEnd), for sources that watch the timeline.
    """

    SESSION_OPEN = "session.open"
    SESSION_WORK_DONE = "session.work_done"
    SESSION_CLOSED = "session.closed"
    TURN_STARTED = "turn.started"
    TURN_SETTLED = "turn.settled"
    JUDGMENT = "judgment"
    EVENT_ENDED = "event.ended"
    SIGNAL = "signal"
    WORLD_WRITE = "world.write"
    DISPATCHED = "dispatched"
    EFFECT_ENDED = "effect.ended"


class Scheduled(ABC):
    """A source's handle on an event that it put on the timeline."""

    event: Event
    ended: Wait
    """Triggers with the `EventEnd`."""

    @abstractmethod
    def cancel(self, reason: str) -> bool:
        """Take the event off the timeline before its dispatch; False when it is too late."""


class SourceContext(ABC):
    """All that a source may know and do."""

    rng: random.Random
    """Seeded by the run's seed and the source's name."""
    seat: simpy.Resource
    """The agent's one seat: a session, also a wake session, holds it while the harness is alive."""

    @property
    @abstractmethod
    def now(self) -> SimNs:
        """The instant being processed, int ns UTC."""

    @property
    @abstractmethod
    def world(self) -> Mapping[str, Any]:
        """Read-only view of the benchmark's world, empty where it provides none."""

    @abstractmethod
    def at(
        self,
        due_ns: SimNs,
        phase: Phase,
        effect: Effect,
        *,
        kind: str,
        parent: Scheduled | str | None = None,
        ambient: bool = False,
    ) -> Scheduled:
        """Put an event on the timeline. One that is already due is dispatched next, its lateness recorded."""

    @abstractmethod
    def after(
        self,
        parents: Sequence[Wait],
        delay_ns: DurationNs,
        phase: Phase,
        effect: Effect,
        *,
        kind: str,
        anchor_ns: SimNs | None = None,
    ) -> Scheduled:
        """An event that depends on `parents`: due `delay_ns` after the last of them triggered, or after
        `anchor_ns` where the instant is known better. If they never come it ends as
        `expired: parent not reached`."""

    @abstractmethod
    def until(self, due_ns: SimNs) -> Wait:
        """Triggers at an instant, or at once when that is past. Not a dispatch; keeps the life going."""

    @abstractmethod
    def fact(self, topic: Topic, key: str) -> Wait:
        """Triggers once the fact is known, with its value."""

    @abstractmethod
    def known(self, topic: Topic, key: str) -> bool:
        """Whether the fact is known already."""

    @abstractmethod
    def publish(self, topic: Topic, key: str, value: Any = None) -> None:
        """Make a fact known. Publishing it twice is an error."""

    @abstractmethod
    def stream(self, topic: Topic) -> simpy.Store:
        """A new queue that gets every item of the topic from now on; `yield store.get()`."""

    @abstractmethod
    def note(self, text: str) -> None:
        """Say something for the record: a line of the trace, which nobody acts on."""

    @abstractmethod
    def any_of(self, waits: Iterable[Wait]) -> Wait: ...

    @abstractmethod
    def all_of(self, waits: Iterable[Wait]) -> Wait: ...

    @abstractmethod
    def process(self, steps: Steps) -> simpy.Process:
        """Run a further process of this source beside the first."""


class EventSource(ABC):
    """Something that puts events on the timeline.

    A life ends when every source that is not a `daemon` has returned and their events have ended. Names
    are unique in a life and give the source its rank: shared, benchmark, agent; then by name.
    """

    name: str
    origin: Origin
    daemon: bool = False

    @abstractmethod
    def run(self, ctx: SourceContext) -> Steps:
        """The source's process."""

    def planned(self) -> Iterable[PlannedEvent]:
        """What is known of its timeline beforehand."""
        return ()
