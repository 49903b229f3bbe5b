"""Protects a whole life in real containers: the laws of its trace, determinism, memory, state by digest."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sclate.cli.toml import dumps

from .tracecheck import check, read

pytestmark = [pytest.mark.docker, pytest.mark.timeout(600)]


def lived(data: Path, out: Path, *args: str) -> Path:
    """Run the command line as a user does; returns the folder of the one life."""
    argv = [sys.executable, "-m", "sclate.cli.main", "run", "--benchmark", "metaclaw", "--data", str(data)]
    done = subprocess.run(
        [*argv, "--out", str(out), *args], capture_output=True, text=True, env=os.environ | {"COLUMNS": "120"}
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (life,) = (out / "lives").iterdir()
    return life


def judgments(life: Path) -> list[tuple[str, Any, Any]]:
    lines = [x for x in read(life / "trace.jsonl") if x["type"] == "judgment"]
    return [(x["subject"], x["passed"], x["score"]) for x in lines]


@pytest.fixture(scope="module")
def small(metaclaw_data: Path) -> Path:
    return metaclaw_data.with_name("metaclaw-bench-small")


@pytest.fixture(scope="module")
def fixed(small: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The same two days twice, under a fixed model latency."""
    root = tmp_path_factory.mktemp("fixed")
    args = ("--limit", "2", "--agent", "reference+native", "--set", "clock.latency=fixed=2")
    return [lived(small, root / name, *args) for name in ("a", "b")]


def test_the_trace_keeps_its_laws(fixed: list[Path]) -> None:
    for life in fixed:
        check(read(life / "trace.jsonl"))


def test_same_seed_same_dispatch_order_and_judgments(fixed: list[Path]) -> None:
    a, b = ([x for x in read(life / "trace.jsonl") if x["type"] == "dispatch"] for life in fixed)
    assert [(x["event"], x["kind"], x["phase"], x["delta"]) for x in a] == [
        (x["event"], x["kind"], x["phase"], x["delta"]) for x in b
    ]
    assert judgments(fixed[0]) == judgments(fixed[1])
    assert len(judgments(fixed[0])) >= 8


def test_a_fixed_latency_is_what_a_call_takes(fixed: list[Path]) -> None:
    calls = [x for x in read(fixed[0] / "trace.jsonl") if x["type"] == "call"]
    assert calls
    took = [(x["end_sim_ns"] - x["start_sim_ns"]) / 1e9 for x in calls]
    assert all(1.9 < t < 2.5 for t in took), took


def test_each_session_starts_from_the_state_that_the_last_one_left(fixed: list[Path]) -> None:
    states = [json.loads(p.read_text()) for p in sorted(fixed[0].glob("sessions/*/state.json"))]
    assert len(states) == 2
    assert states[0]["after"]["memory"] == states[1]["before"]["memory"]
    assert states[0]["after"]["harness"] == states[1]["before"]["harness"]
    assert states[0]["before"]["memory"] != states[0]["after"]["memory"], "nothing was remembered"
    stored = {p.stem for p in (fixed[0] / "state").glob("*.tar")}
    assert states[1]["after"]["workspace"].removeprefix("sha256:") in stored


def test_every_call_is_recorded_with_both_clocks(fixed: list[Path]) -> None:
    for folder in sorted(fixed[0].glob("sessions/*")):
        calls = read(folder / "calls.jsonl")
        assert calls
        for call in calls:
            assert call["route"] == "agent"
            assert call["dialect"] == "messages"
            assert call["status"] == 200
            assert call["streamed"]
            assert not call["truncated"]
            assert call["request"]["messages"]
            assert call["start_sim_ns"] <= call["end_sim_ns"]
            assert call["output_token_ids"] is None
            assert call["unfaithful"]
    total = sum(len(read(f / "calls.jsonl")) for f in fixed[0].glob("sessions/*"))
    assert total == json.loads((fixed[0] / "result.json").read_text())["calls"]


def test_the_agent_sees_simulated_dates(fixed: list[Path]) -> None:
    first = read(next(iter(sorted(fixed[0].glob("sessions/*")))) / "calls.jsonl")[0]
    assert "Current date: Monday 2026-03-16T09:0" in first["request"]["system"]


def test_no_memory_means_no_word_of_it(small: Path, tmp_path: Path) -> None:
    life = lived(small, tmp_path / "none", "--limit", "2", "--agent", "reference+none")
    check(read(life / "trace.jsonl"))
    for folder in life.glob("sessions/*"):
        for call in read(folder / "calls.jsonl"):
            assert "emory" not in call["request"]["system"]
    states = [json.loads(p.read_text()) for p in sorted(life.glob("sessions/*/state.json"))]
    assert len({s["after"]["memory"] for s in states}) == 1


WATCHED = """
from sclate_adapters.benchmark import *
from sclate_adapters.effects import SessionPlan
from sclate_adapters.judgments import Grader, GradingPolicy
from sclate_adapters.records import WorldWrite
from sclate_adapters.sources import GradingSource, TurnPlan, UserInputSource

START = 1_930_000_000_000_000_000


class Desk(WorldProvider):
    world = {}

    async def refresh(self, ctx):
        text = await ctx.workspace.read_file("reply.txt")
        if text is None or self.world:
            return ()
        self.world = {"reply": text}
        return (WorldWrite(seq=0, sim_ns=ctx.now_ns, actor="agent", key="reply"),)


class Nobody(Grader):
    async def evaluate(self, ctx):
        raise AssertionError("nothing is graded")


class Watched(BenchmarkAdapter):
    metadata = BenchmarkMetadata(name="watched", version="1", licence="CC0-1.0", citation="")

    def scenarios(self, split, limit, seed):
        yield Scenario(id="one", start_ns=START, zone="UTC")

    def environment(self, scenario):
        return EnvironmentSpec()

    def source_manifest(self, ctx):
        return SourceManifest(sessions=(SessionPlan(id="day", start_ns=START),))

    def event_sources(self, ctx):
        policy = self.grading_policy(ctx.scenario)
        return [UserInputSource([TurnPlan(key="day/ask", session="day", text="Write reply.txt.")]),
                GradingSource(policy, ["day/ask"], ["day"])]

    def grading_policy(self, scenario):
        return GradingPolicy(selects=())

    def grader(self, scenario):
        return Nobody()

    def world_provider(self, ctx):
        return Desk()
"""


def test_what_the_agent_does_last_is_seen_before_its_sandbox_goes(tmp_path: Path) -> None:
    """The write falls after the last effect's end of the turn; a session's end must not lose it."""
    (tmp_path / "watched.py").write_text(WATCHED)
    script = [{"tool": "write", "input": {"path": "reply.txt", "content": "done"}}, {"text": "Written."}]
    config = {"backend": "scripted", "options": {"script": script}}
    argv = [sys.executable, "-m", "sclate.cli.main", "run", "--benchmark", "watched:Watched", "--model", "x"]
    config_toml = tmp_path / "run.toml"
    config_toml.write_text(dumps({"models": {"x": config}}))
    done = subprocess.run(
        [*argv, "--agent", "reference+none", "--out", str(tmp_path / "out"), "--", str(config_toml)],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (life,) = (tmp_path / "out" / "lives").iterdir()
    lines = read(life / "trace.jsonl")
    check(lines)
    assert [x["write"]["key"] for x in lines if x["type"] == "world"] == ["reply"]
