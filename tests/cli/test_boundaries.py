"""Protects: whatever fails in a life is put down to the right boundary, a result without a score is missing
and never 0, the life goes on where it can, and no container is left."""

from __future__ import annotations

import json
import signal
import socket
from pathlib import Path

import pytest

from .lives import CONFIG, MODULE, end, live, start

pytestmark = [pytest.mark.docker, pytest.mark.timeout(300)]


def faulty(fault: str) -> tuple[str, ...]:
    return ("--agent", f"{MODULE}:Faulty+none", "--set", f"agent.options.fault={fault}")


def test_a_life_without_faults(tmp_path: Path) -> None:
    """The yardstick: with the same plug-ins, a life in which nothing fails."""
    lived = live(tmp_path)
    assert (lived.code, lived.stderr) == (0, "")
    assert lived.judgments() == [("d1/q", 1.0, True, None), ("d2/q", 1.0, True, None)]
    assert lived.sessions() == {"d1": None, "d2": None}


def test_a_harness_that_dies_at_start(tmp_path: Path) -> None:
    lived = live(tmp_path, *faulty("start"))
    assert lived.code == 1
    assert lived.result["failure"] == "substrate", "the agent has done nothing yet"
    assert "harness exited with 3" in lived.result["failure_message"]
    assert "tokenizer" in lived.result["failure_message"], "its last words are missing"
    assert "failed (substrate): " in lived.stdout
    assert "\\x1b]0;P3\\x07tokenizer" in lived.stdout
    assert "\x1b" not in lived.stdout
    assert lived.judgments() == []


def test_a_harness_that_dies_in_mid_turn_has_failed_that_turn_only(tmp_path: Path) -> None:
    lived = live(tmp_path, *faulty("turn"))
    assert lived.code == 0, lived.stdout + lived.stderr
    assert lived.judgments() == [("d1/q", 0.0, False, "agent"), ("d2/q", 1.0, True, None)]
    assert "failed turns (agent): 1, the first d1/q: harness exited with 7" in lived.stdout
    assert "failed sessions (agent): 1, the first d1: harness exited with 7" in lived.stdout
    assert {(x["where"], x["failure"], x["count"]) for x in lived.result["failures"]} == (
        {("turn", "agent", 1), ("session", "agent", 1)}
    )
    assert lived.sessions() == {"d1": "agent", "d2": None}
    (turn,) = (x["turn"] for x in lived.lines("turn") if x["turn"]["session"] == "d1")
    assert turn["failure_message"] == "harness exited with 7"


def test_a_harness_that_never_answers_is_missing_not_wrong(tmp_path: Path) -> None:
    lived = live(tmp_path, *faulty("silence"), "--set", "budgets.turn_s=3")
    assert lived.code == 0, lived.stdout + lived.stderr
    assert lived.judgments() == [("d1/q", None, None, "timeout"), ("d2/q", 1.0, True, None)]
    assert (lived.result["missing"], lived.result["passed"]) == (1, 1)
    assert lived.result["figures"]["mean_score"] == 1.0, "a missing score is in no denominator"
    assert "missing judgments (timeout): 1, the first d1/q: no end of the turn within 3 s" in lived.stdout
    assert "no end of the turn within 3 s" in (lived.folder / "run.log").read_text()


def test_a_life_in_which_everything_is_missing_did_not_go_well(tmp_path: Path) -> None:
    config = ("--set", "budgets.turn_s=3", "--set", "benchmark.options.days=1")
    lived = live(tmp_path, *faulty("silence"), *config)
    assert lived.judgments() == [("d1/q", None, None, "timeout")]
    assert lived.code == 1, lived.stdout + lived.stderr
    assert lived.result["failure"] is None
    assert "every judgment is missing" in lived.stdout


def test_a_life_whose_model_never_answers_ends_after_three_turns_and_says_so(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    config = CONFIG.partition("[models.mine]")[0] + (
        f"[models.mine]\nbase_url = 'http://127.0.0.1:{port}'\nmodel = 'm'\n"
        "options = { retry_attempts = 2, retry_base_s = 0.1 }\n"
    )
    lived = live(tmp_path, "--set", "benchmark.options.days=9", config=config)
    assert lived.judgments()[:2] == [("d1/q", None, None, "model"), ("d2/q", None, None, "model")]
    turns = [x["turn"] for x in lived.lines("turn")]
    assert len(turns) == 3, "it goes on although nobody answers"
    for turn in turns:
        assert "Connect" in turn["failure_message"]
        assert str(port) in turn["failure_message"]
    assert lived.code == 1, lived.stdout + lived.stderr
    assert lived.result["failure"] == "model"
    assert (lived.result["sessions"], lived.result["turns"]) == (3, 3), "what was lived is counted"
    assert "failed (model): the first 3 turns in a row got no answer: " in lived.stdout
    assert "failed turns (model): 3, the first d1/q: " in lived.stdout
    waits = [x for x in lived.stdout.splitlines() if x.startswith("  the model does not answer (since ")]
    assert 1 <= len(waits) <= sum(x["status"] is not None for x in lived.lines("call"))
    assert str(port) in waits[0]
    calls = [json.loads(x) for x in next(lived.life.glob("sessions/*/calls.jsonl")).read_text().splitlines()]
    assert {call["retries"] for call in calls} == {1}


def test_a_grader_that_hangs_costs_one_judgment(tmp_path: Path) -> None:
    lived = live(tmp_path, "--set", "benchmark.options={judge='hang', limit_s=8}")
    assert lived.code == 0, lived.stdout + lived.stderr
    assert lived.judgments() == [("d1/q", None, None, "grader"), ("d2/q", 1.0, True, None)]


def test_a_grader_that_raises_is_missing(tmp_path: Path) -> None:
    lived = live(tmp_path, "--set", "benchmark.options={judge='raise', days=1}")
    assert lived.judgments() == [("d1/q", None, None, "grader")]
    assert "ZeroDivisionError" in (lived.folder / "run.log").read_text()


def test_an_image_that_is_missing(tmp_path: Path) -> None:
    lived = live(tmp_path, "--set", "sandbox.image='nosuch:1'")
    assert lived.code == 3, lived.stdout + lived.stderr
    assert "image nosuch:1 is missing" in lived.stderr
    assert "sandbox.image names it" in lived.stderr
    assert "fix: docker pull nosuch:1" in lived.stderr
    assert not lived.folder.exists(), "a run that cannot start leaves no folder: the next try would fail"


@pytest.mark.parametrize("times", [1, 2])
def test_an_interrupt_while_a_sandbox_is_made_leaves_none(times: int, tmp_path: Path) -> None:
    """When the life begins the container is about to be made: the worst moment."""
    run = start(tmp_path, "--set", "benchmark.options.days=9")
    assert run.stdout is not None
    while "life week" not in run.stdout.readline():
        assert run.poll() is None
    run.send_signal(signal.SIGINT)
    if times == 2:
        while "once more" not in run.stdout.readline():
            assert run.poll() is None
        run.send_signal(signal.SIGINT)
    lived = end(run, tmp_path)
    assert lived.code == 130, lived.stdout + lived.stderr
    assert (lived.folder / "result.json").exists() == (times == 1)
