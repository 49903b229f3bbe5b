"""The hybrid clock: simulated time flows, stands still, or jumps; leases decide which.

The real side is CLOCK_MONOTONIC, so that steps of the host's wall clock do not move simulated time.
Simulated instants are int ns since the Unix epoch, UTC.
"""

from __future__ import annotations

import bisect
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from sclate.errors import InvariantError, LeaseError


class Motion(StrEnum):
    """What time does now: `FLOW` at the real rate, `FROZEN` under a freeze lease, `IDLE` with no lease."""

    FLOW = "flow"
    FROZEN = "frozen"
    IDLE = "idle"


class Charge(StrEnum):
    """Whose doing real time is. `AGENT`: time flows. Under a freeze, what its lease says: a model call, the
    adapters' hooks and grading, the start and the saving of sessions. `ENGINE`: the scheduler's own steps,
    with no lease, and copies for graders."""

    AGENT = "agent"
    MODEL = "model"
    HOOKS = "hooks"
    SESSIONS = "sessions"
    ENGINE = "engine"


@dataclass(eq=False)
class Lease:
    """A named reason for time to flow or to stand still. Released once; a second release raises."""

    kind: Motion
    charge: Charge
    reason: str
    since_mono_ns: int
    limit_mono_ns: int | None = None
    suspended: int = 0
    released: bool = False
    expired: bool = field(default=False, compare=False)

    @property
    def active(self) -> bool:
        return not (self.released or self.expired or self.suspended)


class Holder(NamedTuple):
    """One line of the answer to "why does time (not) move?"."""

    kind: Motion
    reason: str
    held_real_ns: int


class _Segment(NamedTuple):
    mono_ns: int
    sim_ns: int
    flowing: bool


