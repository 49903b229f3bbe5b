"""Protects what a run shows: the simulated date, the score, who holds the clock; and no obedience to text."""

from __future__ import annotations

import io
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import pytest
from rich.console import Console

from sclate.clock import HybridClock
from sclate.progress import Lines, LiveLine, Quiet, local_time, make_progress, plain
from sclate_adapters.benchmark import Scenario
from sclate_adapters.effects import SessionPlan
from sclate_adapters.judgments import Judgment, Subject, SubjectKind
from sclate_adapters.records import LifeKey

START = 1_930_006_800_000_000_000  # 2031-02-28T01:00:00Z
DAY = 86_400_000_000_000


@dataclass
class StandIn:
    """The parts of a life that progress looks at."""

    clock: HybridClock = field(default_factory=lambda: HybridClock(START))
    key: LifeKey = field(default_factory=lambda: LifeKey(scenario="s", arm="a+b"))
    scenario: Scenario = field(default_factory=lambda: Scenario(id="s", start_ns=START, zone="Asia/Shanghai"))
    judgments: list[Judgment] = field(default_factory=list)
    usage: Counter[str] = field(default_factory=Counter)


def judgment(passed: bool | None) -> Judgment:
    return Judgment(subject=Subject(kind=SubjectKind.TURN, keys=("t",)), score=None, passed=passed)


def console(terminal: bool) -> tuple[Console, io.StringIO]:
    out = io.StringIO()
    return Console(file=out, force_terminal=terminal, width=200, markup=False, highlight=False), out


def lived(progress: Any, life: StandIn, **plan: Any) -> None:
    progress.life_started(life)
    life.clock.jump(START + DAY)
    life.judgments += [judgment(True), judgment(False), judgment(None)]
    life.usage["input_tokens"] += 1234
    progress.session(SessionPlan(start_ns=START, **({"id": "day02"} | plan)), life)


@pytest.mark.parametrize(
    ("zone", "shown"),
    [("UTC", "Fri 2031-02-28 01:00:00"), ("America/New_York", "Thu 2031-02-27 20:00:00")],
)
def test_instants_are_shown_with_weekday_in_the_zone(zone: str, shown: str) -> None:
    assert local_time(START + 999_999_999, zone) == shown


def test_off_a_terminal_a_session_is_a_line() -> None:
    to, out = console(terminal=False)
    progress = make_progress(to, quiet=False)
    assert type(progress) is Lines
    lived(progress, StandIn(), wake=True)
    progress.close()
    first, second = out.getvalue().splitlines()
    assert first == "life " + StandIn().key.slug()
    assert second.startswith("  Sat 2031-03-01 09:00:00  day02 (wake)  passed 1/2  1,234 tokens  ")
    assert "\x1b" not in out.getvalue()


def test_a_missing_judgment_is_in_no_denominator_and_unknown_tokens_are_not_zero() -> None:
    to, out = console(terminal=False)
    life = StandIn()
    Lines(to).session(SessionPlan(id="d", start_ns=START), life)  # type: ignore[arg-type]
    assert "passed 0/0" in out.getvalue()
    assert "tokens" not in out.getvalue()


def test_a_terminal_shows_who_holds_the_clock() -> None:
    to, out = console(terminal=True)
    progress = make_progress(to, quiet=False)
    assert isinstance(progress, LiveLine)
    life = StandIn()
    lived(progress, life)
    with life.clock.freeze("a cold\x1b[31m start"):
        progress._live.refresh()
    progress._live.refresh()
    progress.close()
    shown = out.getvalue()
    assert "time held by: a cold\\x1b[31m start" in shown
    assert "time held by: nobody" in shown
    assert "Sat 2031-03-01 09:00:00  day02  passed 1/2" in shown


def test_quiet_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    to, out = console(terminal=True)
    progress = make_progress(to, quiet=True)
    assert isinstance(progress, Quiet)
    progress.note("x")
    lived(progress, StandIn())
    progress.close()
    assert (out.getvalue(), *capsys.readouterr()) == ("", "", "")


@pytest.mark.parametrize("terminal", [True, False])
def test_text_from_outside_is_neither_markup_nor_control(terminal: bool) -> None:
    to, out = console(terminal)
    progress = make_progress(to, quiet=False)
    progress.note("[bold]\x1b[2J\x07\u202eevil :smile:")
    progress.close()
    assert "[bold]\\x1b[2J\\x07\\u202eevil :smile:" in out.getvalue()


def test_plain_keeps_what_can_be_read() -> None:
    assert plain("8€ 漢字\nnext") == "8€ 漢字\nnext"
    assert plain("\ud800\t") == "\\ud800\\t"
