"""A model that does not answer: what the user is told meanwhile, and when a life gives up on it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from sclate.errors import FailureClass
from sclate_adapters.records import TurnRecord

GIVE_UP_AFTER = 3
"""Turns in a row that failed as `model`, none before them having gone well, after which a life ends."""


class Outage:
    """Tells when faults begin to be waited out, when they end, and not of each try.

    Args:
        note: shows a line.
    """

    def __init__(self, note: Callable[[str], None]) -> None:
        self._note = note
        self._since: datetime | None = None
        self._until: datetime | None = None

    def waiting(self, why: str, real_s: float) -> None:
        """A fault is waited out, for so many real seconds at most. Told once until then."""
        now = datetime.now(UTC)
        if self._until is not None and now <= self._until:
            return
        self._since = self._since or now
        self._until = now + timedelta(seconds=real_s)
        times = f"since {_clock(self._since)}, tried again until {_clock(self._until)}"
        self._note(f"  the model does not answer ({times}; simulated time stands still): {why}")

    def answered(self) -> None:
        """A call was answered."""
        if self._since is not None:
            lasted = datetime.now(UTC) - self._since
            self._since = self._until = None
            self._note(f"  the model answers again, after {lasted.total_seconds():.0f} s")


def _clock(instant: datetime) -> str:
    """The time of day where the user is: these are real seconds."""
    return f"{instant.astimezone():%H:%M:%S}"


class Patience:
    """Ends a life whose model has never answered.

    Args:
        give_up: ends it, with a class and a message.
    """

    def __init__(self, give_up: Callable[[FailureClass, str], None]) -> None:
        self._give_up = give_up
        self._lost = 0
        self._any_good = False

    def turn(self, record: TurnRecord) -> None:
        """A turn settled."""
        self._any_good = self._any_good or record.failure is None
        self._lost = self._lost + 1 if record.failure is FailureClass.MODEL else 0
        if self._lost == GIVE_UP_AFTER and not self._any_good:
            self._give_up(
                FailureClass.MODEL,
                f"the first {GIVE_UP_AFTER} turns in a row got no answer: {record.failure_message}",
            )
