"""Protects what a reader sees: the page in a real browser, drawn, filtered, without an error on its console."""

from __future__ import annotations

from pathlib import Path

import pytest

from .browser import look

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
