"""Protects what the real Claude Code is promised: every delivery accounted for, its own turns and schedules
on the timeline, simulated dates, no call twice. The model is scripted; the binary is the real one."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from sclate.cli.toml import dumps

from ..engine.tracecheck import check, read

pytestmark = [pytest.mark.docker, pytest.mark.timeout(600)]

DAY_S = 86_400
ROOT = Path(__file__).parents[2]


class Lived:
    """A life of `claude-code+native` under a plan and a script; see days.py."""

    def __init__(
        self, tmp_path: Path, plan: dict[str, Any], script: list[dict[str, Any]], *args: str
    ) -> None:
        (tmp_path / "plan.json").write_text(json.dumps({"start": "2031-03-03T09:00:00+00:00", **plan}))
        config = tmp_path / "run.toml"
        config.write_text(dumps({"models": {"x": {"backend": "scripted", "options": {"script": script}}}}))
        argv = [sys.executable, "-m", "sclate.cli.main", "run", "--benchmark", "tests.agents.days:Days"]
        argv += ["--data", str(tmp_path), "--model", "x", "--agent", "claude-code+native", *args]
        self.done = subprocess.run(
            [*argv, "--out", str(tmp_path / "out"), "--", str(config)],
            capture_output=True,
            text=True,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
        )
        (self.folder,) = (tmp_path / "out" / "lives").iterdir()
        self.trace = read(self.folder / "trace.jsonl")
        check(self.trace)

    def of(self, type_: str) -> list[dict[str, Any]]:
        return [line for line in self.trace if line["type"] == type_]

    def deliveries(self) -> dict[str, str]:
        return {line["delivery"]: line["state"] for line in self.of("delivery")}

    def turns(self) -> list[dict[str, Any]]:
        """As the transcripts have them, in order; deliveries by id."""
        lines = [x for f in sorted(self.folder.glob("sessions/*/transcript.jsonl")) for x in read(f)]
        turns = [x["turn"] for x in lines if x["type"] == "turn"]
        return [{**turn, "deliveries": [d["id"] for d in turn["deliveries"]]} for turn in turns]

    def calls(self) -> list[dict[str, Any]]:
        return [c for f in sorted(self.folder.glob("sessions/*/calls.jsonl")) for c in read(f)]

    def requests(self) -> list[str]:
        return [json.dumps(c["request"]["messages"]) for c in self.calls()]


def seen(ns: int) -> str:
    return datetime.fromtimestamp(ns // 10**9, UTC).strftime("%Y-%m-%d %H:%M")


def test_messages_in_mid_turn_and_in_the_last_call_are_each_accounted_for(tmp_path: Path) -> None:
    plan = {
        "sessions": [{"id": "a", "at_s": 0}],
        "turns": [
            {
                "key": "a/1",
                "text": "FIRST",
                "interjections": [
                    ["a/x", 1.5, "MID-ONE"],
                    ["a/y", 1.7, "MID-TWO"],
                    ["a/z", 6.0, "IN-THE-LAST-CALL"],
                ],
            }
        ],
    }
    script = [
        {"tool": "Bash", "input": {"command": "sleep 4"}},
        {"text": "one", "delay_s": 5},
        {"text": "two"},
    ]
    life = Lived(tmp_path, plan, script)
    assert life.done.returncode == 0, life.done.stdout + life.done.stderr
    assert life.deliveries() == dict.fromkeys(["a/1", "a/x", "a/y", "a/z"], "delivered")
    first, second = life.turns()
    assert (first["text"], first["deliveries"]) == ("one", ["a/1", "a/x", "a/y"])
    assert (second["text"], second["deliveries"]) == ("two", ["a/z"])
    requests = life.requests()
    assert len(requests) == 3
    assert "MID-ONE" not in requests[0]
    assert "MID-ONE" in requests[1]
    assert "MID-TWO" in requests[1]
    assert "IN-THE-LAST-CALL" not in requests[1]
    assert "IN-THE-LAST-CALL" in requests[2]


def test_a_background_task_keeps_the_turn_open_and_its_end_is_a_turn_of_its_own(tmp_path: Path) -> None:
    plan = {
        "sessions": [{"id": "a", "at_s": 0}],
        "turns": [{"key": "a/1", "text": "START IT"}, {"key": "a/2", "text": "AND THEN"}],
    }
    background = {"command": "sleep 3; echo finished", "run_in_background": True}
    script = [
        {"tool": "Bash", "input": background},
        {"text": "it runs"},
        {"text": "it has ended"},
        {"text": "what next"},
    ]
    life = Lived(tmp_path, plan, script)
    assert life.done.returncode == 0, life.done.stdout + life.done.stderr
    first, own, second = life.turns()
    assert [(t["text"], t["deliveries"]) for t in (first, own, second)] == [
        ("it runs", ["a/1"]),
        ("it has ended", []),
        ("what next", ["a/2"]),
    ]
    assert own["trigger"] == "own"
    assert first["stop"] == own["stop"] == "end_turn"
    assert second["started_sim_ns"] >= own["ended_sim_ns"], "the second message came while the task ran"
    assert own["started_sim_ns"] - first["started_sim_ns"] >= 3 * 10**9
    assert len(life.calls()) == 4


def test_its_schedule_rings_at_night_in_a_wake_session(tmp_path: Path) -> None:
    """The clock steps to the instant that the harness itself rings at; nothing is sent to it."""
    plan = {
        "sessions": [{"id": "a", "at_s": 0}, {"id": "b", "at_s": 2 * DAY_S}],
        "turns": [{"key": "a/1", "text": "WAKE YOURSELF"}, {"key": "b/1", "text": "GOOD MORNING"}],
    }
    job = {"cron": "30 3 * * *", "prompt": "NIGHTLY-CHECK", "recurring": True, "durable": True}
    script = [
        {"tool": "ToolSearch", "input": {"query": "select:CronCreate"}},
        {"tool": "CronCreate", "input": job},
        {"text": "set"},
        {"tool": "Bash", "input": {"command": "date '+%F %H:%M'"}},
        {"text": "checked once"},
        {"text": "checked twice"},
        {"text": "morning"},
    ]
    life = Lived(tmp_path, plan, script)
    assert life.done.returncode == 0, life.done.stdout + life.done.stderr
    assert [t["text"] for t in life.turns()] == ["set", "checked once", "checked twice", "morning"]
    rings = [t for t in life.turns() if t["trigger"] == "alarm"]
    assert [t["session"].rpartition("-")[2] for t in rings] == ["1", "2"]
    (job_id,) = {t["session"].split("-")[1] for t in rings}
    late_ns = min(int(job_id, 16) / 2**32 / 2 * DAY_S, 1800) * 1e9
    base = datetime(2031, 3, 4, 3, 30, tzinfo=UTC).timestamp() * 1e9
    for n, ring in enumerate(rings):
        assert -1e9 < ring["started_sim_ns"] - (base + n * DAY_S * 1e9 + late_ns) < 5e9, seen(
            ring["started_sim_ns"]
        )
    tool = next(r for r in life.requests() if "2031-03-04 0" in r)
    assert "NIGHTLY-CHECK" in tool
    assert [s["session"] for s in life.of("session") if s["change"] == "closed"] == [
        "a",
        *(t["session"] for t in rings),
        "b",
    ]


def test_a_session_only_schedule_dies_with_its_session(tmp_path: Path) -> None:
    plan = {
        "sessions": [{"id": "a", "at_s": 0}, {"id": "b", "at_s": 2 * DAY_S}],
        "turns": [
            {"key": "a/1", "text": "WAKE YOURSELF"},
            {"key": "a/2", "text": "STILL THERE?", "at_s": 5400},
            {"key": "b/1", "text": "GOOD MORNING"},
        ],
    }
    script = [
        {"tool": "ToolSearch", "input": {"query": "select:CronCreate"}},
        {"tool": "CronCreate", "input": {"cron": "47 * * * *", "prompt": "HOURLY", "recurring": True}},
        {"text": "set"},
        *(
            {"when": "HOURLY", "text": "rang"},
            {"when": "STILL", "text": "yes"},
            {"when": "MORNING", "text": "hi"},
        ),
    ]
    life = Lived(tmp_path, plan, script)
    assert life.done.returncode == 0, life.done.stdout + life.done.stderr
    assert sorted(t["text"] for t in life.turns()) == ["hi", "rang", "set", "yes"]
    rang = next(t for t in life.turns() if t["text"] == "rang")
    assert (rang["session"], rang["trigger"]) == ("a", "alarm")
    assert not [s for s in life.of("session") if s["session"].startswith("wake")]


def test_jumps_of_a_day_a_week_and_a_month_leave_no_trace_but_the_date(tmp_path: Path) -> None:
    """Between sessions and inside one: no call twice, transcripts kept, the date right in prompt and tool."""
    spans = {"a/2": 1, "a/3": 8, "a/4": 39}
    plan = {
        "sessions": [
            {"id": "a", "at_s": 0},
            {"id": "b", "at_s": 40 * DAY_S},
            {"id": "c", "at_s": 80 * DAY_S},
        ],
        "turns": [
            {"key": "a/1", "text": "TODAY?"},
            *({"key": k, "text": "AND NOW?", "at_s": d * DAY_S} for k, d in spans.items()),
            {"key": "b/1", "text": "A MONTH LATER"},
            {"key": "c/1", "text": "ANOTHER MONTH LATER"},
        ],
    }
    look = "date +tool-%F; awk '{print \"ticks\", $14 + $15}' /proc/$PPID/stat"
    date = {"tool": "Bash", "input": {"command": look}}
    script = [step for n in range(6) for step in (date, {"text": f"turn {n}"})]
    life = Lived(tmp_path, plan, script)
    assert life.done.returncode == 0, life.done.stdout + life.done.stderr
    assert [t["text"] for t in life.turns()] == [f"turn {n}" for n in range(6)]
    days = ["2031-03-03", "2031-03-04", "2031-03-11", "2031-04-11", "2031-04-12", "2031-05-22"]
    calls = life.calls()
    assert len(calls) == 12
    for n, day in enumerate(days):
        after_tool = json.dumps(calls[2 * n + 1]["request"]["messages"])
        assert f"tool-{day}" in after_tool
        told = list(after_tool.split("Today's date is ")[1:])
        assert told[-1].removeprefix("now ").startswith(day)
    used = [int(re.findall(r"ticks (\d+)", json.dumps(c["request"]["messages"]))[-1]) for c in calls[1:8:2]]
    idle_s = [(b - a) / os.sysconf("SC_CLK_TCK") for a, b in pairwise(used)]
    assert max(idle_s) < 1.0, f"CPU of a turn and the jump before it: {idle_s}"
    state = sorted((life.folder / "state").glob("*.tar"), key=lambda p: p.stat().st_size)
    listed = subprocess.run(["tar", "tf", str(state[-1])], capture_output=True, text=True, check=True).stdout
    transcripts = [line for line in listed.splitlines() if line.endswith(".jsonl") and "/projects/" in line]
    assert len(transcripts) == 3, listed


def test_a_stop_in_mid_tool_interrupts_the_turn_and_loses_nothing(tmp_path: Path) -> None:
    plan = {
        "sessions": [{"id": "a", "at_s": 0, "stop_after_s": 6}, {"id": "b", "at_s": DAY_S}],
        "turns": [{"key": "a/1", "text": "A LONG TOOL"}, {"key": "b/1", "text": "NEXT DAY"}],
    }
    script = [
        {"tool": "Bash", "input": {"command": "echo begun > begun.txt; sleep 500"}},
        {"tool": "Bash", "input": {"command": "cat begun.txt; pgrep -c sleep"}},
        {"text": "next"},
    ]
    life = Lived(tmp_path, plan, script, "--set", "budgets.stop_s=5")
    assert life.done.returncode == 0, life.done.stdout + life.done.stderr
    assert life.deliveries() == {"a/1": "delivered", "b/1": "delivered"}
    cut, after = life.turns()
    assert (cut["stop"], cut["failure"]) == ("interrupted", None)
    assert cut["ended_sim_ns"] - cut["started_sim_ns"] < 9 * 10**9, "the tool was waited for"
    assert (after["text"], after["failure"]) == ("next", None)
    assert "begun" in life.requests()[-1], "the workspace was not kept"


def test_a_kill_in_mid_tool_is_the_agents_failure_and_the_next_session_comes_up(tmp_path: Path) -> None:
    plan = {
        "sessions": [{"id": "a", "at_s": 0}, {"id": "b", "at_s": DAY_S}],
        "turns": [
            {"key": "a/1", "text": "KILL", "interjections": [["a/x", 1.5, "NEVER CONSUMED"]]},
            {"key": "b/1", "text": "NEXT DAY"},
        ],
    }
    script = [
        {"tool": "Bash", "input": {"command": "sleep 3; kill -9 $PPID; sleep 500"}},
        {"text": "next"},
    ]
    life = Lived(tmp_path, plan, script)
    assert life.deliveries() == {"a/1": "delivered", "a/x": "uncertain", "b/1": "delivered"}
    killed, after = life.turns()
    assert killed["failure"] == "agent"
    assert (after["text"], after["failure"]) == ("next", None)
    ends = {e["event"]: e["outcome"] for e in life.of("effect.end")}
    assert len(ends) == len({e["event"] for e in life.of("effect.start")} | set(ends))
