"""Protects that scores are upstream's on its own edge cases. Values come from its scoring, report and inference
(aiming-lab/MetaClaw f20581e, benchmark/src), as named at each test."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from sclate_adapters.judgments import Judgment, Subject, SubjectKind
from sclate_benchmarks.metaclaw.adapter import MetaClawBenchmark
from sclate_benchmarks.metaclaw.data import Choice, Feedback, FileCheck, Round, load
from sclate_benchmarks.metaclaw.grader import RoundGrader, read_choice, score_choice, script_files
from tests.benchmarks.kit import judge, put

from .sample import ROUNDS, choice_round, file_round, write_sample
from .test_data import PUBLISHED, edit

FOUR = {o: f"statement {o}" for o in "ABCD"}

# --- reading an answer: scoring_cmd._extract_bbox_answer --------------------------------------------------

READ = [
    (r"Answer is \bbox{B}", "B", "the plain case"),
    (r"\bbox{b}", "B", "in any case"),
    (r"\boxed{A,C,D,E,F}", "ACDEF", "LaTeX's own command"),
    (r"Maybe \bbox{A} or \bbox{C}", "A", "the first box"),
    (r"\bbox{F,H,I}", "FHI", "letters that are no options"),
    (r"\bbox{A,A,a}", "A", "a letter twice counts once"),
    (r"\bbox{A and C}", "ACDN", "a word is its letters"),
    ("\\bbox{A,\nC}", "AC", "over two lines"),
    (r"\bbox{A{B}C}", "AB", "up to the first closing brace"),
    (r"\bbox{\bbox{A}}", "ABOX", "a box in a box"),
    (r"\bbox{} empty", None, "an empty box"),
    (r"\bbox{} then \bbox{A}", None, "an empty first box is no answer, whatever follows"),
    (r"\bbox{1, 2}", None, "numbers"),
    ("\\bbox{\uff21}", None, "a full-width letter"),
    (r"\bbox {A}", None, "a space before the brace"),
    (r"\bbox{A", None, "a box that is not closed"),
    ("A, C", None, "no box"),
    ("", None, "nothing said"),
]


@pytest.mark.parametrize(("answer", "letters", "why"), READ, ids=[case[2] for case in READ])
def test_an_answer_is_read_as_upstream_reads_it(answer: str, letters: str | None, why: str) -> None:
    assert read_choice(answer) == (None if letters is None else frozenset(letters))


# --- partial credit: scoring_cmd.calculate_multichoice_metrics --------------------------------------------

CREDIT = [
    ("B", "B", 1.0, "right"),
    ("C", "A", 0.5, "one wrong and one missed of four (upstream's own test)"),
    ("AC", "A", 0.75, "one missed"),
    ("AC", "ABC", 0.75, "one too many"),
    ("AC", "ABCD", 0.5, "all picked"),
    ("ABCD", "A", 0.25, "three missed"),
    ("AC", "BD", 0.0, "all wrong"),
    ("AC", "BDX", -0.25, "a letter that is no option counts as wrong: below 0"),
    ("AC", "ACZ", 0.75, "also beside the right ones"),
    ("AC", None, 0.0, "no answer: 0, more than a wrong one may get"),
]


@pytest.mark.parametrize(("answer", "chosen", "score", "why"), CREDIT, ids=[case[3] for case in CREDIT])
def test_partial_credit(answer: str, chosen: str | None, score: float, why: str) -> None:
    choice = Choice(options=FOUR, answer=frozenset(answer))
    figures = score_choice(None if chosen is None else frozenset(chosen), choice)
    assert figures["score"] == score
    assert figures["exact_match"] == (chosen == answer)


@pytest.mark.parametrize("raw", [["A", "C"], ["A", "A", "c"], ["A,C"], "A, C", "ac"])
def test_the_datas_answer_is_normalized(raw: Any) -> None:
    """`scoring_cmd._normalize_answer`: every letter of a text or of a list's items, once, in capitals."""
    assert Choice(options=FOUR, answer=raw).answer == {"A", "C"}


