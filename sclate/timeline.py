"""The queue: SimPy's environment, with int ns and a total order that does not depend on insertion.

SimPy keeps a heap of `(time, priority, insertion id, event)`. Here the priority is a tuple: `(0, p)` for
SimPy's own events (processes, conditions, timeouts, arrivals) and `(1, delta, phase, rank, seq)` for
dispatches. So at one instant everything internal drains before the next dispatch, and two dispatches never
compare by insertion id.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import Any

import simpy
from simpy.core import EmptySchedule
from simpy.events import NORMAL

MAX_DELTA = 1000
"""More deltas than this at one instant are a source that talks to itself."""

DispatchKey = tuple[int, int, int, int, int]


class Dispatch(simpy.Event):
    """The place of an event in the queue; its callbacks run when it is due."""

    def __init__(self, env: Timeline, due_ns: int, key: DispatchKey) -> None:
        super().__init__(env)
        self.key = key
        self.cancelled = False
        self._ok = True
        self._value = None
        heappush(env._queue, (due_ns, key, 0, self))


class Arrival(simpy.Event):
    """Something from outside, or an alarm that may be called off."""

    cancelled = False


class Timeline(simpy.Environment):
    """SimPy's environment over int ns, without its own `run`: the scheduler decides when to step."""

    _queue: Any  # heap of (instant, key, insertion id, event), see the module's docstring

    def __init__(self, start_ns: int) -> None:
        super().__init__(initial_time=start_ns)

    @property
    def now_ns(self) -> int:
        """The instant being processed."""
        return self._now  # type: ignore[return-value]  # SimPy's annotation says int or float

    def schedule(self, event: simpy.Event, priority: int = NORMAL, delay: float = 0) -> None:
        """SimPy's hook for its own events: they drain before any dispatch of the same instant."""
        heappush(self._queue, (self._now + int(delay), (0, int(priority)), next(self._eid), event))

    def arrive(self, at_ns: int) -> Arrival:
        """An internal event at an instant, for what comes from outside; ordered by arrival."""
        event = Arrival(self)
        event._ok, event._value = True, None
        heappush(self._queue, (max(at_ns, self._now), (0, int(NORMAL)), next(self._eid), event))
        return event

    def head(self) -> tuple[int, bool] | None:
        """Instant of the next entry and whether it is a dispatch; cancelled ones are dropped on the way."""
        queue = self._queue
        while queue:
            due, key, _, event = queue[0]
            if getattr(event, "cancelled", False):
                heappop(queue)
                continue
            return due, key[0] == 1
        return None

    def step(self) -> None:
        """Process the next entry. A failed event that nobody waits for raises its exception."""
        try:
            self._now, _, _, event = heappop(self._queue)
        except IndexError:
            raise EmptySchedule from None
        callbacks, event.callbacks = event.callbacks, None
        for callback in callbacks:
            callback(event)
        if not event._ok and not hasattr(event, "_defused"):
            raise event._value
