"""Protects the example of docs/guide-agent.md: copied as it stands, it is installed and lives two days."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sclate.sandbox.build import cache_dir

from ..cli.kit import sclate
from ..engine.tracecheck import read
from .test_claude_code_lives import DAY_S, ROOT

pytestmark = [pytest.mark.docker, pytest.mark.timeout(120)]


def test_the_example_of_the_guide_lives(tmp_path: Path) -> None:
    _, _, rest = (ROOT / "docs/guide-agent.md").read_text().partition("```python\n")
    (tmp_path / "echo_agent.py").write_text(rest.partition("```\n")[0])
    plan = {
        "start": "2031-03-03T09:00:00+00:00",
        "sessions": [{"id": "a", "at_s": 0}, {"id": "b", "at_s": DAY_S}],
        "turns": [{"key": "a/1", "text": "HI"}, {"key": "b/1", "text": "DAY TWO"}],
    }
    (tmp_path / "plan.json").write_text(json.dumps(plan))
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "runtime").symlink_to(cache_dir() / "runtime")
    argv = ["run", "--benchmark", "tests.agents.days:Days", "--data", str(tmp_path), "--model", "scripted"]
    argv += ["--agent", "echo_agent:EchoAgent+none", "--out", str(tmp_path / "out")]
    env = {"PYTHONPATH": f"{ROOT}:{tmp_path}", "SCLATE_CACHE": str(tmp_path / "cache")}
    done = sclate(*argv, cwd=tmp_path, env=env)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "installing echo 1" in done.stdout
    (trace,) = (tmp_path / "out" / "lives").glob("*/trace.jsonl")
    states = {line["delivery"]: line["state"] for line in read(trace) if line["type"] == "delivery"}
    assert states == {"a/1": "delivered", "b/1": "delivered"}
