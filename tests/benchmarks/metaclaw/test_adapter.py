"""Protects the life of workdays: order, instants, messages, what the workspace holds, the two figures."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from sclate_adapters.errors import PrerequisiteError
from sclate_adapters.judgments import Judgment, Subject, SubjectKind
from sclate_adapters.records import Delivery
from sclate_benchmarks.metaclaw.adapter import MetaClawBenchmark
from tests.benchmarks.kit import FakeLife, put, tree

from .sample import INTROS, write_sample
from .test_data import PUBLISHED

T = "2026-03-16T09:30:00+08:00"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return write_sample(tmp_path / "bench")


def live(root: Path, tmp_path: Path, agent: Any, limit: int | None = None, **options: str) -> FakeLife:
    adapter = MetaClawBenchmark(root, options)
    (scenario,) = adapter.scenarios("all", limit, 0)
    return FakeLife(adapter, scenario, agent, tmp_path).run()


def worker(delivery: Delivery, workspace: Path) -> str:
    """Gets the first file round wrong, the others right; sees only the last box wrong on day 2."""
    if delivery.turn == "day01/r1":
        put(workspace, {"day01/out.json": b'{"at": "soon"}', "note.txt": b"kept", "day01/input.txt": b"mine"})
    if delivery.turn == "day02/r1":
        put(workspace, {"day02/20260317_a.md": b""})
    return {"day01/r2": r"\bbox{A,C}", "day02/r2": r"\bbox{C} \bbox{B}"}.get(delivery.turn or "", "done")


def local(at_ns: int) -> str:
    return datetime.fromtimestamp(at_ns / 1e9, ZoneInfo("Asia/Shanghai")).strftime("%a %H:%M")


def test_a_life_is_days_of_serial_turns_with_feedback(root: Path, tmp_path: Path) -> None:
    life = live(root, tmp_path, worker)
    said = [(d.key, d.text) for d in life.log if d.what == "turn"]
    assert said == [
        ("day01/intro", INTROS["day01"]),
        ("day01/r1", "Do r1."),
        (
            "day01/r2",
            "[Previous Feedback] r1 lacks the stamp.\nKeep this in mind as you continue with the next task."
            "\n\nWhich for r2?",
        ),
        ("day01/feedback", "[Previous Feedback] All found."),
        ("day02/intro", INTROS["day02"]),
        ("day02/r1", "Do r1."),
        ("day02/r2", "[Previous Feedback] r1 is right.\n\nWhich for r2?"),
        (
            "day02/feedback",
            "[Previous Feedback] You missed option B: about B\nYou incorrectly selected option C: about C\n"
            "Keep this in mind as you continue with the next task.",
        ),
    ]
    assert [j.subject.key for j in life.judgments] == ["day01/r1", "day01/r2", "day02/r1", "day02/r2"]


def test_sessions_open_at_nine_after_their_inputs_came(root: Path, tmp_path: Path) -> None:
    life = live(root, tmp_path, worker)
    boundaries = [(d.what, local(d.at_ns)) for d in life.log if d.what in ("hook add_day", "open")]
    assert boundaries == [
        ("hook add_day", "Mon 09:00"),
        ("open", "Mon 09:00"),
        ("hook add_day", "Tue 09:00"),
        ("open", "Tue 09:00"),
    ]
    assert [local(d.at_ns) for d in life.log if d.key == "day01/intro"] == ["Mon 09:02"]
    assert [d.session for d in life.log if d.what == "close"] == ["day01", "day02"]


def test_the_workspace_is_carried_and_only_the_days_inputs_are_added(root: Path, tmp_path: Path) -> None:
    live(root, tmp_path, worker)
    kept = tree(tmp_path / "work")
    assert kept["note.txt"] == b"kept"
    assert kept["day01/input.txt"] == b"mine"
    assert kept["day02/input.txt"] == b"input of day02\n"
    assert not any(name.startswith("scripts") for name in kept)


def test_inputs_of_later_days_are_not_there_yet(root: Path, tmp_path: Path) -> None:
    seen: dict[str, list[str]] = {}

    def look(delivery: Delivery, workspace: Path) -> str:
        seen.setdefault(delivery.session, sorted(tree(workspace)))
        return ""

    live(root, tmp_path, look)
    assert seen["day01"] == ["USER.md", "day01/input.txt", "refs/terms.md"]


def test_a_fresh_workspace_has_one_day_as_upstream(root: Path, tmp_path: Path) -> None:
    life = live(root, tmp_path, worker, workspace="fresh")
    assert sorted(tree(tmp_path / "work")) == [
        "USER.md",
        "day02/20260317_a.md",
        "day02/input.txt",
        "refs/terms.md",
    ]
    assert [j.passed for j in life.judgments] == [False, True, False, False]


def test_a_fresh_workspace_brings_pristine_files_each_day(root: Path, tmp_path: Path) -> None:
    """Also where the agent changed, removed or linked what had been there."""

    def vandal(delivery: Delivery, workspace: Path) -> str:
        if delivery.turn == "day01/r1":
            put(workspace, {"USER.md": b"changed", "day02/input.txt": b"planted", "done.log": b"kept"})
            (workspace / "refs/terms.md").unlink()
            (workspace / "day01/input.txt").unlink()
            (workspace / "day03").symlink_to("/")
        return ""

    seen: dict[str, dict[str, bytes]] = {}

    def look(delivery: Delivery, workspace: Path) -> str:
        seen.setdefault(delivery.session, tree(workspace))
        return vandal(delivery, workspace)

    live(root, tmp_path, look, workspace="fresh")
    root_files = {"USER.md": b"The user.\n", "refs/terms.md": b"Terms.\n"}
    assert seen["day01"] == {**root_files, "day01/input.txt": b"input of day01\n"}
    assert seen["day02"] == {**root_files, "day02/input.txt": b"input of day02\n"}


def test_options_are_recorded_with_the_scenario(root: Path) -> None:
    for options, title in (({}, "2 workdays, 4 rounds; 2 days"), ({"workspace": "fresh"}, "workspace fresh")):
        (scenario,) = MetaClawBenchmark(root, options).scenarios("all", None, 0)
        assert scenario.data["options"] == {"workspace": "carry", "graders": "hidden", **options}
        assert title in scenario.title


@pytest.mark.data
def test_a_split_is_a_variant(root: Path) -> None:
    small = MetaClawBenchmark(PUBLISHED / "metaclaw-bench-small")
    (scenario,) = small.scenarios("small", 3, 0)
    assert (scenario.id, scenario.data["days"]) == ("metaclaw-small-first3", 3)
    with pytest.raises(PrerequisiteError, match="give --split small"):
        list(small.scenarios("full", None, 0))
    with pytest.raises(PrerequisiteError, match="not the full variant"):
        list(MetaClawBenchmark(root).scenarios("full", None, 0))


def test_graders_are_seen_only_when_asked_for(root: Path, tmp_path: Path) -> None:
    live(root, tmp_path, worker, graders="visible")
    assert "scripts/check_iso8601.py" in tree(tmp_path / "work")


def test_a_limit_takes_the_first_days(root: Path, tmp_path: Path) -> None:
    life = live(root, tmp_path, worker, limit=1)
    assert [d.session for d in life.log if d.what == "open"] == ["day01"]


def test_both_figures_are_named_apart_also_by_day(root: Path, tmp_path: Path) -> None:
    life = live(root, tmp_path, worker)
    figures = life.adapter.figures(life.scenario, life.judgments)
    assert figures["exact_pass_accuracy"] == 2 / 4
    assert figures["upstream_score"] == (0 + 1 + 1 + 0.5) / 4
    assert figures["exact_pass_accuracy/day01"] == 1 / 2
    assert figures["upstream_score/day02"] == 1.5 / 2
    assert figures["exact_pass_accuracy/file_check"] == 1 / 2
    assert figures["careful_exact_pass_accuracy"] == 3 / 4
    assert figures["rounds_missing"] == 0


def test_figures_by_rule_have_their_number_of_rounds(root: Path, tmp_path: Path) -> None:
    """day01/r1 checks instants (failed), day02/r1 names (passed); no text of the choice rounds names a rule."""
    life = live(root, tmp_path, worker)
    figures = life.adapter.figures(life.scenario, life.judgments)
    rules = {name: value for name, value in figures.items() if "/rule:" in name}
    assert rules == {
        "exact_pass_accuracy/rule:P1": 0.0,
        "upstream_score/rule:P1": 0.0,
        "rounds_judged/rule:P1": 1.0,
        "exact_pass_accuracy/rule:P2": 1.0,
        "upstream_score/rule:P2": 1.0,
        "rounds_judged/rule:P2": 1.0,
    }


def test_a_round_without_a_judgment_is_missing_and_not_zero(root: Path) -> None:
    adapter = MetaClawBenchmark(root)
    (scenario,) = adapter.scenarios("all", None, 0)
    keys = [key for key, _ in adapter.rounds(scenario)]
    judged = [
        Judgment(subject=Subject(kind=SubjectKind.TURN, keys=(k,)), score=s, passed=s and s == 1)
        for k, s in zip(keys, (1.0, None, None, None), strict=True)
    ]
    figures = adapter.figures(scenario, judged)
    assert (figures["exact_pass_accuracy"], figures["rounds_missing"]) == (1.0, 3)
    assert figures["exact_pass_accuracy/day02"] is None


def test_without_a_judgment_the_next_question_comes_bare(root: Path, tmp_path: Path) -> None:
    from sclate_benchmarks.metaclaw.adapter import compose

    adapter = MetaClawBenchmark(root)
    turns = adapter.turns(adapter.dataset.days[0])
    assert compose(turns[2], {"day01/r1": None}) == "Which for r2?"
    assert compose(turns[3], {"day01/r2": None}).startswith("[Previous Feedback] There is no judgment")


@pytest.mark.parametrize("options", [{"workspce": "carry"}, {"workspace": "new"}, {"graders": True}])
def test_an_option_that_is_not_understood_is_refused(root: Path, options: dict[str, Any]) -> None:
    with pytest.raises(PrerequisiteError, match="workspace=carry"):
        MetaClawBenchmark(root, options)


def test_data_limit_and_split_are_asked_for(root: Path) -> None:
    with pytest.raises(PrerequisiteError, match="give --data"):
        list(MetaClawBenchmark().scenarios("all", None, 0))
    with pytest.raises(PrerequisiteError, match="split"):
        list(MetaClawBenchmark(root).scenarios("test", None, 0))
    with pytest.raises(PrerequisiteError, match="limit"):
        list(MetaClawBenchmark(root).scenarios("all", 0, 0))


@pytest.mark.data
def test_an_agent_that_does_nothing_passes_no_published_file_round(tmp_path: Path) -> None:
    folder = PUBLISHED / "metaclaw-bench-small"
    assert folder.is_dir(), f"put the published data at {folder}"
    life = live(folder, tmp_path, lambda delivery, workspace: "")
    figures = life.adapter.figures(life.scenario, life.judgments)
    assert len(life.judgments) == 61
    assert figures["exact_pass_accuracy"] == 0
    assert figures["rounds_missing"] == 0
    assert [d.session for d in life.log if d.what == "open"] == [f"day{n:02}" for n in range(1, 13)]
    assert json.dumps(figures)
