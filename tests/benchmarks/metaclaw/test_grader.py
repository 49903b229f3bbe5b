"""Protects judgments: verdict, score, feedback text, and that the agent cannot bend its own checks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sclate_benchmarks.metaclaw.data import Choice, Feedback, FileCheck, Round
from sclate_benchmarks.metaclaw.grader import (
    NO_BOX,
    REMINDER,
    RoundGrader,
    choice_feedback,
    read_choice,
    read_choice_with_care,
    score_choice,
    script_files,
)
from tests.benchmarks.kit import judge, put

T = "2026-03-16T09:30:00+08:00"
OPTIONS = {o: f"statement {o}" for o in "ABCD"}
CHOICE = Choice(options=OPTIONS, answer=frozenset("AC"))
FEEDBACK = Feedback(
    correct="Right.", incorrect="Wrong: see T.", options={"A": "about A", "B": "about B", "C": "about C"}
)


def grader(
    command: str, own: dict[str, bytes] | None = None, rules: bytes | None = None, **check: Any
) -> RoundGrader:
    asked = Round(
        id="r1", type="file_check", question="?", feedback=FEEDBACK, check=FileCheck(command=command, **check)
    )
    return RoundGrader({"day01/r1": asked}, script_files(own or {}, rules), "test")


def verdict(workspace: Path, command: str, **check: Any) -> bool | None:
    return judge(grader(command, **check), workspace, "day01/r1").passed


# --- choices --------------------------------------------------------------------------------------------

ANSWERS = [
    (r"\bbox{A,C}", "AC", "AC"),
    (r"\boxed{c, a}", "AC", "AC"),
    (r"first \bbox{A} then \bbox{A,C}", "A", "AC"),
    (r"\boxed{\text{A}}", "AETX", "A"),
    (r"\boxed{\text{A, C}}", "ACETX", "AC"),
    (r"\bbox{} \bbox{A}", None, "A"),
    (r"\bbox{1} \bbox{A}", None, "A"),
    ("A and C", None, None),
    ("", None, None),
    (r"\bbox{A,Z}", "AZ", None),
    (r"\bbox{AC}", "AC", "AC"),
    (r"\fbox{A}", None, None),
    (r"use \bbox{X,Y} so: \bbox{B}", "XY", "B"),
]


@pytest.mark.parametrize(("answer", "upstream", "careful"), ANSWERS)
def test_the_first_box_is_read_and_a_careful_reading_stands_beside(
    answer: str, upstream: str | None, careful: str | None
) -> None:
    assert read_choice(answer) == (None if upstream is None else frozenset(upstream))
    assert read_choice_with_care(answer, OPTIONS) == (None if careful is None else frozenset(careful))


@pytest.mark.parametrize(
    ("selected", "score", "iou", "exact"),
    [
        ("AC", 1.0, 1.0, 1.0),
        ("A", 0.75, 0.5, 0.0),
        ("ABC", 0.75, 2 / 3, 0.0),
        ("BD", 0.0, 0.0, 0.0),
        ("XYZBD", -0.75, 0.0, 0.0),
        (None, 0.0, 0.0, 0.0),
    ],
)
def test_the_partial_score_is_upstreams(selected: str | None, score: float, iou: float, exact: float) -> None:
    figures = score_choice(None if selected is None else frozenset(selected), CHOICE)
    assert figures["score"] == pytest.approx(score)
    assert figures["iou"] == pytest.approx(iou)
    assert figures["exact_match"] == exact


@given(st.sets(st.sampled_from("ABCD"), min_size=1), st.sets(st.sampled_from("ABCDXYZ"), min_size=1))
def test_scores_keep_their_laws(answer: set[str], selected: set[str]) -> None:
    figures = score_choice(frozenset(selected), Choice(options=OPTIONS, answer=frozenset(answer)))
    assert figures["score"] == 1 - len(answer ^ selected) / 4
    assert (figures["score"] == 1) == (figures["exact_match"] == 1) == (answer == selected)
    assert all(0 <= figures[k] <= 1 for k in ("iou", "precision", "recall", "f1"))


def test_choice_feedback_is_composed_as_upstream_does() -> None:
    def said(selected: str | None) -> str:
        return choice_feedback(None if selected is None else frozenset(selected), CHOICE, FEEDBACK)

    assert said("AC") == "Right."
    assert said("DB") == (
        "You missed option A: about A\nYou missed option C: about C\n"
        "You incorrectly selected option B: about B\nYou incorrectly selected option D: \n"
        "Keep this in mind as you continue with the next task."
    )
    assert said(None) == f"{NO_BOX} {REMINDER}"


def test_a_choice_is_judged_from_the_answer_alone(tmp_path: Path) -> None:
    asked = Round(id="r2", type="multi_choice", question="?", feedback=FEEDBACK, choice=CHOICE)
    one = RoundGrader({"day01/r2": asked}, {}, "test")
    judgment = judge(one, tmp_path, "day01/r2", r"I first thought \bbox{A}, now \bbox{A,C}")
    assert not one.needs_sandbox_for(judgment.subject)
    assert (judgment.passed, judgment.score, judgment.figures["careful_exact"]) == (False, 0.75, 1.0)
    assert judgment.evidence["selected"] == ["A"]
    assert judgment.feedback.startswith("You missed option C")


# --- files ----------------------------------------------------------------------------------------------


def test_a_command_decides_by_its_exit_status(tmp_path: Path) -> None:
    put(tmp_path, {"day01/out.json": json.dumps({"at": "soon"}).encode()})
    command = "python scripts/check_iso8601.py day01/out.json at"
    failed = judge(grader(command), tmp_path, "day01/r1")
    assert (failed.passed, failed.score) == (False, 0.0)
    assert failed.feedback == "Wrong: see T.\nKeep this in mind as you continue with the next task."
    assert "soon" in failed.evidence["stdout"]
    put(tmp_path, {"day01/out.json": json.dumps({"at": T}).encode()})
    passed = judge(grader(command), tmp_path, "day01/r1")
    assert (passed.passed, passed.score, passed.feedback) == (True, 1.0, "Right.")


def test_commands_may_chain_expand_and_run_python(tmp_path: Path) -> None:
    put(tmp_path, {"day01/20260316_a.md": f"---\ncreated_at: {T}\nauthor: x\nstatus: done\n---\n".encode()})
    assert verdict(
        tmp_path,
        "python -c \"import glob,sys; sys.exit(0 if glob.glob('day01/20260316_*.md') else 1)\" && "
        "python scripts/check_metadata.py $(python -c \"import glob; print(glob.glob('day01/*.md')[0])\") && "
        "python scripts/check_filename.py --dir day01 --ext md",
    )


def test_status_and_output_may_be_expected(tmp_path: Path) -> None:
    assert verdict(tmp_path, "exit 3", expect_exit=3)
    assert not verdict(tmp_path, "exit 3")
    assert verdict(tmp_path, "echo all is well", expect_stdout="is we")
    assert not verdict(tmp_path, "echo all is well", expect_stdout="i. we")
    assert verdict(tmp_path, "echo all is well", expect_stdout="i. we", expect_stdout_regex=True)
    assert not verdict(tmp_path, "echo all is well; exit 1", expect_stdout="well")


def test_a_command_over_its_time_fails_the_round(tmp_path: Path) -> None:
    judgment = judge(grader("sleep 20", timeout=0.3), tmp_path, "day01/r1")
    assert judgment.passed is False
    assert judgment.evidence["timed_out"]


def test_evidence_is_bounded_and_keeps_what_was_printed(tmp_path: Path) -> None:
    """Control bytes, markup and half a character reach the record as text; who shows it must escape it."""
    hostile = "</script>[/red]\\x1b]0;P3\\x07\\0\\xe2\\x82"
    program = f"import sys; sys.stdout.buffer.write(b'a' * 3000000 + b'{hostile}'); sys.exit(1)"
    judgment = judge(grader(f'python -c "{program}"'), tmp_path, "day01/r1")
    assert judgment.evidence["stdout"].endswith("</script>[/red]\x1b]0;P3\x07\0\ufffd")
    assert len(judgment.model_dump_json()) < 10_000
    assert judgment.failure is None


def test_judging_leaves_the_workspace_as_it_was(tmp_path: Path) -> None:
    put(tmp_path, {"a.txt": b"a"})
    verdict(tmp_path, "echo b > a.txt; touch new; python scripts/check_backup.py a.txt")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.txt"]
    assert (tmp_path / "a.txt").read_bytes() == b"a"


EMPTY_CHECK = b"import sys\nsys.exit(0)\n"
TRICKS = {
    "own checkers": {"scripts/check_iso8601.py": EMPTY_CHECK, "scripts/check.py": EMPTY_CHECK},
    "modules beside the checkers": {"scripts/json.py": EMPTY_CHECK, "scripts/runpy.py": EMPTY_CHECK},
    "modules in the workspace": {
        "json.py": EMPTY_CHECK,
        "argparse.py": EMPTY_CHECK,
        "sitecustomize.py": EMPTY_CHECK,
    },
    "a file for the folder": {"scripts": b""},
}


@pytest.mark.parametrize("files", TRICKS.values(), ids=TRICKS.keys())
def test_the_agent_cannot_stand_in_for_the_checkers(tmp_path: Path, files: dict[str, bytes]) -> None:
    put(tmp_path, {"out.json": b'{"at": "soon"}', **files})
    command = "python -c \"import json; json.load(open('out.json'))\" && python scripts/check_iso8601.py out.json at"
    assert verdict(tmp_path, command) is False
    put(tmp_path, {"out.json": json.dumps({"at": T}).encode()})
    assert verdict(tmp_path, command) is True


def test_a_link_for_the_folder_of_checkers_is_undone(tmp_path: Path) -> None:
    put(tmp_path, {"work/elsewhere/check_iso8601.py": EMPTY_CHECK, "work/out.json": b"{}"})
    (tmp_path / "work/scripts").symlink_to("elsewhere")
    assert verdict(tmp_path / "work", "python scripts/check_iso8601.py out.json at") is False


def test_the_users_own_upstream_scripts_go_first(tmp_path: Path) -> None:
    own = {"check_iso8601.py": b"import sys\nsys.exit(7)\n"}
    judgment = judge(grader("python scripts/check_iso8601.py x y", own=own), tmp_path, "day01/r1")
    assert judgment.evidence["exit"] == 7
    other = judge(grader("python scripts/check_filename.py 20260316_a.md", own=own), tmp_path, "day01/r1")
    assert other.passed


def test_rules_travel_with_the_checkers(tmp_path: Path) -> None:
    command = "python scripts/check_filename.py plan.v2.md"
    assert judge(grader(command, rules=b'{"file_name": "[a-z]+[.]v[0-9][.]md"}'), tmp_path, "day01/r1").passed
    assert not judge(grader(command), tmp_path, "day01/r1").passed
