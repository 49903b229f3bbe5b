"""Protects: what a user can get wrong gives one clear message, the documented exit code, and leaves nothing."""

from __future__ import annotations

import json
import os
import socket
import subprocess
from pathlib import Path

import pytest

from .kit import BROKEN, NO_DOCKER, sclate

USAGE, PREREQUISITE, BUG = 2, 3, 70


def complaint(done: subprocess.CompletedProcess[str], code: int, *words: str) -> None:
    """The exit code, each word, a fix, and neither a traceback nor anything on standard output."""
    assert done.returncode == code, done.stdout + done.stderr
    for word in words:
        assert word in done.stderr, done.stderr
    assert done.stderr.startswith("error: ")
    assert "fix: " in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize(
    ("flag", "value", "words"),
    [
        (
            "--benchmark",
            "prob",
            ["'prob'", "benchmarks", "did you mean 'probe'?", "known are: ", "workmonth"],
        ),
        ("--agent", "refrence+none", ["'refrence'", "agents", "did you mean 'reference'?"]),
        ("--agent", "reference+nativ", ["'nativ'", "memories", "did you mean 'native'?", "none"]),
        ("--model", "aprentice", ["'aprentice'", "models", "did you mean 'apprentice'?", "scripted"]),
        ("--model", "zzz", ["'zzz'", "sclate list models"]),
        ("--benchmark", "no.such:Thing", ["no.such:Thing", "No module named 'no'"]),
        ("--benchmark", "json:loads", ["json:loads", "is no BenchmarkAdapter"]),
    ],
)
def test_an_unknown_name(
    flag: str, value: str, words: list[str], tmp_path: Path, probes: dict[str, str]
) -> None:
    args = ["run", "--benchmark", "probe", "--out", "r", flag, value]
    complaint(sclate(*args, cwd=tmp_path, env=probes), PREREQUISITE, *words)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["future", "leaving", "nobenchmark", "half", "anonymous"])
def test_a_broken_benchmark_is_named(name: str, tmp_path: Path, probes: dict[str, str]) -> None:
    done = sclate("run", "--benchmark", name, cwd=tmp_path, env=probes)
    complaint(done, PREREQUISITE, repr(name), "broken", BROKEN[name])


@pytest.mark.parametrize(
    ("flag", "value", "name"),
    [
        ("--agent", "brokenagent+none", "brokenagent"),
        ("--agent", "reference+brokenmemory", "brokenmemory"),
        ("--model", "brokenmodel", "brokenmodel"),
    ],
)
def test_any_other_broken_plugin_is_named(
    flag: str, value: str, name: str, tmp_path: Path, probes: dict[str, str]
) -> None:
    done = sclate("run", "--benchmark", "probe", flag, value, cwd=tmp_path, env=probes)
    complaint(done, PREREQUISITE, repr(name), "ZeroDivisionError")


def test_broken_plugins_break_nothing_else(tmp_path: Path, probes: dict[str, str]) -> None:
    done = sclate("list", "benchmarks", cwd=tmp_path, env=probes)
    assert done.returncode == 0
    lines = {line.split()[0]: line for line in done.stdout.splitlines()}
    for name, reason in BROKEN.items():
        assert "BROKEN" in lines[name]
        assert reason in lines[name]
    assert "BROKEN" not in lines["probe"]
    assert "metaclaw" in lines
    assert sclate("run", "--benchmark", "probe", "--dry-run", cwd=tmp_path, env=probes).returncode == 0


def test_a_wrong_file(tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_text("seed = 1\nseed = = 2\n")
    complaint(sclate("run", "c.toml", cwd=tmp_path), USAGE, "c.toml is no valid TOML", "line 2")


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["--set", "clock.latency"], ["'clock.latency'", "a.b=value"]),
        (["--set", "clock.latncy=real"], ["'clock.latncy'", "--set", "did you mean 'latency'?"]),
        (["--limit", "0"], ["benchmark.limit", "flag", "greater than or equal to 1"]),
        (["--limit", "few"], ["--limit", "valid integer", "sclate run --help"]),
        (["--log-level", "loud"], ["--log-level", "debug", "sclate run --help"]),
    ],
)
def test_a_wrong_flag_or_override(args: list[str], words: list[str], tmp_path: Path) -> None:
    complaint(sclate("run", *args, cwd=tmp_path), USAGE, *words)


def test_a_wrong_variable(tmp_path: Path) -> None:
    done = sclate("run", cwd=tmp_path, env={"SCLATE_SAMPELS": "2"})
    complaint(done, USAGE, "'sampels'", "environment SCLATE_SAMPELS", "did you mean 'samples'?")


def test_budgets_that_do_not_nest(tmp_path: Path) -> None:
    done = sclate("run", "--set", "budgets.turn_s=8000", cwd=tmp_path)
    complaint(done, USAGE, "budgets must nest: turn_s must be smaller than session_s", "--set")


