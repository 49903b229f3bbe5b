"""Protects the commands that need no sandbox: what they show, and that they start and leave nothing."""

from __future__ import annotations

import re
import signal
import subprocess
from pathlib import Path

from .kit import ARGV, NO_DOCKER, environment, sclate


def test_version(tmp_path: Path) -> None:
    done = sclate("--version", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert re.fullmatch(r"sclate \d+\.\d+\.\d+\S*\n", done.stdout)


def test_without_a_command_help_is_shown(tmp_path: Path) -> None:
    done = sclate(cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("Usage: sclate ")
    for command in ("run", "list", "report", "clean", "sandbox", "model"):
        assert re.search(rf"^  {command}\b", done.stderr, re.MULTILINE)


def test_every_command_is_in_the_manual(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs/cli.md").read_text()
    for command in (["run"], ["list"], ["report"], ["clean"], ["sandbox", "exec"], ["model", "serve"]):
        done = sclate(*command, "--help", cwd=tmp_path)
        assert done.returncode == 0
        assert f"sclate {' '.join(command)}" in page
        for flag in re.findall(r"^  (--[a-z-]+)", done.stdout, re.MULTILINE):
            assert flag == "--help" or f"`{flag}" in page, f"{command} {flag}"


def test_dry_run_prints_the_timeline_in_the_scenarios_zone(tmp_path: Path, probes: dict[str, str]) -> None:
    done = sclate("run", "--benchmark", "probe", "--dry-run", cwd=tmp_path, env=probes | NO_DOCKER)
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[0].startswith("scenario first: ")
    assert lines[1].split() == (
        ["Fri", "2031-02-28", "09:00:00", "session", "session.start", "session_start", "morning", "0"]
    )
    assert lines[2].startswith("  Sat 2031-03-01 09:00:00")
    assert lines[3].startswith("scenario second: ")
    assert len(lines) == 6
    assert not list(tmp_path.iterdir()), "a dry run makes nothing"


def test_limit_and_glob_select(tmp_path: Path, probes: dict[str, str]) -> None:
    def heads(*args: str) -> list[str]:
        done = sclate("run", "--benchmark", "probe", "--dry-run", *args, cwd=tmp_path, env=probes)
        return [line.split()[1].rstrip(":") for line in done.stdout.splitlines() if line[0] == "s"]

    assert heads("--limit", "1") == ["first"]
    assert heads("--scenarios", "s*") == ["second"]


def test_text_of_plugins_is_shown_not_obeyed(tmp_path: Path, probes: dict[str, str]) -> None:
    for args in (["list", "benchmarks"], ["run", "--benchmark", "probe", "--dry-run"]):
        done = sclate(*args, cwd=tmp_path, env=probes | {"FORCE_COLOR": "1"})
        assert "\x1b" not in done.stdout
        assert "\\x1b[" in done.stdout
        assert "[red]" in done.stdout or "[bold]" in done.stdout, "markup was eaten"


def test_a_name_may_be_an_import_path(tmp_path: Path, probes: dict[str, str]) -> None:
    done = sclate("run", "--benchmark", "sclate_probe:Probe", "--dry-run", cwd=tmp_path, env=probes)
    assert done.returncode == 0
    assert "morning 1" in done.stdout


def test_print_config_says_where_each_value_came_from(tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_text(
        "seed = 1\nsamples = 2\n\n[benchmark]\nname = 'metaclaw'\nlimit = 3\nsplit = 'a'\n"
    )
    env = {"SCLATE_BENCHMARK__LIMIT": "4", "SCLATE_BENCHMARK__SPLIT": "b", "SCLATE_SAMPLES": "5"}
    args = ["--agent", "reference+none", "--split", "c", "--samples", "6", "--set", "samples=7"]
    done = sclate("run", "c.toml", *args, "--print-config", cwd=tmp_path, env=env | NO_DOCKER)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    for line in (
        "seed = 1  # file c.toml, line 1",
        "benchmark.name = 'metaclaw'  # file c.toml, line 5",
        "benchmark.limit = 4  # environment SCLATE_BENCHMARK__LIMIT",
        "benchmark.split = 'c'  # flag",
        "samples = 7  # --set",
        "agent.name = 'reference'  # flag",
        "memory.name = 'none'  # flag",
        "budgets.turn_s = 300.0  # default",
    ):
        assert line in lines, line
    assert not list(tmp_path.glob("runs*"))


def test_print_config_shows_no_secret(tmp_path: Path) -> None:
    done = sclate(
        "run",
        "--set",
        "agent.options.key=hunter2hunter2",
        "--print-config",
        cwd=tmp_path,
        env={"A_TOKEN": "hunter2hunter2"},
    )
    assert "hunter2" not in done.stdout
    assert "agent.options.key = '(redacted)'" in done.stdout


def test_an_interrupt_ends_a_server_with_130(tmp_path: Path) -> None:
    server = subprocess.Popen(
        [*ARGV, "model", "serve", "scripted"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
        env=environment({"PYTHONUNBUFFERED": "1"}),
    )
    assert server.stdout is not None
    assert "http://127.0.0.1:" in server.stdout.readline()
    server.send_signal(signal.SIGINT)
    _, said = server.communicate(timeout=30)
    assert server.returncode == 130
    assert "Traceback" not in said
