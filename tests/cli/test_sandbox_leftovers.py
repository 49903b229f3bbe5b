"""Protects: whenever and however a command is broken off, no container and no private folder of its is left."""

from __future__ import annotations

import signal
import subprocess
import time
from pathlib import Path

import pytest

from sclate.sandbox.docker import PREFIX, PRIVATE_ROOT

from .kit import ARGV, environment
from .lives import CONFIG, MODULE, containers, end, live, start

pytestmark = [pytest.mark.docker, pytest.mark.timeout(300)]

EXEC = [*ARGV, "sandbox", "exec", "--at", "2031-02-28T09:00Z", "--"]

MUTE = f"""
from {MODULE} import ReferenceAgent

class Mute(ReferenceAgent):
    def channel(self, ctx):
        raise ZeroDivisionError("no channel")
"""


def folders(pid: int) -> list[Path]:
    """Private folders that a process left."""
    return list(PRIVATE_ROOT.glob(f"{PREFIX}{pid}-*"))


@pytest.mark.parametrize("limit", ["0.05", "0.3", "0.7"])
def test_a_grading_that_takes_too_long_while_its_sandbox_starts(limit: str, tmp_path: Path) -> None:
    config = CONFIG.replace("[memory]", '[benchmark.options]\njudge = "hang"\n\n[memory]')
    lived = live(
        tmp_path, "--set", f"budgets.grade_s={limit}", config=config
    )  # sees that no container is left
    assert [failure for *_, failure in lived.judgments()] == ["grader", "grader"]
    assert folders(lived.pid) == []


@pytest.mark.parametrize("limit", ["0.05", "0.4"])
def test_a_session_that_takes_too_long_to_start(limit: str, tmp_path: Path) -> None:
    lived = live(tmp_path, "--set", f"budgets.start_s={limit}")
    assert lived.result["failure"] == "timeout"
    assert folders(lived.pid) == []


def test_an_agent_whose_channel_is_broken(tmp_path: Path) -> None:
    (tmp_path / "mute.py").write_text(MUTE)
    run = start(tmp_path, "--agent", "mute:Mute+none")
    assert end(run, tmp_path).code == 70
    assert folders(run.pid) == []


def wait_for_container(run: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 30
    while not containers(run.pid):
        assert run.poll() is None, run.communicate()
        assert time.monotonic() < deadline


@pytest.mark.parametrize("times", [2, 3, 4])
def test_a_run_interrupted_again_and_again_while_a_sandbox_starts(times: int, tmp_path: Path) -> None:
    run = start(tmp_path)
    wait_for_container(run)
    for _ in range(times):
        run.send_signal(signal.SIGINT)
        time.sleep(0.02)  # two at once would be one
    assert end(run, tmp_path).code == 130
    assert folders(run.pid) == []


@pytest.mark.parametrize("sig", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("ready", [False, True], ids=["while it starts", "while it runs"])
def test_exec_that_is_ended(sig: signal.Signals, ready: bool, tmp_path: Path) -> None:
    run = subprocess.Popen(
        [*EXEC, "sh", "-c", "echo up; sleep 600"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
        env=environment(),
    )
    wait_for_container(run)
    if ready:
        assert run.stdout is not None
        assert run.stdout.readline() == "up\n"
    run.send_signal(sig)
    _, said = run.communicate(timeout=60)
    assert (run.returncode, said) == (130, "interrupted\n")
    assert containers(run.pid) == []
    assert folders(run.pid) == []


def test_a_run_whose_terminal_goes_away(tmp_path: Path) -> None:
    run = start(tmp_path)
    wait_for_container(run)
    run.send_signal(signal.SIGHUP)
    assert end(run, tmp_path).code == 130
    assert folders(run.pid) == []


@pytest.mark.parametrize("args", [["--version"], ["run", "--help"], ["list", "agents"]])
def test_an_interrupt_at_any_moment_of_the_start(args: list[str], tmp_path: Path) -> None:
    """Importing takes most of a second; an interrupt that comes in it is one like any other."""
    for wait_ms in range(80, 800, 90):
        run = subprocess.Popen(
            [*ARGV, *args],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=tmp_path,
            env=environment(),
        )
        time.sleep(wait_ms / 1000)
        run.send_signal(signal.SIGINT)
        _, said = run.communicate(timeout=60)
        assert "Traceback" not in said
        assert (run.returncode, said) in ((130, "interrupted\n"), (0, "")), wait_ms
