"""Protects both variants and both kinds of workspace in real sandboxes, by the command that a user gives."""

from __future__ import annotations

import json
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest

from .test_data import PUBLISHED

pytestmark = [pytest.mark.docker, pytest.mark.data, pytest.mark.timeout(300)]

RUN = (sys.executable, "-m", "sclate.cli.main", "run", "--benchmark", "metaclaw", "--quiet")
AGENT = ("--agent", "reference+native", "--model", "apprentice")


def lived(out: Path, data: str, *args: str) -> tuple[Path, dict[str, Any]]:
    """The folder and the result of the one life."""
    done = subprocess.run(
        [*RUN, *AGENT, "--data", str(PUBLISHED / data), "--out", str(out), *args],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (life,) = (out / "lives").iterdir()
    return life, json.loads((life / "result.json").read_text())


def left_behind(life: Path, session: str) -> set[str]:
    """Files of the workspace as a session left it, but for the folder's own."""
    state = json.loads((life / "sessions" / session / "state.json").read_text())
    digest = state["after"]["workspace"].removeprefix("sha256:")
    with tarfile.open(life / "state" / f"{digest}.tar") as saved:
        return {m.name.partition("/")[2] for m in saved if m.isfile()}


@pytest.mark.parametrize(
    ("data", "split", "rounds"), [("metaclaw-bench", "full", 10), ("metaclaw-bench-small", "small", 5)]
)
def test_a_day_of_each_variant(tmp_path: Path, data: str, split: str, rounds: int) -> None:
    _, result = lived(tmp_path / "run", data, "--split", split, "--limit", "1")
    figures = result["figures"]
    assert figures["rounds_judged"] == figures["rounds_judged/day01"] == rounds
    assert figures["rounds_judged/rule:P1"] == rounds
    assert figures["rounds_missing"] == 0
    assert 0 < figures["exact_pass_accuracy"] < 1, (
        "a day's rule is learnt within the day, after a failed round"
    )


@pytest.mark.parametrize("workspace", ["fresh", "carry"])
def test_a_workspace_is_carried_or_fresh(tmp_path: Path, workspace: str) -> None:
    option = f"benchmark.options.workspace={workspace}"
    life, result = lived(tmp_path / "run", "metaclaw-bench-small", "--limit", "2", "--set", option)
    first, second = left_behind(life, "001-day01"), left_behind(life, "002-day02")
    assert {"USER.md", "day01/standup_raw.txt", "day01/standup.json"} <= first
    assert {"USER.md", "day02/api_access.log", "day02/log_summary.json"} <= second
    assert {n for n in second if n.startswith("day01/")} == (
        set() if workspace == "fresh" else {n for n in first if n.startswith("day01/")}
    )
    scenario = json.loads((life / "life.json").read_text())["scenario"]
    assert scenario["data"]["options"]["workspace"] == workspace
    assert result["figures"]["rounds_missing"] == 0
