"""Protects what a run shows: where the life stands, in its own zone, and text from outside shown, not obeyed."""

from __future__ import annotations

import re
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from sclate.cli.report import summary_lines
from sclate.clock import Charge, HybridClock
from sclate.failures import count_failures
from sclate.progress import Lines, LiveLine, Quiet, local_time, make_progress, plain
from sclate.run import LifeSummary, RunSummary
from sclate_adapters.effects import SessionPlan
from sclate_adapters.errors import FailureClass
from sclate_adapters.judgments import Judgment, Subject, SubjectKind
from sclate_adapters.records import LifeKey, SessionRecord, Snapshot

START = 1_929_920_400_000_000_000  # 2031-02-27T01:00:00Z
HOSTILE = "q\x1b]0;P3\x07\x1b[2J\x1b[8mhidden\rover\u202e[/red]m[bold] \udce9 \x9b31m"
SHOWN = r"q\x1b]0;P3\x07\x1b[2J\x1b[8mhidden\rover\u202e[/red]m[bold] \udce9 \x9b31m"
OURS = re.compile(r"\x1b\[(\?25[lh]|[0-9]*[AKG]|0m)")
"""What a line that is rewritten needs: cursor off and on, up, erase the line."""


def a_life(scenario: str = "week") -> Any:
    """What progress looks at of a life."""
    return SimpleNamespace(
        key=LifeKey(scenario=scenario, arm="reference+none"),
        clock=HybridClock(START),
        scenario=SimpleNamespace(start_ns=START, zone="Asia/Shanghai"),
        judgments=[judged(True), judged(False), judged(None)],
        usage={"input_tokens": 1200, "output_tokens": 34},
    )


def judged(passed: bool | None) -> Judgment:
    subject = Subject(kind=SubjectKind.TURN, keys=("d1/q",))
    return Judgment(subject=subject, score=None if passed is None else float(passed), passed=passed)


def a_session(text: str, failure: FailureClass | None = None) -> SessionRecord:
    state = Snapshot(world="w", workspace="w", harness="h", memory="m")
    return SessionRecord(
        id=text,
        wake=True,
        started_sim_ns=START,
        ended_sim_ns=START,
        real_ns=1,
        before=state,
        after=state,
        failure=failure,
        failure_message=text if failure else "",
    )


def a_summary(text: str) -> RunSummary:
    life = LifeSummary(
        key=LifeKey(scenario=text, arm="a+m"),
        figures={text.replace("/", ""): 0.5, "mean_score": None, "group/inner": 1.0},
        judged=3,
        passed=1,
        missing=1,
        sessions=2,
        wake_sessions=1,
        turns=3,
        calls=4,
        tokens={"input_tokens": 12000},
        calls_without_usage=2,
        simulated_s=86_400.0,
        real_s=10.0,
        real_s_by=dict.fromkeys(Charge, 2.0),
        sources={},
        effects={},
        lateness_p99_ms=1.25,
        failure=FailureClass.AGENT,
        failure_message=text,
    )
    return RunSummary(benchmark=text, arm="a+m", model=text, keyless=True, lives=(life,))


def shown(terminal: bool, hostile: str) -> str:
    out = StringIO()
    console = Console(file=out, force_terminal=terminal, width=400, highlight=False, markup=False)
    progress = make_progress(console, quiet=False)
    life = a_life(hostile)
    progress.note(hostile)
    progress.life_started(life)
    with life.clock.flow(hostile):
        progress.session(SessionPlan(id=hostile, start_ns=START, wake=True, title=hostile), life)
        if isinstance(progress, LiveLine):
            progress._live.refresh()
        progress.session_ended(a_session(hostile), life)
    progress.life_ended(a_summary(hostile).lives[0])
    progress.close()
    return out.getvalue()


def test_a_pipe_gets_plain_lines() -> None:
    assert shown(False, "quay").splitlines() == [
        "quay",
        "life quay--reference+none--s0--a1",
        "  Thu 2031-02-27 09:00:00  quay (wake)  passed 1/2  1,234 tokens  0 s",
        "  failed (agent): quay",
    ]


def test_a_terminal_gets_a_line_with_who_holds_the_clock() -> None:
    text = shown(True, "quay")
    assert "passed 1/2  1,234 tokens  0 s  time held by: quay" in text
    assert text.rindex("\x1b[?25h") > text.rindex("\x1b[?25l"), "the cursor stays hidden"