# --- file rounds: infer_cmd._run_file_check --------------------------------------------------------------


def passes(workspace: Path, command: str, **check: Any) -> bool:
    asked = Round(
        id="r1",
        type="file_check",
        question="?",
        feedback=Feedback(),
        check=FileCheck(command=command, **check),
    )
    judgment = judge(RoundGrader({"d/r1": asked}, script_files({}), "test"), workspace, "d/r1")
    assert judgment.score == float(bool(judgment.passed)), "1 or 0, never missing"
    return bool(judgment.passed)


LOG = b"[DONE] 2026-04-13T09:00:00+08:00 | task | what was done\n"
FILES = [
    ("true", {}, True, "status 0"),
    ("false", {}, False, "another status"),
    ("exit 3", {"expect_exit": 3}, True, "the status that is expected"),
    ("sleep 20", {"timeout": 0.2}, False, "over its time"),
    ("cat missing.json", {}, False, "a file that is not there"),
    ("python scripts/check_colour.py done.log", {}, False, "a check that is not there"),
    ("python scripts/check_done_log.py done.log", {}, True, "a good log"),
    (
        "python scripts/check_done_log.py done.log --min-entries 1 --min-count 1",
        {},
        False,
        "an option too many",
    ),
    ("printf 'a\\r\\nb'", {"expect_stdout": "a\nb"}, True, "line ends of any kind are newlines"),
    ("echo ok; printf '\\377'", {}, False, "output that is no text"),
    ("echo ok; printf '\\377' >&2", {"expect_stdout": "ok"}, False, "also on the other stream"),
]


@pytest.mark.parametrize(("command", "check", "right", "why"), FILES, ids=[case[3] for case in FILES])
def test_a_file_round_is_1_or_0(
    tmp_path: Path, command: str, check: dict[str, Any], right: bool, why: str
) -> None:
    put(tmp_path, {"done.log": LOG})
    assert passes(tmp_path, command, **check) is right


# --- averages: report_cmd.run_report ---------------------------------------------------------------------


@pytest.fixture
def uneven(tmp_path: Path) -> MetaClawBenchmark:
    """Day 1 has three rounds, day 2 one."""
    root = write_sample(tmp_path / "bench")
    edit(root / "eval/day01/questions.json", lambda d: d["rounds"].append(file_round("r3", "true")))
    edit(root / "eval/day02/questions.json", lambda d: d["rounds"].pop(0))
    return MetaClawBenchmark(root)


def judged(key: str, score: float | None, **figures: float) -> Judgment:
    return Judgment(
        subject=Subject(kind=SubjectKind.TURN, keys=(key,)),
        score=score,
        passed=None if score is None else score == 1,
        figures=figures,
    )


def figures(adapter: MetaClawBenchmark, *judgments: Judgment) -> dict[str, float | None]:
    (scenario,) = adapter.scenarios("all", None, 0)
    return adapter.figures(scenario, judgments)


def test_the_average_is_over_rounds_and_not_over_days(uneven: MetaClawBenchmark) -> None:
    found = figures(
        uneven,
        judged("day01/r1", 1.0),
        judged("day01/r2", 0.75),
        judged("day01/r3", 0.0),
        judged("day02/r2", 1.0),
    )
    assert found["upstream_score"] == 2.75 / 4, "not the mean of 1.75 / 3 and 1"
    assert found["upstream_score/day01"] == 1.75 / 3, "unrounded"
    assert found["upstream_score/day02"] == 1.0
    assert found["exact_pass_accuracy"] == 2 / 4, "a partial score is no pass"
    assert found["exact_pass_accuracy/day01"] == 1 / 3
    assert [found[f"rounds_judged{g}"] for g in ("", "/day01", "/day02")] == [4, 3, 1]


def test_a_negative_score_lowers_the_average(uneven: MetaClawBenchmark) -> None:
    found = figures(uneven, judged("day01/r1", 1.0), judged("day01/r2", -0.5))
    assert found["upstream_score"] == 0.25


