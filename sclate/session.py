"""One live session: the harness process, what is delivered to it, what it is seen to do, its turns.

Signals become facts on the timeline here. A turn runs from its first sign to its *settling*: the harness
says that it is idle, no model call is in flight, no background task is outstanding and nothing that was
delivered waits to be consumed. Turns that follow one another without idleness have a record each and settle
together. While a turn lasts, simulated time flows.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Literal, Protocol

from sclate.clock import HybridClock, Lease
from sclate.scheduler import Parking, Scheduler
from sclate_adapters.agent import AgentChannel
from sclate_adapters.effects import SessionPlan
from sclate_adapters.errors import FailureClass
from sclate_adapters.events import Topic
from sclate_adapters.records import Delivery, DeliveryState, TurnRecord
from sclate_adapters.signals import (
    Alive,
    BackgroundTask,
    Consumed,
    Failed,
    Idle,
    Signal,
    TurnFinished,
    TurnStarted,
)

REACTION_NS = 2_000_000_000
"""Simulated time, flowing, in which a harness takes up the end of a background task."""


class HarnessProcess(Protocol):
    """What a session needs of the harness's process."""

    async def write(self, data: bytes) -> None: ...


class SessionLog(Protocol):
    """Where a session's doings are written down, before anybody acts on them."""

    def signal(self, session: str, signal: Signal) -> None: ...
    def delivery(self, delivery: Delivery, state: DeliveryState) -> None: ...
    def turn(self, record: TurnRecord) -> None: ...


@dataclass
class _Turn:
    trigger: str
    started_sim_ns: int
    started_mono_ns: int
    deliveries: list[Delivery] = field(default_factory=list)
    text: str = ""
    stop: str = ""
    finished: bool = False
    failure: FailureClass | None = None
    message: str = ""
    recoverable: bool = False