@pytest.mark.parametrize("terminal", [True, False])
def test_text_from_outside_is_shown_not_obeyed(terminal: bool) -> None:
    text = OURS.sub("", shown(terminal, HOSTILE)).replace("\r", "" if terminal else "\r")
    assert text.count(SHOWN) >= 3
    assert plain(text) == text


def test_a_summary_shows_text_from_outside_and_does_not_obey_it() -> None:
    lines = [plain(line) for line in summary_lines(a_summary(HOSTILE), Path("r"))]
    text = "\n".join(lines)
    assert f"{SHOWN.replace('/', '')}: 0.5000" in text
    assert "group/inner" not in text, "a headline is short; the rest is in result.json"
    assert f"failed (agent): {SHOWN}" in text
    assert "\x1b" not in text
    assert "mean_score: missing" in text
    assert "judged 3, passed 1, missing 1" in text
    assert "2 sessions + 1 wake, 3 turns, 4 model calls" in text
    assert "1.0 simulated days in 10 s (8,640x)" in text
    assert "2 calls did not say how many tokens they took" in text
    assert "not a benchmark result" in text


def test_a_summary_counts_failures_by_class_and_says_when_nothing_came_of_a_life() -> None:
    summary = a_summary("x")
    judgments = [
        judged(None).model_copy(update={"failure": FailureClass.MODEL, "evidence": {"message": "no\nroute"}})
    ]
    failures = count_failures(judgments * 2, [], [a_session("d1", FailureClass.TIMEOUT)])
    (life,) = summary.lives
    lost = life.model_copy(update={"judged": 2, "missing": 2, "failures": failures, "failure": None})
    run = summary.model_copy(update={"lives": (lost,)})
    text = "\n".join(summary_lines(run, Path("r")))
    assert "missing judgments (model): 2, the first d1/q: no route" in text
    assert "failed sessions (timeout): 1, the first d1: d1" in text
    assert "every judgment is missing" in text
    assert not run.ok
    half = run.model_copy(update={"lives": (lost.model_copy(update={"missing": 1}),)})
    assert half.ok, "what is missing in a life is its data"


def test_a_model_without_tokens_is_no_puzzle() -> None:
    summary = a_summary("quay")
    silent = summary.lives[0].model_copy(update={"tokens": {}, "calls_without_usage": 4})
    text = "\n".join(summary_lines(summary.model_copy(update={"lives": (silent,)}), Path("r")))
    assert "tokens: the model quay reports none" in text
    assert "did not say" not in text


@given(st.text(st.characters()))
def test_plain_text_has_nothing_that_a_terminal_obeys_and_can_be_encoded(text: str) -> None:
    safe = plain(text)
    assert all(c.isprintable() or c == "\n" for c in safe)
    safe.encode()
    assert plain(safe) == safe


def test_printable_text_stays_as_it_is() -> None:
    assert plain("Grüße, 世界 [bold] 8€\n") == "Grüße, 世界 [bold] 8€\n"


def test_an_instant_is_read_in_the_zone_of_the_scenario_also_over_dst() -> None:
    assert local_time(START, "Asia/Shanghai") == "Thu 2031-02-27 09:00:00"
    assert local_time(START, "America/New_York") == "Wed 2031-02-26 20:00:00"
    assert local_time(START - 1, "UTC") == "Thu 2031-02-27 00:59:59", (
        "an instant is cut to its second, not rounded"
    )
    change = 1_932_598_800  # 2031-03-30T01:00:00Z: Berlin goes from 02:00 to 03:00
    assert local_time((change - 1) * 10**9, "Europe/Berlin") == "Sun 2031-03-30 01:59:59"
    assert local_time(change * 10**9, "Europe/Berlin") == "Sun 2031-03-30 03:00:00"


def test_quiet_says_nothing() -> None:
    out = StringIO()
    progress = make_progress(Console(file=out, force_terminal=True), quiet=True)
    assert isinstance(progress, Quiet)
    progress.note("x")
    progress.life_started(a_life())
    progress.life_ended(a_summary("x").lives[0])
    progress.close()
    assert out.getvalue() == ""
    assert not isinstance(make_progress(Console(file=out), quiet=False), LiveLine)
    assert isinstance(make_progress(Console(file=out), quiet=False), Lines)