def test_a_glob_that_matches_nothing(tmp_path: Path, probes: dict[str, str]) -> None:
    args = ["run", "--benchmark", "probe", "--scenarios", "third*", "--out", "r"]
    complaint(sclate(*args, cwd=tmp_path, env=probes), PREREQUISITE, "'third*'", "--dry-run")
    assert not (tmp_path / "r").exists()


def test_a_model_without_its_key(tmp_path: Path, probes: dict[str, str]) -> None:
    (tmp_path / "c.toml").write_text(
        "model = 'm'\n[models.m]\nbase_url = 'http://h'\nkey_env = 'PROBE_KEY'\n"
    )
    done = sclate("run", "c.toml", "--benchmark", "probe", "--out", "r", cwd=tmp_path, env=probes)
    complaint(done, PREREQUISITE, "'m'", "PROBE_KEY", "export PROBE_KEY=")
    assert not (tmp_path / "r").exists()


def test_options_that_a_model_does_not_take(tmp_path: Path, probes: dict[str, str]) -> None:
    (tmp_path / "c.toml").write_text(
        "model = 'm'\n[models.m]\nbackend = 'scripted'\noptions = {scrpt = 'x'}\n"
    )
    done = sclate("run", "c.toml", "--benchmark", "probe", cwd=tmp_path, env=probes)
    complaint(done, PREREQUISITE, "'scripted'", "scrpt", "script")


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["--set", "agent.options.foo=3"], ["agent 'reference' has no option 'foo'", "it has none"]),
        (
            ["--agent", "reference+none", "--set", "memory.options.foo=3"],
            ["memory 'none' has no option 'foo'"],
        ),
        (["--set", "memory.options.foo=3"], ["memory 'native' has no option 'foo'"]),
        (["--set", "benchmark.options.foo=3"], ["benchmark 'probe' has no option 'foo'"]),
        (
            ["--benchmark", "workmonth", "--set", "benchmark.options.grader='visible'"],
            ["has no option 'grader'", "it has workspace, graders", "did you mean 'graders'?"],
        ),
        (["--agent", "claude-code+none", "--set", "agent.options.verson='1'"], ["did you mean 'version'?"]),
    ],
)
def test_options_that_an_adapter_does_not_have(
    args: list[str], words: list[str], tmp_path: Path, probes: dict[str, str]
) -> None:
    """Else a misspelt one changes nothing and goes unnoticed."""
    done = sclate("run", "--benchmark", "probe", "--out", "r", *args, cwd=tmp_path, env=probes | NO_DOCKER)
    complaint(done, PREREQUISITE, *words)
    assert not (tmp_path / "r").exists()


@pytest.mark.parametrize(
    "url",
    ["ftp://zz", "http://", "127.0.0.1:9", "http://:80", "http://h:99999", "https://h/?a=1", "http://u:p@h"],
)
def test_an_endpoint_that_cannot_be_called(url: str, tmp_path: Path, probes: dict[str, str]) -> None:
    profile = f"models.m={{base_url='{url}', model='m'}}"
    done = sclate("run", "--model", "m", "--set", profile, "--dry-run", cwd=tmp_path, env=probes)
    complaint(done, USAGE, "'m'", url, "[models.m]", 'base_url = "https://')


@pytest.mark.parametrize("url", ["http://127.0.0.1:9", "https://h.example/v1/", "http://[::1]:8080"])
def test_an_endpoint_that_can_be_called(url: str, tmp_path: Path, probes: dict[str, str]) -> None:
    profile = f"models.m={{base_url='{url}', model='m'}}"
    done = sclate(
        "run", "--benchmark", "probe", "--model", "m", "--set", profile, "--dry-run", cwd=tmp_path, env=probes
    )
    assert done.returncode == 0, done.stderr


def test_a_run_folder_that_exists(tmp_path: Path, probes: dict[str, str]) -> None:
    (tmp_path / "r").mkdir()
    (tmp_path / "r" / "mine").write_text("keep")
    done = sclate("run", "--benchmark", "probe", "--out", "r", cwd=tmp_path, env=probes | NO_DOCKER)
    complaint(done, PREREQUISITE, "r exists", "never written over", "--out")
    assert [p.name for p in (tmp_path / "r").iterdir()] == ["mine"]


def test_a_run_folder_that_cannot_be_written(tmp_path: Path, probes: dict[str, str]) -> None:
    (tmp_path / "file").write_text("")
    for out in ("file/r", "/proc/r"):  # /proc: also for root
        done = sclate("run", "--benchmark", "probe", "--out", out, cwd=tmp_path, env=probes | NO_DOCKER)
        complaint(done, PREREQUISITE, f"{out} cannot be written", "--out")