class LiveSession:
    """The engine's side of a harness that runs.

    Args:
        turn_timeout_s: real seconds for a turn, from delivery to settling; over it the session fails as
            `timeout`.
        in_flight: how many model calls are under way.
        calls: how many model calls were made so far.
    """

    def __init__(
        self,
        plan: SessionPlan,
        channel: AgentChannel,
        scheduler: Scheduler,
        log: SessionLog,
        *,
        turn_timeout_s: float,
        in_flight: Callable[[], int],
        calls: Callable[[], int],
    ) -> None:
        self.plan = plan
        self.channel = channel
        self.process: HarnessProcess | None = None
        self.alive = False
        self._said_alive = self._in_reach = False
        self.settled = True
        """No turn is in progress and nothing waits to be consumed."""
        self.on_alive: list[Callable[[], None]] = []
        self.on_settled: list[Callable[[], None]] = []
        self.on_alarm: list[Callable[[bool], None]] = []
        self._rang_early = False  # a schedule of the harness's own rang before anybody waited for it
        self.turns = 0
        self.failure: tuple[FailureClass, str] | None = None
        self.stopping = False
        self._scheduler = scheduler
        self._clock: HybridClock = scheduler.clock
        self._log = log
        self._turn_timeout_s = turn_timeout_s
        self._in_flight = in_flight
        self._calls = calls
        self._calls_before = 0
        self._flow: Lease | None = None
        self._turn: _Turn | None = None
        self._ended: list[TurnRecord] = []  # turns that another followed before the agent was idle
        self._unconsumed: dict[str, tuple[Delivery, Parking]] = {}
        self._background: set[str] = set()
        self._idle = False
        self._started = 0  # turns that the harness said it began
        self._deadline: asyncio.TimerHandle | None = None
        self._session_deadline: asyncio.TimerHandle | None = None

    # --- leases -----------------------------------------------------------------------------------------

    @property
    def flow_lease(self) -> Lease | None:
        """The lease under which the agent works now; a latency policy may suspend it."""
        return self._flow

    def hold_time(self, reason: str) -> None:
        """Time flows from now on, for this reason, until the agent is idle again."""
        if self._flow is None:
            self._flow = self._clock.flow_lease(reason)

    def let_time_go(self) -> None:
        if self._flow is not None:
            flow, self._flow = self._flow, None
            self._clock.release(flow)

    def limit(self, session_s: float) -> None:
        """The session fails as `timeout` after so many real seconds."""
        self._session_deadline = asyncio.get_running_loop().call_later(
            session_s,
            lambda: self._scheduler.arrive(
                lambda: self.fail(FailureClass.TIMEOUT, f"the session took more than {session_s:g} s")
            ),
        )

    # --- in ---------------------------------------------------------------------------------------------

    async def deliver(self, delivery: Delivery) -> DeliveryState:
        """Write a delivery to the harness; returns once it was consumed, or never will be."""
        if self.failure or self.stopping or self.process is None or not self.alive:
            self._discharge(delivery, DeliveryState.UNDELIVERED)
            return DeliveryState.UNDELIVERED
        self.hold_time(f"turn {delivery.turn or delivery.id}")
        self._idle = False
        self.settled = False
        self._watch_deadline()
        consumed = Parking(self._scheduler)
        self._unconsumed[delivery.id] = (delivery, consumed)
        try:
            await self.process.write(self.channel.encode(delivery))
        except OSError as error:
            message = f"harness takes no input: {error}"
            self._scheduler.arrive(lambda: self.fail(FailureClass.AGENT, message))
        state: DeliveryState = await consumed.wait()
        return state

    async def until_settled(self, timeout_s: float) -> None:
        """Return when no turn is in progress any more, or after so many real seconds."""
        if not self.settled:
            settled = asyncio.Event()
            self.on_settled.append(settled.set)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(timeout_s):
                    await settled.wait()

    # --- out --------------------------------------------------------------------------------------------

    def on_output(self, stream: Literal["stdout", "stderr"], lines: Sequence[bytes], mono_ns: int) -> None:
        """Bytes from the harness become signals, in byte order, at this instant."""
        for line in lines:
            for signal in self.channel.decode(stream, line):
                self._scheduler.arrive(partial(self._on_signal, signal))

    def read_store(self, path: str, data: bytes | None) -> None:
        """A file of the harness's own, as the session left it."""
        for signal in self.channel.read_store(path, data):
            self._scheduler.arrive(partial(self._on_signal, signal))

    def on_exit(self, rc: int) -> None:
        """The harness process ended."""
        self._scheduler.arrive(lambda: self._on_exit(rc))

    def on_call_finished(self) -> None:
        self._scheduler.arrive(self._maybe_settle)

    def _on_exit(self, rc: int) -> None:
        if not self.stopping:
            self.fail(FailureClass.AGENT, f"harness exited with {rc}")

    def _on_signal(self, signal: Signal) -> None:
        self._log.signal(self.plan.id, signal)
        board = self._scheduler.board
        if isinstance(signal, Alive):
            self._said_alive = True
            self._maybe_alive()
        elif isinstance(signal, TurnStarted):
            self._started += 1
            self._end_finished()
            self._begin(signal.trigger).trigger = signal.trigger
            if signal.trigger == "alarm":
                self._rang()
        elif isinstance(signal, Consumed):
            for delivery_id in signal.ids:
                self._consume(delivery_id)
        elif isinstance(signal, TurnFinished):
            turn = self._begin("unknown")
            turn.text, turn.stop, turn.finished = signal.text, signal.stop, True
        elif isinstance(signal, BackgroundTask):
            if signal.running:
                self._background.add(signal.id)
                self.hold_time(f"background task {signal.id}")
            elif signal.id in self._background:
                self._background.discard(signal.id)
                if self._idle:
                    self._wait_for_reaction()
        elif isinstance(signal, Idle):
            self._idle = True
        elif isinstance(signal, Failed):
            turn = self._begin("unknown")
            turn.failure, turn.message, turn.recoverable = signal.failure, signal.message, False
        board.tell(Topic.SIGNAL, (self.plan.id, signal))
        self._maybe_settle()

    def model_in_reach(self) -> None:
        """The way to the model is open."""
        self._in_reach = True
        self._maybe_alive()

    def _maybe_alive(self) -> None:
        """Alive is a harness that says so and can reach its model."""
        if self._said_alive and self._in_reach and not self.alive:
            self._now_alive()
            self.let_time_go()
            self._scheduler.board.publish(Topic.SESSION_OPEN, self.plan.id, self.plan)

    # --- turns ------------------------------------------------------------------------------------------

    def _begin(self, trigger: str) -> _Turn:
        """The turn in progress, begun now if there is none. One that nobody sent is a turn too."""
        if self._turn is None:
            self.hold_time(f"turn ({trigger})")
            self.settled = False
            self._watch_deadline()
            self._idle = False
            self._calls_before = self._calls()
            self._turn = _Turn(trigger, self._scheduler.clock.now(), time.monotonic_ns())
        return self._turn

    def _consume(self, delivery_id: str) -> None:
        delivery, consumed = self._unconsumed.pop(delivery_id, (None, None))
        if delivery is None or consumed is None:
            return  # the harness acknowledges twice, or something that it made itself
        self._end_finished()
        self._begin("user").deliveries.append(delivery)
        self._log.delivery(delivery, DeliveryState.DELIVERED)
        if delivery.turn is not None:
            self._scheduler.board.publish(Topic.TURN_STARTED, delivery.turn, self._scheduler.timeline.now_ns)
        consumed.wake(DeliveryState.DELIVERED)

    def _maybe_settle(self) -> None:
        quiet = self._idle and not self._unconsumed and not self._background and not self._in_flight()
        if self._turn is not None and quiet:
            self._settle(self._turn)

    def fail_turn(self, failure: FailureClass, message: str, *, recoverable: bool = False) -> None:
        """Mark the turn in progress as failed; it still has to settle. `recoverable`: see `recover_turn`."""
        if self._turn is not None and self._turn.failure is None:
            self._turn.failure, self._turn.message = failure, message
            self._turn.recoverable = recoverable

    def recover_turn(self) -> None:
        """A harness that tries again and is answered has not failed: the first try was no end of the turn."""
        if self._turn is not None and self._turn.recoverable:
            self._turn.failure, self._turn.message, self._turn.recoverable = None, "", False

    def _wait_for_reaction(self) -> None:
        """The harness was idle when a background task ended: it may begin a turn about it, and says so soon."""
        self._idle = False
        started = self._started

        def nothing_came() -> None:
            if self._started == started:
                self._idle = True
                self._maybe_settle()

        self._scheduler.call_at(self._clock.now() + REACTION_NS, nothing_came)

    def _end_finished(self) -> None:
        """A turn that the harness has ended is over when the next begins; both settle when it is idle."""
        if self._turn is not None and self._turn.finished:
            self._ended.append(self._end(self._turn))

    def _settle(self, turn: _Turn) -> None:
        ended, self._ended = [*self._ended, self._end(turn)], []
        self._stop_deadline()
        for record in ended:
            for key in dict.fromkeys(
                [record.key, *(d.turn for d in record.deliveries if d.turn is not None)]
            ):
                settled = record.model_copy(update={"key": key})
                self._scheduler.board.publish(Topic.TURN_SETTLED, key, settled)
        self._now_settled()
        self.let_time_go()

    def _end(self, turn: _Turn) -> TurnRecord:
        self._turn = None
        self.turns += 1
        keys = [d.turn for d in turn.deliveries if d.turn is not None]
        record = TurnRecord(
            key=keys[0] if keys else f"{self.plan.id}/own-{self.turns}",
            session=self.plan.id,
            deliveries=tuple(turn.deliveries),
            trigger=turn.trigger,
            text=turn.text,
            stop=turn.stop,
            started_sim_ns=turn.started_sim_ns,
            ended_sim_ns=self._clock.now(),
            real_ns=time.monotonic_ns() - turn.started_mono_ns,
            calls=self._calls() - self._calls_before,
            failure=turn.failure,
            failure_message=turn.message,
        )
        self._log.turn(record)
        return record

    def take_early_alarm(self) -> bool:
        """Whether an alarm of the harness's own rang before anybody waited for one."""
        rang, self._rang_early = self._rang_early, False
        return rang

    def _rang(self, rang: bool = True) -> None:
        """Tell all who wait: due at one instant, several alarms may be one turn."""
        callbacks, self.on_alarm = self.on_alarm, []
        self._rang_early = rang and not callbacks
        for callback in callbacks:
            callback(rang)

    def _now_alive(self) -> None:
        self.alive = True
        callbacks, self.on_alive = self.on_alive, []
        for callback in callbacks:
            callback()

    def _now_settled(self) -> None:
        self.settled = True
        callbacks, self.on_settled = self.on_settled, []
        for callback in callbacks:
            callback()

    # --- failure ----------------------------------------------------------------------------------------

    def fail(self, failure: FailureClass, message: str) -> None:
        """The session cannot go on. Whoever waits for it learns so; it is still shut down as usual."""
        if self.failure is not None:
            return
        self.failure = (failure, message)
        waiting, self._unconsumed = self._unconsumed, {}
        self._background.clear()
        if self._turn is not None:
            turn = self._turn
            if turn.failure is None or turn.recoverable:
                turn.failure, turn.message = failure, message
            self._settle(turn)
        for delivery, consumed in waiting.values():
            self._discharge(delivery, DeliveryState.UNCERTAIN)
            consumed.wake(DeliveryState.UNCERTAIN)
        self._now_alive()
        self._now_settled()
        self._rang(False)
        self._stop_deadline()
        self.let_time_go()

    def close(self) -> None:
        """The session is shut down: what still waits will not come."""
        self._rang(False)
        if self._session_deadline is not None:
            self._session_deadline.cancel()
        if not self.settled:
            self.fail(FailureClass.SUBSTRATE, "the session was shut down")

    def _discharge(self, delivery: Delivery, state: DeliveryState) -> None:
        """A delivery that will not be answered: its turn settles, so that nobody waits for it."""
        self._log.delivery(delivery, state)
        board = self._scheduler.board
        if delivery.turn is None or board.known(Topic.TURN_SETTLED, delivery.turn):
            return
        failure, message = self.failure or (FailureClass.SUBSTRATE, "no session is open")
        now = self._clock.now()
        record = TurnRecord(
            key=delivery.turn,
            session=self.plan.id,
            deliveries=(delivery,),
            started_sim_ns=now,
            ended_sim_ns=now,
            failure=failure,
            failure_message=message,
        )
        self._log.turn(record)
        board.publish(Topic.TURN_SETTLED, delivery.turn, record)

    def _watch_deadline(self) -> None:
        if self._deadline is None:
            self._deadline = asyncio.get_running_loop().call_later(
                self._turn_timeout_s,
                lambda: self._scheduler.arrive(
                    lambda: self.fail(
                        FailureClass.TIMEOUT, f"no end of the turn within {self._turn_timeout_s:g} s"
                    )
                ),
            )

    def _stop_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
