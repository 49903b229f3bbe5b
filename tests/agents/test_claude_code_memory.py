"""Protects that what memory brings to real Claude Code comes from its memory folder, and from nothing else."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ..engine.tracecheck import check, read

pytestmark = [pytest.mark.docker, pytest.mark.timeout(600)]

ARMS = ("native", "none", "emptied")


@pytest.fixture(scope="module")
def verdicts(metaclaw_data: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """Five days of the 12-day variant, 25 rounds, in each arm: verdicts by round."""
    root, found = tmp_path_factory.mktemp("memory"), {}
    for arm in ARMS:
        argv = [sys.executable, "-m", "sclate.cli.main", "run", "--benchmark", "metaclaw", "--limit", "5"]
        argv += ["--data", str(metaclaw_data.with_name("metaclaw-bench-small")), "--quiet"]
        argv += ["--agent", f"claude-code+{arm}", "--out", str(root / arm)]
        done = subprocess.run(argv, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        (life,) = (root / arm / "lives").iterdir()
        lines = read(life / "trace.jsonl")
        check(lines)
        found[arm] = {x["subject"]: x["passed"] for x in lines if x["type"] == "judgment"}
    return found


def test_memory_leads(verdicts: dict[str, dict[str, Any]]) -> None:
    passed = {arm: sum(map(bool, rounds.values())) for arm, rounds in verdicts.items()}
    assert all(len(rounds) == 25 for rounds in verdicts.values())
    assert passed["native"] >= passed["none"] + 4, passed


def test_emptied_between_sessions_it_brings_nothing(verdicts: dict[str, dict[str, Any]]) -> None:
    """Round by round: not the same number by chance."""
    assert verdicts["emptied"] == verdicts["none"], json.dumps(verdicts, indent=1)