@pytest.mark.parametrize(
    "args",
    [
        ["run", "--benchmark", "probe", "--out", "r"],
        ["clean"],
        ["sandbox", "exec", "--at", "2031-02-28T09:00Z", "date"],
    ],
)
def test_no_docker_engine(args: list[str], tmp_path: Path, probes: dict[str, str]) -> None:
    done = sclate(*args, cwd=tmp_path, env=probes | NO_DOCKER)
    complaint(done, PREREQUISITE, "no Docker engine answers at unix:///nowhere/docker.sock", "DOCKER_HOST")
    assert not (tmp_path / "r").exists(), "a run that cannot start leaves no folder"


@pytest.mark.parametrize("at", ["2031-02-28T09:00", "tomorrow"])
def test_an_instant_without_an_offset(at: str, tmp_path: Path) -> None:
    done = sclate("sandbox", "exec", "--at", at, "--", "date", cwd=tmp_path, env=NO_DOCKER)
    complaint(done, USAGE, repr(at), "offset", "--at 2031-02-28T09:00+08:00")


@pytest.mark.parametrize(
    ("args", "code", "words"),
    [
        (["model", "serve", "scriptd"], PREREQUISITE, ["'scriptd'", "did you mean 'scripted'?"]),
        (["model", "serve", "scripted", "--option", "script"], USAGE, ["name=value"]),
        (["model", "serve", "scripted", "--option", "foo=1"], PREREQUISITE, ["'scripted'", "foo"]),
        (["model", "serve", "scripted", "--option", "script=none.json"], PREREQUISITE, ["none.json"]),
        (["report", "."], PREREQUISITE, ["no finished run", "result.json"]),
        (["report", "/dev/null"], PREREQUISITE, ["/dev/null", "Not a directory"]),
        (["list", "harnesses"], USAGE, ["'harnesses'", "agents", "sclate list --help"]),
        (["fly"], USAGE, ["'fly'", "sclate --help"]),
    ],
)
def test_other_commands(args: list[str], code: int, words: list[str], tmp_path: Path) -> None:
    complaint(sclate(*args, cwd=tmp_path), code, *words)


def test_a_port_that_is_taken(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = sclate("model", "serve", "scripted", "--port", str(port), cwd=tmp_path)
    complaint(done, PREREQUISITE, f"port {port}", "--port 0")


def test_a_run_that_ended_before_a_life_began(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text("seed = 1\n")
    done = sclate("report", tmp_path, cwd=tmp_path)
    complaint(done, PREREQUISITE, "ended before a life began", f"sclate run {tmp_path}/config.toml")


def test_a_damaged_result(tmp_path: Path) -> None:
    (tmp_path / "result.json").write_text("{")
    complaint(sclate("report", tmp_path, cwd=tmp_path), PREREQUISITE, "result.json is damaged")


def test_a_full_disk_is_no_bug(tmp_path: Path, probes: dict[str, str]) -> None:
    done = sclate("run", "--benchmark", "full", cwd=tmp_path, env=probes)
    complaint(done, PREREQUISITE, "the disk is full")


def test_a_bug_is_one_line_and_its_traceback_a_file_without_secrets(
    tmp_path: Path, probes: dict[str, str]
) -> None:
    env = probes | {"TMPDIR": str(tmp_path), "PROBE_API_KEY": "hunter2hunter2"}
    done = sclate("run", "--benchmark", "exploding", cwd=tmp_path, env=env)
    assert done.returncode == BUG
    assert "RuntimeError: the probe explodes" in done.stderr
    assert "Traceback" not in done.stderr
    (log,) = tmp_path.glob("sclate-*.log")
    assert str(log) in done.stderr
    text = log.read_text()
    assert "Traceback" in text
    assert "sclate_probe.py" in text
    for secret in ("sk-abcdefghijklmnop1234", "hunter2hunter2"):
        assert secret not in text
        assert secret not in done.stderr


def test_messages_obey_no_control_byte(tmp_path: Path) -> None:
    done = sclate("run", "--benchmark", "\x1b[31mred", cwd=tmp_path)
    assert "\x1b" not in done.stderr
    assert "\\x1b[31mred" in done.stderr


def test_exit_codes_are_documented() -> None:
    from sclate.errors import ExitCode

    page = (Path(__file__).parents[2] / "docs/cli.md").read_text()
    for code in ExitCode:
        assert f"| {int(code)} |" in page, code


def test_every_variable_of_ours_is_reserved(tmp_path: Path, probes: dict[str, str]) -> None:
    """Else a variable that only the build or the tests read would stop every run as a misspelt setting."""
    from sclate.config import RESERVED_ENV

    env = probes | dict.fromkeys(RESERVED_ENV, "x")
    done = sclate("run", "--benchmark", "probe", "--print-config", cwd=tmp_path, env=env)
    assert done.returncode == 0, done.stderr
    assert json.dumps("x") not in done.stdout
    assert os.linesep in done.stdout
