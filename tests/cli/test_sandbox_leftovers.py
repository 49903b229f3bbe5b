"""Protects: whenever and however a command is broken off, no container and no private folder of its is left."""

from __future__ import annotations

import signal
import subprocess
import time
from pathlib import Path

import pytest

from sclate.sandbox.docker import PREFIX, PRIVATE_ROOT

from .kit import ARGV, environment
from .lives import MODULE, containers, end, live, start

pytestmark = [pytest.mark.docker, pytest.mark.timeout(300)]

EXEC = [*ARGV, "sandbox", "exec", "--at", "2031-02-28T09:00Z", "--"]

SLOW = f"""
from {MODULE} import Days, Judge

class Slow(Days):
    def grader(self, scenario):
        return Judge("hang")  # it needs a sandbox
"""

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
    (tmp_path / "slow.py").write_text(SLOW)
    lived = live(tmp_path, "--benchmark", "slow:Slow", "--set", f"budgets.grade_s={limit}")
    assert lived.judgments()[0][-1] == "grader"
    assert folders(lived.pid) == []


@pytest.mark.parametrize("limit", ["0.05", "0.4"])
def test_a_session_that_takes_too_long_to_start(limit: str, tmp_path: Path) -> None:
    lived = live(tmp_path, "--set", f"budgets.start_s={limit}")
    assert lived.result["failure"] == "timeout"
    assert folders(lived.pid) == []


def test_an_agent_whose_channel_is_broken(tmp_path: Path) -> None:
    (tmp_path / "mute.py").write_text(MUTE)
    run = start(tmp_path, "--agent", "mute:Mute+none")
    assert "no channel" in (lived := end(run, tmp_path)).stdout + lived.stderr
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


@pytest.mark.parametrize(
    "module", ["typer", "structlog", "pydantic", "rich.console", "docker.errors", "sclate.config"]
)
def test_an_interrupt_while_the_command_line_is_still_being_imported(module: str, tmp_path: Path) -> None:
    """It takes most of a second; an interrupt that comes in it is one like any other."""
    run = subprocess.Popen(
        [*ARGV, "run", "--help"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
        env=environment({"PYTHONPROFILEIMPORTTIME": "1"}),
    )
    assert run.stderr is not None
    while run.stderr.readline().split()[-1] != module:  # a line for each that is done
        assert run.poll() is None
    run.send_signal(signal.SIGINT)
    _, said = run.communicate(timeout=60)
    assert "Traceback" not in said
    assert (run.returncode, said.splitlines()[-1]) == (130, "interrupted")
