"""Protects what a reader sees: the page in a real browser, drawn, filtered, without an error on its console."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path

import pytest

from .browser import look
from .test_page import lines_of

pytestmark = [pytest.mark.docker, pytest.mark.timeout(300)]

VISIBLE = "[...document.querySelectorAll('details.round')].filter(r => r.getClientRects().length).length"
CHARTS = (
    "[...document.querySelectorAll('svg.chart')].map(s => { const b = s.getBoundingClientRect();"
    " return [s.getAttribute('aria-label'), b.width, b.height]; })"
)
LINES = (
    "Object.fromEntries(['flow', 'frozen', 'idle', 'jump'].map(k => [k,"
    " document.querySelector('svg.elapsed path.line.' + k)?.getTotalLength() ?? 0]))"
)


def test_the_console_is_heard(tmp_path: Path) -> None:
    """The yardstick: an error that a page makes is noticed, so that hearing none means something."""
    page = tmp_path / "p.html"
    page.write_text(
        '<!doctype html><html><head><meta http-equiv="x" content="script-src x"></head>'
        "<body><script>nothing.there</script></body></html>"
    )
    assert any("nothing is not defined" in line for line in look(page, {"one": "1"}).console)


def test_it_is_drawn(real_run: Path) -> None:
    page = real_run / "report.html"
    seen = look(
        page,
        {
            "rounds": VISIBLE,
            "charts": CHARTS,
            "lines": LINES,
            "bands": "document.querySelectorAll('svg.elapsed .band').length",
            "squares": "document.querySelectorAll('svg.calendar .sq').length",
            "overflow": "document.documentElement.scrollWidth - document.documentElement.clientWidth",
            "count": "document.getElementById('count').textContent",
            "requests": "performance.getEntriesByType('resource').length",
        },
    )
    assert seen.console == []
    assert seen.values["rounds"] == seen.values["squares"] == 11
    assert seen.values["count"] == "11 of 11 rounds"
    assert seen.values["bands"] == 2
    assert seen.values["requests"] == 0
    assert seen.values["overflow"] <= 0, "it does not fit a laptop's screen"
    charts = {label: (width, height) for label, width, height in seen.values["charts"]}
    assert len(charts) == 4
    for label, (width, height) in charts.items():
        assert width > 900, label
        assert height > 20, label
    for kind, length in seen.values["lines"].items():
        assert length > 0, kind


def test_the_clocks_are_there_side_by_side(real_run: Path) -> None:
    """Every session of a real life, its prompt, its tool and its record in simulated time."""
    cells = "[...document.querySelectorAll('#clocks tbody tr')].map(r => [...r.cells].map(c => c.innerText.trim()))"
    seen = look(
        real_run / "report.html",
        {
            "open": "document.getElementById('clocks').open",
            "overflow": "(w => w.scrollWidth - w.clientWidth)(document.querySelector('#clocks .wide'))",
            "cells": cells,
        },
    )
    assert seen.console == []
    assert seen.values["overflow"] <= 0, "the last column can be seen"
    assert seen.values["open"], "two rows need not be unfolded"
    first, second = seen.values["cells"]
    assert first[:3] == ["day01", "Mon 2031-03-03 09:00:00", "2031-03-03T09:00:00+01:00"]
    assert re.fullmatch(r"2031-03-03 09:02:0\d CET", first[3]), "its first message asks for the tool's clock"
    assert second[3] == "–", "the second's does not"
    for day, cell in (("03", first[4]), ("04", second[4])):
        assert cell.startswith(f"2031-03-{day}T")
    started = lines_of(next(real_run.glob("lives/*/trace.jsonl")))[0]["real_ns"]
    assert first[5] == datetime.fromtimestamp(started / 1e9, UTC).date().isoformat()
    assert [row[6] for row in (first, second)] == ["✓", "✓"]


@pytest.mark.parametrize(
    ("fragment", "where"),
    [
        ("#verdict=fail", "r => r.dataset.verdict === 'fail'"),
        ("#session=day02", "r => r.dataset.session === 'day02'"),
        (
            "#session=day02&verdict=pass&q=BARGE",
            "r => r.dataset.session === 'day02' && "
            "r.dataset.verdict === 'pass' && r.textContent.toLowerCase().includes('barge')",
        ),
        ("#q=no%20such%20text", "r => false"),
    ],
)
def test_rounds_are_filtered(fragment: str, where: str, real_run: Path) -> None:
    wanted = f"[...document.querySelectorAll('details.round')].filter({where}).length"
    headings = (
        "[...document.querySelectorAll('section.group')].filter(g => !g.hidden && !g.innerText.trim()).length"
    )
    seen = look(real_run / "report.html", {"visible": VISIBLE, "wanted": wanted, "empty": headings}, fragment)
    assert seen.console == []
    assert seen.values["visible"] == seen.values["wanted"] < 11
    assert seen.values["visible"] > 0 or "no%20such" in fragment
    assert seen.values["empty"] == 0


def test_without_scripts_all_is_there(real_run: Path) -> None:
    form = "document.getElementById('filter').getClientRects().length"
    seen = look(real_run / "report.html", {"rounds": VISIBLE, "form": form, "charts": CHARTS}, scripts=False)
    assert seen.values["rounds"] == 11
    assert seen.values["form"] == 0, "a filter that does nothing is not shown"
    assert len(seen.values["charts"]) == 4


def test_hostile_text_does_nothing(hostile_run: Path) -> None:
    seen = look(
        hostile_run / "report.html",
        {
            "title": "document.title",
            "scripts": "document.scripts.length",
            "images": "document.images.length",
            "rounds": VISIBLE,
            "said": "[...document.querySelectorAll('pre.answer')].map(p => p.textContent)",
        },
    )
    assert seen.console == [], "an attack was tried and stopped by the policy only"
    assert seen.values["title"].endswith("mine")
    assert (seen.values["scripts"], seen.values["images"]) == (2, 0), "ours and the probe"
    assert seen.values["rounds"] == 2
    assert "<script>document.title='owned'</script>" in seen.values["said"][0]
