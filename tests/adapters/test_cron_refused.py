"""Protects a life from schedules that are none: they are refused with a reason that a source can catch."""

from __future__ import annotations

import pytest

from sclate_adapters.sources.cron import cron_instants

EXPRESSIONS = [
    *("", "*", "0 0 1", "99 99 * * *", "0 0 30 2 *", "* * * * * *", "0 0 * * * * *"),
    *("@daily", "r r * * *", "R(0-9) * * * *", "h h * * *", "a b c d e"),
]
ZONES = ["", "Mars/Olympus", "America", "../UTC", "/etc/passwd", "a\0b", "x" * 5000, "\udce9"]


@pytest.mark.parametrize("cron", EXPRESSIONS)
def test_an_expression_that_is_none(cron: str) -> None:
    with pytest.raises(ValueError):
        next(cron_instants(cron, "UTC", 0))


@pytest.mark.parametrize("zone", ZONES)
def test_a_zone_that_is_none(zone: str) -> None:
    with pytest.raises((ValueError, KeyError, OSError)):
        next(cron_instants("0 12 * * *", zone, 0))


@pytest.mark.parametrize("cron", ["0 12 * mar *", "0 12 * * fri", "*/7 1-3,5 1 1 0"])
def test_names_ranges_and_steps_are_fine(cron: str) -> None:
    assert next(cron_instants(cron, "UTC", 0)) > 0
