"""Protects the commands that make containers: exit codes, interruption, clean-up, what a terminal shows."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import docker
import pytest

from sclate.run import owner_labels

from .kit import ARGV, environment, sclate

pytestmark = [pytest.mark.docker, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def small(metaclaw_data: Path) -> Path:
    return metaclaw_data.with_name("metaclaw-bench-small")


@pytest.fixture
def engine() -> Iterator[docker.DockerClient]:
    client = docker.from_env()
    yield client
    client.close()


def owned_by(client: docker.DockerClient, pid: int) -> list[str]:
    found = client.containers.list(all=True, filters={"label": f"sclate.owner.pid={pid}"})
    return [str(container.name) for container in found]


def test_exec_runs_at_the_simulated_instant(tmp_path: Path) -> None:
    script = "date +%FT%H:%M%z; cat; echo oops >&2; exit 7"
    done = sclate("sandbox", "exec", "--at", "2031-02-28T09:00+08:00", "--", "sh", "-c", script, cwd=tmp_path)
    assert done.stdout == "2031-02-28T01:00+0000\n"
    assert done.stderr.endswith("oops\n")
    assert done.returncode == 7


def test_exec_kills_what_takes_too_long(tmp_path: Path) -> None:
    args = ["--at", "2031-02-28T09:00Z", "--timeout-s", "2", "--", "sleep", "600"]
    done = sclate("sandbox", "exec", *args, cwd=tmp_path)
    assert done.returncode == 1
    assert done.stderr.endswith("killed after 2 s\n")


def test_clean_removes_what_dead_owners_left_and_nothing_else(
    tmp_path: Path, engine: docker.DockerClient
) -> None:
    dead = subprocess.Popen([sys.executable, "-c", "pass"])
    dead.wait()
    ours = owner_labels()
    owners = {"dead": ours | {"sclate.owner.pid": str(dead.pid)}, "alive": ours, "foreign": {}}
    reused = ours | {"sclate.owner.start": "1"}  # our pid, of another process before us
    name = uuid.uuid4().hex[:8]
    made = {
        who: engine.containers.create("debian:bookworm-slim", "true", name=f"cli-{name}-{who}", labels=labels)
        for who, labels in (owners | {"reused": reused}).items()
    }

    def there() -> set[str]:
        names = {c.name for c in engine.containers.list(all=True, filters={"name": f"cli-{name}"})}
        return {str(n).rpartition("-")[2] for n in names}

    try:
        dry = sclate("clean", "--dry-run", cwd=tmp_path)
        assert f"would remove cli-{name}-dead\n" in dry.stdout
        assert there() == set(made)
        done = sclate("clean", cwd=tmp_path)
        assert done.returncode == 0
        assert f"removed cli-{name}-dead\n" in done.stdout
        assert f"removed cli-{name}-reused\n" in done.stdout
        assert there() == {"alive", "foreign"}
    finally:
        for who in there():
            made[who].remove(force=True)


def test_a_run_is_shown_kept_reported_and_repeated(small: Path, tmp_path: Path) -> None:
    args = ["--benchmark", "metaclaw", "--limit", "1", "--out", "r", "--set", "clock.latency=fixed=1"]
    done = sclate("run", *args, "--data", small, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    (line,) = re.findall(r"^  Mon 2026-03-16 \d\d:\d\d:\d\d  day01  (passed \d+/\d+)", done.stdout, re.M)
    assert line != "passed 0/0", "the line of a session says what it came to"
    assert "model apprentice (no model: not a benchmark result)" in done.stdout
    reported = sclate("report", "r", cwd=tmp_path)
    assert reported.returncode == 0
    assert reported.stdout
    assert done.stdout.endswith(reported.stdout)
    for line in (tmp_path / "r" / "run.log").read_text().splitlines():
        json.loads(line)
    again = sclate("run", "r/config.toml", "--out", "r2", "--quiet", cwd=tmp_path)
    assert (again.returncode, again.stdout) == (0, "")
    figures = [json.loads((tmp_path / r / "result.json").read_text())["lives"][0] for r in ("r", "r2")]
    assert figures[0]["figures"] == figures[1]["figures"]
    assert figures[0]["passed"] == figures[1]["passed"]


def test_one_interrupt_ends_at_a_session_boundary_with_a_result(
    small: Path, tmp_path: Path, engine: docker.DockerClient
) -> None:
    run = started(small, tmp_path)
    run.send_signal(signal.SIGINT)
    out, _ = run.communicate(timeout=120)
    assert run.returncode == 130
    assert "stopping at the next session boundary" in out
    assert "interrupted at a session boundary" in out
    (life,) = json.loads((tmp_path / "r" / "result.json").read_text())["lives"]
    assert life["interrupted"]
    assert 1 <= life["sessions"] < 12
    assert owned_by(engine, run.pid) == []


def test_two_interrupts_end_at_once_and_leave_no_container(
    small: Path, tmp_path: Path, engine: docker.DockerClient
) -> None:
    run = started(small, tmp_path)
    run.send_signal(signal.SIGINT)
    assert run.stdout is not None
    while "once more" not in run.stdout.readline():
        assert run.poll() is None
    run.send_signal(signal.SIGINT)
    _, said = run.communicate(timeout=60)
    assert run.returncode == 130
    assert said == "interrupted: r has what was lived by then; sclate report r shows it\n"
    assert owned_by(engine, run.pid) == []
    (life,) = (tmp_path / "r" / "lives").iterdir()
    last = json.loads((life / "trace.jsonl").read_bytes().splitlines()[-1])
    assert last["type"] != "end"
    reported = sclate("report", "r", cwd=tmp_path)
    assert (reported.returncode, reported.stderr) == (0, "")
    assert "this run broke off" in reported.stdout
    judged = re.search(r"judged (\d+), passed (\d+), missing 0 by then", reported.stdout)
    assert judged is not None
    assert int(judged[1]) >= 5, "the first day is over"
    assert re.search(r"1 of 2 begun sessions ended", reported.stdout)
    assert (tmp_path / "r" / "report.html").is_file()


def started(small: Path, cwd: Path) -> subprocess.Popen[str]:
    """A run of all days whose first session is open."""
    args = ["run", "--benchmark", "metaclaw", "--data", str(small), "--out", "r"]
    run = subprocess.Popen(
        [*ARGV, *args],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=cwd,
        env=environment({"PYTHONUNBUFFERED": "1"}),
    )
    assert run.stdout is not None
    while "day01" not in run.stdout.readline():
        assert run.poll() is None, run.communicate()
    return run


def test_a_terminal_gets_a_live_line(small: Path, tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    args = ["run", "--benchmark", "metaclaw", "--data", str(small), "--out", "r", "--limit", "1"]
    run = subprocess.Popen(
        [*ARGV, *args],
        stdout=theirs,
        stderr=theirs,
        stdin=theirs,
        cwd=tmp_path,
        env=environment({"TERM": "xterm"}),
    )
    os.close(theirs)
    shown = b""
    while True:
        try:
            shown += os.read(ours, 65536)
        except OSError:  # EIO: the last writer is gone
            break
    os.close(ours)
    assert run.wait(timeout=60) == 0
    text = shown.decode()
    assert "time held by: " in text
    assert "\x1b[?25h" in text.rpartition("time held by: ")[2], "the cursor stays hidden"
