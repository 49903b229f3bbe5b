"""Protects the parts of the report that need no run: figures, texts, paths in tool calls, times from a trace."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sclate.report.charts import family_chart
from sclate.report.figures import families, headline
from sclate.report.rounds import files_written, tool_call
from sclate.report.text import Passage, choose_limit, duration, number, shown
from sclate.report.times import real_by_kind, spans, stretches


def test_figures_are_grouped_whatever_they_are_called() -> None:
    figures: dict[str, float | None] = {"score": 0.5, "rounds": 3.0}
    figures |= {f"score/day{n:02d}": n / 10 for n in (10, 9, 8, 7, 6, 5, 4, 3, 2, 1)}
    figures |= {f"rounds/day{n:02d}": 4.0 for n in range(1, 10)}
    figures |= {"score/choice": 0.1, "score/file": None, "other/file": 2.0, "score/rule:P2": 1.0}
    figures |= {"score/rule:P1": 0.0, "metric/f1": 0.4, "metric/iou": 0.3, "score/kind/a": 1.0}
    assert headline(figures) == {"score": 0.5, "rounds": 3.0}
    found = families(figures)
    assert [(family.name, *family.labels) for family in found] == [
        ("day", *(f"day{n:02d}" for n in range(1, 11))),
        ("rule", "rule:P1", "rule:P2"),
        ("group", "choice", "file"),
        ("metric", "f1", "iou"),
        ("kind", "kind/a"),
    ]
    assert [family.drawn for family in found] == [("score",), (), (), (), ()], "counts have another scale"
    assert found[2].values == {("choice", "score"): 0.1, ("file", "score"): None, ("file", "other"): 2.0}
    assert [found[2].is_share(figure) for figure in ("score", "other")] == [True, False]


def test_a_missing_value_is_a_gap_in_the_line() -> None:
    figures: dict[str, float | None] = {f"score/{n}": 0.5 for n in range(9)}
    (family,) = families(figures | {"score/4": None})
    (path,) = re.findall('<path d="([^"]*)"', family_chart(family))
    assert (path.count("M"), path.count("L")) == (2, 6)


def test_what_is_missing_is_not_zero() -> None:
    assert (number(None), number(0.0), number(0.25), number(1234.0)) == ("missing", "0", "0.2500", "1,234")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "–"),
        (0.085, "85 ms"),
        (4.25, "4.2 s"),
        (185, "3 min 5 s"),
        (7800, "2 h 10 min"),
        (3_387_600, "39.2 days"),
    ],
)
def test_durations(seconds: float | None, text: str) -> None:
    assert duration(seconds) == text


@given(st.text())
def test_no_invisible_character_is_obeyed(text: str) -> None:
    assert all(c.isprintable() or c.isspace() for c in shown(text))
    assert not set(shown(text)) & set("\x00\x1b\r\u202e\u2066\u200b\ufeff\x85\u2028")


@given(st.lists(st.text(alphabet="<&ab\u202e", max_size=400), max_size=20), st.integers(200, 4_000))
def test_texts_are_cut_until_they_fit(texts: list[str], budget: int) -> None:
    passages = [Passage(text, "f") for text in texts]
    limit = choose_limit(passages, budget)
    size = sum(len(p.cut(limit).replace("&", "&amp;").replace("<", "&lt;")) for p in passages)
    assert size <= budget or limit == 120
    for passage in passages:
        assert bool(passage.note(limit)) == (len(passage.text) > limit)


@pytest.mark.parametrize(
    ("arguments", "paths"),
    [
        ({"path": "a.txt", "content": "x"}, ["a.txt"]),
        ({"file_path": "a.txt", "old_string": "x", "new_string": "y"}, ["a.txt"]),
        ({"path": "a.txt"}, []),
        (
            {"command": "cat > d/a.md <<'EOF'\n> quoted\nEOF\necho b >> c.log 2>/dev/null"},
            ["d/a.md", "c.log"],
        ),
        ({"command": "cat <<EOF > a.md\nnever > ended"}, ["a.md"]),
        ({"command": "test 3 -gt 2 && echo '->' x 2>err.txt >&2"}, []),
        ({"command": 7}, []),
        ("text", []),
        (None, []),
    ],
)
def test_files_that_a_tool_call_writes(arguments: Any, paths: list[str]) -> None:
    assert files_written(arguments) == paths


@pytest.mark.parametrize(
    ("raw", "name", "arguments"),
    [
        ({"type": "tool_use", "name": "bash", "input": {"a": 1}}, "bash", {"a": 1}),
        ({"function": {"name": "bash", "arguments": '{"a": 1}'}}, "bash", {"a": 1}),
        ({"type": "function_call", "name": "bash", "arguments": "{torn"}, "bash", "{torn"),
        ({"type": "odd", "function": 3}, "odd", None),
    ],
)
def test_tool_calls_of_every_dialect(raw: dict[str, Any], name: str, arguments: Any) -> None:
    assert tool_call(raw) == (name, arguments)


def line(type_: str, real_s: float, sim_s: float, **fields: Any) -> dict[str, Any]:
    return {"type": type_, "real_ns": round(real_s * 1e9), "sim_ns": round(sim_s * 1e9)} | fields


TRACE = [
    line("run", 100, 1000),
    line("clock", 101, 1000, change="frozen", holders=["frozen: start"]),
    line("session", 101.5, 1000, session="a", change="opening", wake=False, title="A"),
    line("clock", 103, 1000, change="flow", holders=["flow: turn"]),
    line("clock", 107, 1004, change="idle", holders=[]),
    line("session", 107.5, 1004, session="a", change="closed"),
    line("clock", 108, 9000, change="jump", holders=[]),
    line("session", 108, 9000, session="b", change="opening", wake=True, title="B"),
    line("clock", 107, 9000, change="flow", holders=["flow: turn"]),  # the host's clock was set back
]


def test_time_is_told_apart_by_what_the_clock_did() -> None:
    last = line("turn", 110, 9002)
    found = stretches(TRACE, last)
    assert real_by_kind(found) == {"flow": 6.0, "frozen": 2.0, "idle": 2.0}
    jump = next(one for one in found if one.kind == "jump")
    assert (jump.from_ns, jump.to_ns, jump.from_s, jump.to_s) == (1004 * 10**9, 9000 * 10**9, 8.0, 8.0)
    for one, following in zip(found, found[1:], strict=False):
        assert (one.to_s, one.to_ns) == (following.from_s, following.from_ns), "no gap, no overlap"
    first, second = spans(TRACE, last)
    assert (first.id, first.wake, first.from_s, first.to_s, first.closed) == ("a", False, 1.5, 7.5, True)
    assert (second.id, second.wake, second.to_s, second.closed) == ("b", True, 10.0, False)


def test_an_empty_trace_has_no_time() -> None:
    assert (stretches([], None), spans([], None)) == ([], [])
