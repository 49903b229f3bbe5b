"""The scheduler: decides what happens next, and when.

The loop below is the only place where asyncio and SimPy meet. SimPy holds the queue and runs the sources;
the clock says what time it is; the runner carries out effects. A step is: take what is due in the total
order, write it to the trace, start its effect. Between steps time either jumps (nobody holds a lease),
flows until the next due event, or stands still until something arrives.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any, Protocol

import simpy
import structlog

from sclate.clock import HybridClock, Motion
from sclate.context import Board, Entry, Registered
from sclate.errors import InvariantError, StalledError
from sclate.timeline import MAX_DELTA, Arrival, Dispatch, Timeline
from sclate_adapters.effects import Effect, RunHook, ShutdownAgent, StartAgent
from sclate_adapters.events import Event, EventEnd, EventSource, Origin, Outcome, Phase, Topic

log = structlog.get_logger()

ORIGIN_RANK = {Origin.SHARED: 0, Origin.BENCHMARK: 1, Origin.AGENT: 2}
PHASE_NAMES = {phase: phase.name.lower() for phase in Phase}
YIELD_EVERY = 64
"""Steps between two looks at the event loop while a backlog of due events drains."""


class Trace(Protocol):
    """Where the scheduler writes; `sclate.trace.TraceWriter` is the real one."""

    def write(self, sim_ns: int, type_: str, fields: dict[str, Any], *, hold: bool = False) -> int: ...
    def flush(self) -> None: ...


class Runner(Protocol):
    """Carries out effects. Returns the end at once, or something to await for it."""

    def start(self, event: Event) -> EventEnd | Awaitable[EventEnd]: ...


class NullTrace:
    """Keeps nothing."""

    def write(self, sim_ns: int, type_: str, fields: dict[str, Any], *, hold: bool = False) -> int:
        return 0

    def flush(self) -> None:
        return


def holds_the_timeline(effect: Effect) -> bool:
    """Whether nothing else is dispatched until the effect ended.

    So an earlier phase is complete before a later one at the same instant: a world update before the
    session that reads it, a shutdown before the next start.
    """
    if isinstance(effect, RunHook):
        return not effect.flow
    return isinstance(effect, StartAgent | ShutdownAgent)


class Parking:
    """A wait of an effect during which time may jump: for an instant, or for the agent.

    `wake` counts the effect as working again at once, not when its coroutine gets its turn; so time cannot
    jump in between.
    """

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def wake(self, value: Any = None) -> None:
        """End the wait; a second call does nothing."""
        if not self._future.done():
            self._scheduler._working += 1
            self._future.set_result(value)

    async def wait(self) -> Any:
        self._scheduler._working -= 1
        self._scheduler._arrived.set()
        try:
            return await self._future
        except asyncio.CancelledError:
            if self._future.cancelled():
                self._scheduler._working += 1
            raise


class Scheduler:
    """One life's scheduler.

    Args:
        clock: stands at the scenario's start.
        runner: carries out effects.
        trace: gets a line for every decision.
        seed: seeds every source's `rng`.
        world: the read-only view that sources see.
    """

    def __init__(
        self,
        clock: HybridClock,
        runner: Runner,
        trace: Trace,
        *,
        seed: int = 0,
        world: Callable[[], Mapping[str, Any]] = dict,
    ) -> None:
        self.clock = clock
        self.runner = runner
        self.trace = trace
        self.seed = seed
        self.world = world
        self.timeline = Timeline(clock.now())
        self.board = Board(self.timeline)
        self.seat = simpy.Resource(self.timeline, capacity=1)
        self.lateness_ns: list[int] = []
        self.by_source: Counter[str] = Counter()
        self.by_primitive: Counter[str] = Counter()
        self._sources: list[Registered] = []
        self._entries: dict[str, Entry] = {}
        self._waiting_sources = 0
        self._busy = 0  # events between dispatch and end, ambient ones included
        self._working = 0  # effects that run and are not parked: time does not jump meanwhile
        self._lasting = 0  # events on the timeline that keep the life going
        self._holding: Event | None = None
        self._at: tuple[int, int, tuple[int, int, int]] | None = None  # instant, delta, key of the last
        self._arrived = asyncio.Event()
        clock.on_change.append(lambda *_: self._arrived.set())
        self._stop_reason: str | None = None
        self._background: list[Callable[[], Coroutine[Any, Any, None]]] = []

    # --- sources ----------------------------------------------------------------------------------------

    def add_sources(self, sources: Sequence[EventSource]) -> None:
        """Register sources: rank is shared, benchmark, agent; then by name. Names are unique."""
        ordered = sorted(sources, key=lambda s: (ORIGIN_RANK[s.origin], s.name))
        names = [s.name for s in ordered]
        if len(set(names)) != len(names):
            raise InvariantError(f"two sources of one name: {names}")
        for rank, source in enumerate(ordered):
            registered = Registered(self, source, rank, random.Random(f"{self.seed}/{source.name}"))
            self._sources.append(registered)
            self._write("register", source=source.name, origin=source.origin, rank=rank)
        for registered in self._sources:
            process = self.timeline.process(registered.source.run(registered))
            registered.main = process
            if not registered.source.daemon:
                self._waiting_sources += 1
                process.callbacks.append(self._source_returned)

    def _source_returned(self, _: simpy.Event) -> None:
        self._waiting_sources -= 1

    # --- the timeline -----------------------------------------------------------------------------------

    def at(
        self,
        registered: Registered,
        due_ns: int,
        phase: Phase,
        effect: Effect,
        kind: str,
        parent: str | None,
        ambient: bool,
    ) -> Entry:
        """The only place where dispatches are made."""
        entry = self.register(registered, due_ns, phase, effect, kind, parent, ambient)
        self.place(entry)
        return entry

    def register(
        self,
        registered: Registered,
        due_ns: int,
        phase: Phase,
        effect: Effect,
        kind: str,
        parent: str | None,
        ambient: bool,
    ) -> Entry:
        """An event that exists but has no place yet: its parents decide when it is due."""
        seq, source = registered.next_seq(), registered.source
        event = Event(
            id=f"{source.name}:{seq}",
            source=source.name,
            origin=source.origin,
            kind=kind,
            due_ns=due_ns,
            phase=phase,
            effect=effect,
            parent=parent,
            ambient=ambient,
        )
        entry = Entry(self, event, registered, seq)
        self._entries[event.id] = entry
        return entry

    def place(self, entry: Entry) -> None:
        """Give a registered event its place in the total order `(due, delta, phase, rank, seq)`."""
        event, registered, now = entry.event, entry.registered, self.timeline.now_ns
        if not (event.ambient or registered.source.daemon):
            entry.lasting = True
            self._lasting += 1
        if event.due_ns > now:
            self._announce(event)
        when = max(event.due_ns, now)
        order = (int(event.phase), registered.rank, entry.seq)
        delta = 0
        if self._at is not None and self._at[0] == when:
            # The instant is being processed: what sorts before the last dispatch belongs to the next delta.
            delta = self._at[1] + (1 if order < self._at[2] else 0)
            if delta > MAX_DELTA:
                raise InvariantError(f"more than {MAX_DELTA} deltas at instant {when}: {event.source}")
        entry.dispatch = Dispatch(self.timeline, when, (1, delta, *order))
        entry.dispatch.callbacks.append(entry.on_due)

    def dispatch(self, entry: Entry) -> None:
        """An event is due: announce it, then start its effect."""
        event = entry.event
        effect, now = event.effect, self.clock.now()
        lateness = now - event.due_ns
        if lateness < 0:
            raise InvariantError(f"{event.id} dispatched {-lateness} ns before it is due")
        key = entry.dispatch.key if entry.dispatch else (1, 0, 0, 0, 0)
        self._at = (self.timeline.now_ns, key[1], key[2:])
        entry.dispatched = True
        self.lateness_ns.append(lateness)
        self.by_source[event.source] += 1
        self.by_primitive[effect.primitive] += 1
        self.trace.write(
            now,
            "dispatch",
            {
                "event": event.id,
                "source": event.source,
                "origin": event.origin,
                "kind": event.kind,
                "due_sim_ns": event.due_ns,
                "lateness_ns": lateness,
                "phase": PHASE_NAMES[event.phase],
                "delta": key[1],
                "parent": event.parent,
            },
            hold=True,
        )
        self.trace.write(now, "effect.start", {"event": event.id, "effect": effect})
        self.board.tell(Topic.DISPATCHED, event)
        self._busy += 1
        if holds_the_timeline(effect):
            self._holding = event
        end = self.runner.start(event)
        if isinstance(end, EventEnd):
            self._effect_ended(entry, end)
        else:
            self._working += 1
            entry.task = self._group.create_task(self._await_effect(entry, end), name=event.id)

    async def _await_effect(self, entry: Entry, pending: Awaitable[EventEnd]) -> None:
        end = await pending

        def ended() -> None:
            self._working -= 1
            self._effect_ended(entry, end)

        self.arrive(ended)

    def _effect_ended(self, entry: Entry, end: EventEnd) -> None:
        self._busy -= 1
        if self._holding is entry.event:
            self._holding = None
        self.end(entry, end)
        self.board.tell(Topic.EFFECT_ENDED, (entry.event, end))

    def end(self, entry: Entry, end: EventEnd) -> None:
        """Every event ends exactly once, dispatched or not."""
        if entry.end is not None:
            raise InvariantError(f"{entry.event.id} ended twice: {entry.end.outcome}, {end.outcome}")
        entry.end = end
        del self._entries[entry.event.id]
        if entry.lasting:
            self._lasting -= 1
        self._write(
            "effect.end",
            hold=True,
            event=entry.event.id,
            outcome=end.outcome,
            reason=end.reason or None,
            result=end.result or None,
        )
        entry.ended.succeed(end)

    def note(self, source: str, text: str) -> None:
        """What a source says for the record."""
        self._write("note", source=source, text=text)

    # --- what comes from outside ------------------------------------------------------------------------

    def arrive(self, callback: Callable[[], None]) -> None:
        """Something came from outside: it takes this instant, after all that is due before it."""
        self.timeline.arrive(self.clock.now()).callbacks.append(lambda _: callback())
        self._arrived.set()

    async def sleep_until(self, due_ns: int) -> None:
        """Return at a simulated instant; cancelling the wait takes it off the timeline."""
        parking = Parking(self)
        alarm = self.call_at(due_ns, parking.wake)
        try:
            await parking.wait()
        finally:
            alarm.cancelled = True

    def call_at(self, due_ns: int, callback: Callable[[], None]) -> Arrival:
        """Call back at a simulated instant; set `cancelled` on what is returned to call it off."""
        alarm = self.timeline.arrive(due_ns)
        alarm.callbacks.append(lambda _: callback())
        self._arrived.set()
        return alarm

    def beside(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Have `work` done beside the loop: it is cancelled when the loop ends, and its exception is the
        run's."""
        self._background.append(work)

    def stop(self, reason: str) -> None:
        """End at the next step: what has not happened is cancelled."""
        self._stop_reason = self._stop_reason or reason
        self._arrived.set()

    # --- the loop ---------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Run until every lasting source and event has ended, or `stop`.

        Raises:
            StalledError: sources wait for what can never come.
            InvariantError: see the module's invariants.
        """
        try:
            async with asyncio.TaskGroup() as self._group:
                beside = [self._group.create_task(work()) for work in self._background]
                try:
                    await self._loop()
                except Exception:
                    log.exception("the loop ended")  # now, not when every effect has been cancelled
                    raise
                await asyncio.sleep(0)  # an effect that was only just started must begin, to be cancelled
                for task in beside:
                    task.cancel()
                self._finish()
        except BaseExceptionGroup as group:
            raise group.exceptions[0] from group

    async def _loop(self) -> None:
        steps = 0
        while self._stop_reason is None and not self._over():
            head = self.timeline.head()
            if head is not None and self._due(*head):
                self.timeline.step()
                steps += 1
                if steps % YIELD_EVERY == 0:
                    await asyncio.sleep(0)
            elif head is not None and self.clock.motion is Motion.IDLE and not self._working:
                self.clock.jump(head[0])
            else:
                await self._wait(head)

    def _due(self, due_ns: int, is_dispatch: bool) -> bool:
        return due_ns <= self.clock.now() and not (is_dispatch and self._holding)

    def _over(self) -> bool:
        return not (self._waiting_sources or self._lasting or self._busy or self.seat.count)

    async def _wait(self, head: tuple[int, bool] | None) -> None:
        """Wait until the next event is due, a freeze reaches its limit, or something arrives."""
        self.trace.flush()
        timeout = self.clock.next_limit_s()
        if head is not None and self.clock.motion is Motion.FLOW and not (head[1] and self._holding):
            until_due = (head[0] - self.clock.now()) / 1e9
            timeout = until_due if timeout is None else min(timeout, until_due)
        if timeout is None and not self._busy and self.clock.motion is Motion.IDLE:
            raise StalledError(self._stalled())
        try:
            async with asyncio.timeout(timeout):
                await self._arrived.wait()
        except TimeoutError:
            for lease in self.clock.expire_due():
                self._write("clock", change="freeze_expired", reason=lease.reason)
        self._arrived.clear()

    def _stalled(self) -> str:
        waiting = [r.source.name for r in self._sources if r.main.is_alive and not r.source.daemon]
        return f"nothing is due and nobody works, yet these sources wait: {', '.join(waiting)}"

    def _finish(self) -> None:
        """Whatever is left ends now, exactly once; effects under way are cancelled."""
        reason = self._stop_reason or "life over"
        for entry in list(self._entries.values()):
            if entry.task is not None:
                entry.task.cancel()
                self._busy -= 1
            if entry.dispatch is None:
                self.end(entry, EventEnd(outcome=Outcome.EXPIRED, reason="parent not reached"))
            else:
                entry.dispatch.cancelled = True
                self.end(entry, EventEnd(outcome=Outcome.CANCELLED, reason=reason))

    def _announce(self, event: Event) -> None:
        self._write(
            "register",
            hold=True,
            event=event.id,
            kind=event.kind,
            due_sim_ns=event.due_ns,
            parent=event.parent,
        )

    def _write(self, type_: str, *, hold: bool = False, **fields: Any) -> None:
        self.trace.write(self.clock.now(), type_, fields, hold=hold)