class HybridClock:
    """Maps CLOCK_MONOTONIC to simulated time by segments.

    Args:
        start_ns: the simulated instant at which the clock stands at first.
        monotonic_ns: the real clock; tests replace it.
    """

    def __init__(self, start_ns: int, monotonic_ns: Callable[[], int] = time.monotonic_ns) -> None:
        self._monotonic_ns = monotonic_ns
        self._segments = [_Segment(monotonic_ns(), start_ns, False)]
        self._leases: list[Lease] = []
        self._motion = Motion.IDLE
        self.on_change: list[Callable[[str, int], None]] = []
        """Called after each change with `flow`, `frozen`, `idle` or `jump`, and the instant."""
        self.before_stop: list[Callable[[], None]] = []
        """Called before flowing time comes to a stop: whoever can read it must stand still first."""
        self.jumped_ns = 0
        """Simulated time passed by jumps."""
        self._charge = Charge.ENGINE
        self._charged_to = self._segments[0].mono_ns
        self._charges = dict.fromkeys(Charge, 0)

    def now(self) -> int:
        """The simulated instant, int ns."""
        last = self._segments[-1]
        return last.sim_ns + (self._monotonic_ns() - last.mono_ns) if last.flowing else last.sim_ns

    @property
    def motion(self) -> Motion:
        return self._motion

    def holders(self) -> list[Holder]:
        """Active leases, oldest first."""
        mono = self._monotonic_ns()
        return [Holder(x.kind, x.reason, mono - x.since_mono_ns) for x in self._leases if x.active]

    def real_ns(self) -> dict[Charge, int]:
        """Real time by whose doing it was, up to now; all of it is in exactly one."""
        self._count()
        return dict(self._charges)

    def flow_lease(self, reason: str) -> Lease:
        """Time flows until it is released, unless somebody freezes it."""
        return self._take(Motion.FLOW, Charge.AGENT, reason, None)

    def freeze_lease(self, reason: str, charge: Charge, limit_s: float | None = None) -> Lease:
        """Time stands still until it is released. `limit_s`: real seconds until `expire_due` ends it."""
        return self._take(Motion.FROZEN, charge, reason, limit_s)

    def _take(self, kind: Motion, charge: Charge, reason: str, limit_s: float | None) -> Lease:
        mono = self._monotonic_ns()
        limit = None if limit_s is None else mono + round(limit_s * 1e9)
        lease = Lease(kind, charge, reason, mono, limit)
        self._leases.append(lease)
        self._settle()
        return lease

    def release(self, lease: Lease) -> None:
        """Raises `LeaseError` for a lease that was released before, or is not of this clock."""
        if lease.released or lease not in self._leases:
            raise LeaseError(f"lease {lease.reason!r} is not held")
        lease.released = True
        self._leases.remove(lease)
        self._settle()

    def suspend(self, lease: Lease) -> None:
        """The lease stops counting until `resume`: its holder waits for a scheduled instant."""
        lease.suspended += 1
        self._settle()

    def resume(self, lease: Lease) -> None:
        if lease.suspended == 0:
            raise LeaseError(f"lease {lease.reason!r} is not suspended")
        lease.suspended -= 1
        self._settle()

    @contextmanager
    def flow(self, reason: str) -> Iterator[Lease]:
        """Time flows inside, unless somebody freezes it."""
        lease = self.flow_lease(reason)
        try:
            yield lease
        finally:
            self.release(lease)

    @contextmanager
    def freeze(self, reason: str, charge: Charge) -> Iterator[Lease]:
        """Time stands still inside; freeze beats flow, and of two freezes the later one is charged."""
        lease = self.freeze_lease(reason, charge)
        try:
            yield lease
        finally:
            self.release(lease)

    def next_limit_s(self) -> float | None:
        """Real seconds until the earliest freeze limit, or None."""
        limits = [x.limit_mono_ns for x in self._leases if x.active and x.limit_mono_ns is not None]
        return max(0.0, (min(limits) - self._monotonic_ns()) / 1e9) if limits else None

    def expire_due(self) -> list[Lease]:
        """Ends the freezes whose real-time limit has passed; they count no more and stay to be released."""
        mono = self._monotonic_ns()
        due = [
            x for x in self._leases if x.active and x.limit_mono_ns is not None and x.limit_mono_ns <= mono
        ]
        for lease in due:
            lease.expired = True
        if due:
            self._settle()
        return due

    def jump(self, to_ns: int) -> None:
        """Move to an instant at once.

        Raises:
            InvariantError: backwards, or while anybody holds a lease.
        """
        now = self.now()
        if self._motion is not Motion.IDLE:
            raise InvariantError(f"jump to {to_ns} while time is held: {self.holders()}")
        if to_ns < now:
            raise InvariantError(f"jump back from {now} to {to_ns}")
        if to_ns > now:
            self.jumped_ns += to_ns - now
            self._segments.append(_Segment(self._monotonic_ns(), to_ns, False))
            self._tell("jump", to_ns)

    def sim_of_mono(self, mono_ns: int) -> int:
        """The simulated instant that CLOCK_MONOTONIC `mono_ns` showed; before the start, the start."""
        i = max(0, bisect.bisect_right(self._segments, mono_ns, key=lambda s: s.mono_ns) - 1)
        seg = self._segments[i]
        if not seg.flowing or mono_ns < seg.mono_ns:
            return seg.sim_ns
        return seg.sim_ns + mono_ns - seg.mono_ns

    def offset_ns(self) -> int:
        """Simulated minus real time (CLOCK_REALTIME): what a program in a sandbox has to add."""
        return self.now() - time.time_ns()

    def _count(self) -> None:
        mono = self._monotonic_ns()
        self._charges[self._charge] += mono - self._charged_to
        self._charged_to = mono

    def _settle(self) -> None:
        active = [x for x in self._leases if x.active]
        ruling = next(
            (x for x in reversed(active) if x.kind is Motion.FROZEN), active[-1] if active else None
        )
        motion = ruling.kind if ruling else Motion.IDLE
        if motion is not self._motion and self._motion is Motion.FLOW:
            for stop in self.before_stop:
                stop()
        self._count()
        self._charge = ruling.charge if ruling else Charge.ENGINE
        if motion is self._motion:
            return
        mono, now = self._monotonic_ns(), self.now()
        self._motion = motion
        self._segments.append(_Segment(mono, now, motion is Motion.FLOW))
        self._tell(motion.value, now)

    def _tell(self, change: str, now: int) -> None:
        for listener in self.on_change:
            listener(change, now)