def test_a_metric_that_a_round_lacks_counts_as_nothing_in_the_average(uneven: MetaClawBenchmark) -> None:
    """Upstream's own test: f1 of 0.9 in one of two rounds averages 0.45."""
    found = figures(uneven, judged("day01/r1", 1.0, passed=1.0), judged("day01/r2", 0.5, f1=0.9))
    assert found["mean_metric/f1"] == pytest.approx(0.45)
    assert found["mean_metric/passed"] == 0.5
    assert found["mean_metric/iou"] == 0.0


def test_a_round_without_a_score_is_in_no_denominator(uneven: MetaClawBenchmark) -> None:
    """Upstream sums over the scores that it finds; what is missing is only counted here."""
    found = figures(uneven, judged("day01/r1", 1.0), judged("day01/r2", None))
    assert (found["upstream_score"], found["rounds_judged"], found["rounds_missing"]) == (1.0, 1, 3)
    assert figures(uneven)["upstream_score"] is None, "nothing judged is not 0"
    assert figures(uneven)["mean_metric/f1"] is None


def test_the_first_message_and_the_last_feedback_are_not_graded(tmp_path: Path) -> None:
    adapter = MetaClawBenchmark(write_sample(tmp_path / "bench"))
    (scenario,) = adapter.scenarios("all", None, 0)
    selected = [subject.key for subject in adapter.grading_policy(scenario).selects]
    assert selected == [f"{day}/{one['id']}" for day, rounds in ROUNDS.items() for one in rounds]


def test_a_choice_without_an_answer_is_0_and_not_missing(tmp_path: Path) -> None:
    """`infer_cmd._run_question`: an agent that fails leaves no answer, and the round is scored all the same."""
    raw = choice_round("r2", ["A"])
    asked = Round(
        id="r2",
        type="multi_choice",
        question="?",
        feedback=Feedback(correct="Right."),
        choice=Choice.model_validate(raw["eval"]),
    )
    judgment = judge(RoundGrader({"d/r2": asked}, {}, "test"), tmp_path, "d/r2", "")
    assert (judgment.score, judgment.passed, judgment.failure) == (0.0, False, None)


# --- what the published data itself makes impossible -------------------------------------------------------


@pytest.mark.data
@pytest.mark.parametrize(("day", "ext"), [("day09", "md"), ("day10", "json")])
def test_two_rounds_of_the_small_variant_can_be_passed_by_nobody(tmp_path: Path, day: str, ext: str) -> None:
    """Their commands give the log's check an option that it lacks, so it ends with a usage error."""
    put(tmp_path, {f"{day}/20260413_{n}.{ext}": b"" for n in "abcd"})
    put(tmp_path, {"done.log": LOG.replace(b"task", b"data_quality") * 9})
    (found,) = (d for d in load(PUBLISHED / "metaclaw-bench-small").days if d.id == day)
    (asked,) = (r for r in found.rounds if r.id == "r4")
    assert asked.check is not None
    assert not passes(tmp_path, asked.check.command)
    assert passes(tmp_path, asked.check.command.replace(" --min-count 2", ""))


@pytest.mark.data
def test_eight_rounds_of_the_full_variant_count_on_the_log_of_days_before() -> None:
    """They want more entries than their day has had tasks that are logged: hopeless in a fresh workspace."""
    wanting = []
    for day in load(PUBLISHED / "metaclaw-bench").days:
        tasks = 0
        for one in day.rounds:
            command = one.check.command if one.check is not None else ""
            tasks += "check_done_log.py" in command
            wanted = re.search(r"--min-entries (\d+)", command)
            if wanted is not None and int(wanted[1]) > tasks:
                wanting.append(f"{day.id}/{one.id}")
    assert wanting == [*(f"day22/r{n}" for n in (1, 2, 4, 5, 7, 8, 10)), "day23/r2"]
