"""Protects: a plug-in that raises is named with its method, is never called a bug of SCLATE and never scored as
the agent's; what was lived has a result, and the traceback is in the log only."""

from __future__ import annotations

from pathlib import Path

import pytest

from .kit import NO_DOCKER, sclate
from .lives import MODULE, install, live

PREREQUISITE, FAILED = 3, 1
AGENT, MEMORY = f"agent '{MODULE}:Faulty'", f"memory '{MODULE}:Forgetful'"
BENCHMARK = f"benchmark '{MODULE}:Days'"
PARTS = {
    "agent": (("--agent", f"{MODULE}:Faulty+none"), AGENT, "substrate"),
    "memory": (("--agent", f"reference+{MODULE}:Forgetful"), MEMORY, "memory"),
    "benchmark": ((), BENCHMARK, "benchmark"),
}


def breaking(part: str, method: str) -> tuple[str, ...]:
    return (*PARTS[part][0], "--set", f"{part}.options.raises={method}")


@pytest.mark.parametrize(
    ("part", "method"),
    [
        *(("agent", name) for name in ("__init__", "event_sources")),
        *(("memory", name) for name in ("__init__", "event_sources", "describe")),
        *(
            ("benchmark", name)
            for name in ("__init__", "scenarios", "environment", "event_sources", "source_manifest", "grader")
        ),
    ],
)
def test_before_anything_runs(part: str, method: str, tmp_path: Path) -> None:
    env = install(tmp_path) | NO_DOCKER
    done = sclate("run", "c.toml", "--out", "r", *breaking(part, method), cwd=tmp_path, env=env)
    assert done.returncode == PREREQUISITE, done.stderr
    called = method if method.startswith("_") else f"{method}()"
    assert done.stderr.startswith(f"error: {PARTS[part][1]} is broken: its {called} raises\n")
    assert "why: ZeroDivisionError: near (redacted)" in done.stderr
    assert f"{MODULE}.py, line " in done.stderr
    assert "fix: " in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
    assert not (tmp_path / "r").exists()


def test_a_model_that_cannot_be_made(tmp_path: Path) -> None:
    done = sclate("run", "c.toml", "--model", f"{MODULE}:Mute", cwd=tmp_path, env=install(tmp_path))
    assert done.returncode == PREREQUISITE, done.stderr
    assert done.stderr.startswith(f"error: model '{MODULE}:Mute' is broken: its __init__ raises\n")


@pytest.mark.docker
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("part", "method", "who"),
    [
        *(("agent", name, AGENT) for name in ("provision", "launch", "durable_state", "classify_call")),
        *(("agent", name, f"the channel of {AGENT}") for name in ("decode", "encode")),
        ("memory", "durable_state", MEMORY),
        *(("benchmark", name, BENCHMARK) for name in ("setup", "checkpoint", "figures")),
        ("benchmark", "run", f"event source 'user_input' of {BENCHMARK}"),
    ],
)
def test_in_a_life(part: str, method: str, who: str, tmp_path: Path) -> None:
    lived = live(
        tmp_path, *breaking(part, method), *(["--set", "agent.name=reference"] if part != "agent" else [])
    )
    assert lived.code == FAILED, lived.stdout + lived.stderr
    assert lived.stderr == ""
    assert lived.result["failure"] == PARTS[part][2]
    said = f"{who} is broken: its {method}() raises ZeroDivisionError: near (redacted)"
    assert said in lived.result["failure_message"]
    assert said in lived.stdout
    assert all(score != 0.0 for _, score, _, _ in lived.judgments()), "scored as the agent's"
    log = (lived.folder / "run.log").read_text()
    assert "Traceback" in log
    assert f"{MODULE}.py" in log
    assert "sk-abcdefghijklmnop1234" not in log + lived.stdout
    assert next(x["failure"] for x in lived.lines("fault")) == PARTS[part][2]
    assert len(lived.lines("end")) == 1
