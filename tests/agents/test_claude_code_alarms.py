"""Protects the instants at which Claude Code's own schedules are expected to ring, against measured ones."""

from __future__ import annotations

from datetime import datetime

import pytest

from sclate_adapters.signals import CronSet
from sclate_agents.harness.claude_code.alarms import ring_ns

S = 1_000_000_000
NO_SPREAD, HALF, ALL = "00000000", "80000000", "ffffffff"


def ns(text: str) -> int:
    return round(datetime.fromisoformat(text).timestamp() * 1000) * 1_000_000


def job(id_: str, cron: str, zone: str = "UTC", *, recurring: bool = True) -> CronSet:
    return CronSet(id=id_, cron=cron, zone=zone, prompt="p", recurring=recurring)


def rings(at: str, set_at: str, wanted: CronSet) -> None:
    late_s = (ring_ns(wanted, ns(set_at)) - ns(at)) / S
    assert abs(late_s) < 0.05, f"{late_s} s off"


def test_it_rings_when_the_real_one_was_seen_to_ring() -> None:
    """2.1.332: set at :31.898 of a minute, rang 54.2 s later; it looks at its clock once a second."""
    set_ns = ns("2031-03-03T09:00:31.898+00:00")
    after_s = (ring_ns(job("d942d3b8", "* * * * *"), set_ns) - set_ns) / S
    assert 53.2 < after_s <= 54.2


@pytest.mark.parametrize(
    ("id_", "cron", "at"),
    [
        (NO_SPREAD, "47 * * * *", "2031-03-03T09:47:00+00:00"),
        (HALF, "47 * * * *", "2031-03-03T10:02:00+00:00"),
        (ALL, "47 * * * *", "2031-03-03T10:17:00+00:00"),
        (HALF, "30 3 * * *", "2031-03-04T04:00:00+00:00"),
        (ALL, "30 3 * * 1", "2031-03-10T04:00:00+00:00"),
        (HALF, "*/10 * * * *", "2031-03-03T09:12:30+00:00"),
        ("memory-x", "47 * * * *", "2031-03-03T09:47:00+00:00"),
    ],
)
def test_a_recurring_one_is_late_by_its_spread_half_an_hour_at_most(id_: str, cron: str, at: str) -> None:
    rings(at, "2031-03-03T09:00:00+00:00", job(id_, cron))


def test_one_of_every_five_minutes_is_early_by_its_period() -> None:
    rings("2031-03-03T09:05:16.5+00:00", "2031-03-03T09:00:31.5+00:00", job(ALL, "*/5 * * * *"))


@pytest.mark.parametrize(
    ("id_", "cron", "at"),
    [
        (HALF, "30 14 4 3 *", "2031-03-04T14:29:15+00:00"),
        (HALF, "0 14 4 3 *", "2031-03-04T13:59:15+00:00"),
        (HALF, "31 14 4 3 *", "2031-03-04T14:31:00+00:00"),
        (NO_SPREAD, "30 14 4 3 *", "2031-03-04T14:30:00+00:00"),
    ],
)
def test_a_one_off_is_early_on_the_half_hour_and_punctual_else(id_: str, cron: str, at: str) -> None:
    rings(at, "2031-03-03T09:00:00+00:00", job(id_, cron, recurring=False))


def test_a_one_off_does_not_ring_before_it_was_set() -> None:
    rings(
        "2031-03-03T09:29:30+00:00",
        "2031-03-03T09:29:30+00:00",
        job(ALL, "30 9 3 3 *", recurring=False),
    )


def test_it_reads_the_wall_clock_of_the_agents_zone() -> None:
    rings(
        "2031-03-04T03:30:00+08:00",
        "2031-03-03T09:00:00+00:00",
        job(NO_SPREAD, "30 3 * * *", "Asia/Shanghai"),
    )


def test_a_time_that_does_not_exist_is_left_out() -> None:
    """On 30 March 2031 clocks in Berlin go from 02:00 to 03:00."""
    wanted = job(NO_SPREAD, "30 2 * * *", "Europe/Berlin")
    rings("2031-03-31T02:30:00+02:00", "2031-03-29T12:00:00+01:00", wanted)


def test_a_time_that_comes_twice_is_taken_once() -> None:
    """On 26 October 2031 they go from 03:00 to 02:00."""
    wanted = job(NO_SPREAD, "30 2 * * *", "Europe/Berlin")
    rings("2031-10-26T02:30:00+02:00", "2031-10-25T12:00:00+02:00", wanted)
    rings("2031-10-27T02:30:00+01:00", "2031-10-26T02:30:00+02:00", wanted)


def test_each_ring_comes_after_the_last() -> None:
    wanted, last = job("d942d3b8", "*/10 * * * *"), ns("2031-03-03T09:00:00+00:00")
    for _ in range(50):
        following = ring_ns(wanted, last)
        assert 0 < following - last <= 1200 * S
        last = following


@pytest.mark.parametrize(
    ("cron", "zone", "error"),
    [("61 * * * *", "UTC", ValueError), ("x", "UTC", ValueError), ("0 3 * * *", "No/Where", KeyError)],
)
def test_what_can_never_ring(cron: str, zone: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        ring_ns(job(HALF, cron, zone), ns("2031-03-03T09:00:00+00:00"))
