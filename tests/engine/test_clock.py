"""Protects the hybrid clock: leases, freeze beats flow, jumps, limits, the map back from real time."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sclate.clock import Charge, HybridClock, Motion
from sclate.errors import InvariantError, LeaseError

from .kit import T0, FakeMonotonic, S


@pytest.fixture
def mono() -> FakeMonotonic:
    return FakeMonotonic()


@pytest.fixture
def clock(mono: FakeMonotonic) -> HybridClock:
    return HybridClock(T0, mono)


def test_time_stands_still_without_a_lease(clock: HybridClock, mono: FakeMonotonic) -> None:
    mono.ns += 9 * S
    assert clock.now() == T0
    assert clock.motion is Motion.IDLE


def test_freeze_beats_flow(clock: HybridClock, mono: FakeMonotonic) -> None:
    with clock.flow("turn"):
        mono.ns += 2 * S
        with clock.freeze("grading", Charge.HOOKS):
            mono.ns += 60 * S
            assert [h.reason for h in clock.holders()] == ["turn", "grading"]
            with clock.freeze("copy", Charge.ENGINE):
                mono.ns += 40 * S
        mono.ns += 3 * S
    mono.ns += 50 * S
    assert clock.now() == T0 + 5 * S
    assert clock.real_ns() == {
        Charge.AGENT: 5 * S,
        Charge.MODEL: 0,
        Charge.HOOKS: 60 * S,
        Charge.SESSIONS: 0,
        Charge.ENGINE: 90 * S,
    }


def test_jump_needs_that_nobody_holds_time(clock: HybridClock) -> None:
    with clock.flow("turn"), pytest.raises(InvariantError, match="turn"):
        clock.jump(T0 + S)
    clock.jump(T0 + S)
    with pytest.raises(InvariantError, match="back"):
        clock.jump(T0)


def test_a_second_release_raises(clock: HybridClock) -> None:
    lease = clock.flow_lease("x")
    clock.release(lease)
    with pytest.raises(LeaseError):
        clock.release(lease)
    with pytest.raises(LeaseError):
        clock.resume(clock.flow_lease("y"))


def test_a_freeze_expires_at_its_limit(clock: HybridClock, mono: FakeMonotonic) -> None:
    with clock.flow("turn"):
        lease = clock.freeze_lease("provider", Charge.MODEL, limit_s=10)
        assert clock.next_limit_s() == 10
        mono.ns += 10 * S
        assert clock.expire_due() == [lease]
        mono.ns += S
        assert clock.now() == T0 + S


def test_a_suspended_flow_lets_time_jump(clock: HybridClock) -> None:
    with clock.flow("turn") as lease:
        clock.suspend(lease)
        clock.jump(T0 + S)
        clock.resume(lease)
        assert clock.motion is Motion.FLOW


@given(st.lists(st.sampled_from(["flow", "freeze", "release", "jump", "tick"]), max_size=60))
def test_time_never_goes_back_and_every_real_instant_maps(actions: list[str]) -> None:
    """Any sequence of leases, jumps and ticks: monotone, and `sim_of_mono` repeats what `now` said."""
    mono = FakeMonotonic()
    clock, began = HybridClock(T0, mono), mono.ns
    leases = []
    seen = []
    for action in actions:
        if action in ("flow", "freeze"):
            leases.append(
                clock.flow_lease(action) if action == "flow" else clock.freeze_lease(action, Charge.HOOKS)
            )
        elif action == "release" and leases:
            clock.release(leases.pop())
        elif action == "jump" and clock.motion is Motion.IDLE:
            clock.jump(clock.now() + 7)
        elif action == "tick":
            mono.ns += 1000
            seen.append((mono.ns, clock.now()))
            mono.ns += 1000
    assert sum(clock.real_ns().values()) == mono.ns - began
    assert [s for _, s in seen] == sorted(s for _, s in seen)
    assert [clock.sim_of_mono(m) for m, _ in seen] == [s for _, s in seen]
