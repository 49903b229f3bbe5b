"""What a life leaves behind as it goes: the trace, and a folder per session."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from sclate.clock import HybridClock
from sclate.errors import FailureClass, InvariantError
from sclate.trace import TraceWriter, dumps, write_json
from sclate_adapters.effects import SessionPlan
from sclate_adapters.judgments import Judgment
from sclate_adapters.records import CallRecord, Delivery, DeliveryState, SessionRecord, TurnRecord, WorldWrite
from sclate_adapters.signals import Signal


class LifeLog:
    """Writes trace lines and session files; knows which delivery ended how.

    Args:
        on_turn: called with every settled turn, after it was written.
    """

    def __init__(self, folder: Path, trace: TraceWriter) -> None:
        self.folder = folder
        self.trace = trace
        self.on_turn: Callable[[TurnRecord], None] = lambda record: None
        self.on_session: Callable[[SessionPlan], None] = lambda plan: None
        self.on_session_end: Callable[[SessionRecord], None] = lambda record: None
        self.on_judgment: Callable[[Judgment], None] = lambda judgment: None
        self.deliveries: dict[str, DeliveryState] = {}
        self._session: Path | None = None
        self._count = 0
        self._clock: HybridClock | None = None

    def attach(self, clock: HybridClock) -> None:
        """Trace every change of the clock."""
        self._clock = clock
        clock.on_change.append(self._clock_changed)

    def _clock_changed(self, change: str, now: int) -> None:
        assert self._clock is not None
        holders = [f"{h.kind.value}: {h.reason}" for h in self._clock.holders()]
        self._trace(now, "clock", change=change, holders=holders)

    def _trace(self, now: int, type_: str, **fields: Any) -> None:
        self.trace.write(now, type_, fields)

    @property
    def _now(self) -> int:
        assert self._clock is not None
        return self._clock.now()

    def _append(self, name: str, record: Any) -> None:
        """One line in a file of the open session."""
        if self._session is None:
            return
        fd = os.open(self._session / name, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            os.write(fd, dumps(record) + b"\n")
        finally:
            os.close(fd)

    # --- sessions ---------------------------------------------------------------------------------------

    def session_opened(self, plan: SessionPlan) -> None:
        self._count += 1
        self._session = self.folder / "sessions" / f"{self._count:03d}-{_file_name(plan.id)}"
        self._session.mkdir(parents=True)
        self._trace(self._now, "session", session=plan.id, change="opening", wake=plan.wake, title=plan.title)
        self.on_session(plan)

    def session_closed(self, record: SessionRecord) -> None:
        assert self._session is not None
        write_json(self._session / "state.json", record)
        self._trace(self._now, "session", session=record.id, change="closed", record=record)
        self.trace.sync()
        self._session = None
        self.on_session_end(record)

    def clock_probed(self, now: int, session: str, off_ns: int) -> None:
        self._trace(now, "session", session=session, change="clock probed", off_ns=off_ns)

    # --- what happens in them ---------------------------------------------------------------------------

    def signal(self, session: str, signal: Signal) -> None:
        self._trace(self._now, "signal", session=session, **signal.model_dump(mode="json"))

    def delivery(self, delivery: Delivery, state: DeliveryState) -> None:
        if delivery.id in self.deliveries:
            raise InvariantError(f"delivery {delivery.id} ended twice")
        self.deliveries[delivery.id] = state
        self._trace(self._now, "delivery", delivery=delivery.id, session=delivery.session, state=state.value)
        self._append("transcript.jsonl", {"type": "delivery", "state": state.value, "delivery": delivery})

    def turn(self, record: TurnRecord) -> None:
        self._append("transcript.jsonl", {"type": "turn", "turn": record})
        short = record.model_dump(mode="json", exclude={"deliveries", "text"})
        self._trace(self._now, "turn", turn=short, deliveries=[d.id for d in record.deliveries])
        self.on_turn(record)

    def call(self, record: CallRecord) -> None:
        self._append("calls.jsonl", record)
        self._trace(
            self._now,
            "call",
            call=record.seq,
            session=record.session,
            turn=record.turn,
            route=record.route,
            call_class=record.call_class,
            status=record.status,
            usage=record.usage,
            start_sim_ns=record.start_sim_ns,
            end_sim_ns=record.end_sim_ns,
            error=record.error,
        )

    def judgment(self, now: int, judgment: Judgment) -> None:
        self._append("judgments.jsonl", judgment)
        self._trace(
            now,
            "judgment",
            subject=judgment.subject.key,
            score=judgment.score,
            passed=judgment.passed,
            failure=judgment.failure,
        )
        self.trace.sync()
        self.on_judgment(judgment)

    def world(self, write: WorldWrite) -> None:
        self._trace(self._now, "world", write=write)

    def fault(self, now: int, failure: FailureClass, message: str) -> None:
        self._trace(now, "fault", failure=failure.value, message=message)

    def check_deliveries(self, dispatched: Sequence[Delivery]) -> None:
        """Every delivery that was dispatched is accounted for: one whose effect was broken off is uncertain.

        Raises:
            InvariantError: one was accounted for that was never dispatched.
        """
        for delivery in dispatched:
            if delivery.id not in self.deliveries:
                self.delivery(delivery, DeliveryState.UNCERTAIN)
        unknown = self.deliveries.keys() - {delivery.id for delivery in dispatched}
        if unknown:
            raise InvariantError(f"deliveries that nobody dispatched: {sorted(unknown)}")


def _file_name(text: str) -> str:
    """A text as part of a file's name. A wake session's id has what the agent called its schedule: it must
    lead nowhere."""
    return re.sub(r"[^\w.-]", "_", text, flags=re.ASCII)[:80]
