"""Protects: what can be wrong around the real Claude Code ends in one clear message and in a failure that is
not the agent's. The program is the installed one wherever it gets as far as running."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from sclate.sandbox.build import cache_dir, ensure_harness
from sclate_adapters.agent import HARNESS_DIR, AgentContext
from sclate_adapters.effects import SessionPlan
from sclate_adapters.errors import FailureClass, PrerequisiteError
from sclate_adapters.records import Delivery, DeliveryKind, LifeKey
from sclate_adapters.signals import Consumed, Failed, Idle, Signal, TurnFinished
from sclate_agents.harness.claude_code.adapter import VERSION, ClaudeCodeAgent
from sclate_agents.memory.native import NativeMemory

from ..cli.kit import sclate
from .test_claude_code_lives import DAY_S, ROOT, Lived

pytestmark = pytest.mark.timeout(120)

PREREQUISITE = 3
NOWHERE = "http://127.0.0.1:9"
TWO_DAYS: dict[str, Any] = {
    "sessions": [{"id": "a", "at_s": 0}, {"id": "b", "at_s": DAY_S}],
    "turns": [{"key": "a/1", "text": "HI"}, {"key": "b/1", "text": "DAY TWO"}],
}


def call(tmp_path: Path, *args: str, **env: str) -> subprocess.CompletedProcess[str]:
    """`sclate run` with a cache of its own, in which no harness is installed yet."""
    (tmp_path / "plan.json").write_text(json.dumps({"start": "2031-03-03T09:00:00+00:00", **TWO_DAYS}))
    cache = tmp_path / "cache"
    cache.mkdir()
    (cache / "runtime").symlink_to(cache_dir() / "runtime")
    argv = ["run", "--benchmark", "tests.agents.days:Days", "--data", str(tmp_path), "--model", "scripted"]
    argv += ["--agent", "claude-code+native", "--out", str(tmp_path / "out"), *args]
    return sclate(*argv, cwd=tmp_path, env={"PYTHONPATH": str(ROOT), "SCLATE_CACHE": str(cache), **env})


def refused(tmp_path: Path, done: subprocess.CompletedProcess[str], *words: str) -> None:
    """One message with each word and a fix; nothing is left, neither a run nor half a harness."""
    assert done.returncode == PREREQUISITE, done.stdout + done.stderr
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n  fix: ") == 1
    assert "Traceback" not in done.stderr
    for word in words:
        assert word in done.stderr, done.stderr
    assert not (tmp_path / "out").exists()
    assert not list((tmp_path / "cache").glob("harness/*"))
    assert not list((tmp_path / "cache").glob("build-*"))


# --- the program ----------------------------------------------------------------------------------------


def test_a_binary_that_is_not_there(tmp_path: Path) -> None:
    done = call(tmp_path, "--set", "agent.options.binary=/nowhere/claude")
    refused(tmp_path, done, "/nowhere/claude is no program", "agent.options.binary")
    assert done.stdout == ""


@pytest.mark.docker
@pytest.mark.parametrize("program", ["/bin/true", "/bin/false"])
def test_a_program_that_is_another(program: str, tmp_path: Path) -> None:
    done = call(tmp_path, "--set", f"agent.options.binary={program}")
    refused(tmp_path, done, "this program is not Claude Code", program.rpartition("/")[2])


@pytest.mark.docker
def test_without_npm(tmp_path: Path) -> None:
    refused(tmp_path, call(tmp_path, PATH="/nowhere"), VERSION, "npm is not on PATH", "apt-get install npm")


@pytest.mark.docker
def test_without_a_connection(tmp_path: Path) -> None:
    done = call(tmp_path, npm_config_registry=NOWHERE, npm_config_cache=str(tmp_path / "npm"))
    refused(tmp_path, done, VERSION, "ECONNREFUSED", "npm pack")


@pytest.mark.docker
def test_an_untested_version_is_said_once_and_a_start_that_fails_is_not_the_agents_failure(
    tmp_path: Path,
) -> None:
    """A stand-in for a later version that refuses our way to call it."""
    program = tmp_path / "claude"
    program.write_text(
        '#!/bin/sh\n[ "$1" = --version ] && echo "9.8.7 (Claude Code)" && exit 0\n'
        'echo "cannot be used with root/sudo privileges" >&2\nexit 1\n'
    )
    program.chmod(0o755)
    done = call(tmp_path, "--set", f"agent.options.binary={program}")
    assert done.returncode == 1
    said = "Claude Code 9.8.7 is untested"
    assert done.stderr.count(said) == 1
    assert VERSION in done.stderr
    log = [json.loads(line) for line in (tmp_path / "out" / "run.log").read_text().splitlines()]
    assert [entry["level"] for entry in log if said in entry["event"]] == ["warning"]
    result = json.loads((tmp_path / "out" / "result.json").read_text())
    (life,) = result["lives"]
    assert life["failure"] == "substrate"
    assert "harness exited with 1\ncannot be used with root/sudo privileges" in life["failure_message"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"version": "latest"}, ["'latest'", "exact"]),
        ({"version": "../../x"}, ["'../../x'"]),
        ({"version": 2}, ["agent.options.version is 2", "text"]),
        ({"binary": True}, ["agent.options.binary is True"]),
        ({"settings": ""}, ["agent.options.settings is ''"]),
    ],
)
def test_options_that_it_does_not_take(options: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(PrerequisiteError) as error:
        ClaudeCodeAgent(options)
    for word in words:
        assert word in str(error.value)


# --- a settings file of the user's ----------------------------------------------------------------------


def with_settings(tmp_path: Path, content: bytes) -> ClaudeCodeAgent:
    (tmp_path / "mine.json").write_bytes(content)
    return ClaudeCodeAgent({"settings": str(tmp_path / "mine.json")})


@pytest.mark.parametrize(
    ("content", "word"),
    [
        (b"", "Expecting value"),
        (b"[]", "not a JSON object"),
        (b"\xff\xfe", "cannot be used"),
        (b'{"env": null}', "env is not an object"),
        (b'{"permissions": []}', "permissions is not an object"),
        (b'{"autoMemoryEnabled": false}', "claude-code+MEMORY"),
        (b'{"cleanupPeriodDays": 7}', "transcripts"),
        (b'{"model": "opus"}', "--model"),
        (b'{"fallbackModel": "opus"}', "--model"),
        (b'{"apiKeyHelper": "cat key"}', "the gateway holds the key"),
        (b'{"sandbox": {"enabled": true}}', "the sandbox is ours"),
        (b'{"permissions": {"defaultMode": "plan"}}', "permissions.defaultMode"),
        (b'{"permissions": {"disableBypassPermissionsMode": "disable"}}', "nobody is there"),
        (b'{"permissions": {"ask": ["Bash"]}}', "permissions.ask"),
    ],
)
def test_settings_that_contradict_the_run(content: bytes, word: str, tmp_path: Path) -> None:
    with pytest.raises(PrerequisiteError) as error:
        with_settings(tmp_path, content)
    assert word in str(error.value)
    assert error.value.fix.startswith(f"edit {tmp_path}/mine.json")


@pytest.mark.parametrize(
    "name",
    [
        *("ANTHROPIC_BASE_URL", "CLAUDE_CONFIG_DIR", "CLAUDE_CODE_DISABLE_AUTO_MEMORY", "API_TIMEOUT_MS"),
        *("BASH_MAX_TIMEOUT_MS", "TZ", "HOME", "PATH", "LD_PRELOAD", "FAKETIME_SHARED", "https_proxy"),
    ],
)
def test_settings_that_set_variables_of_the_run(name: str, tmp_path: Path) -> None:
    with pytest.raises(PrerequisiteError, match=f"sets {name} in env"):
        with_settings(tmp_path, json.dumps({"env": {name: "x", "MINE": "y"}}).encode())


def test_settings_that_contradict_nothing_are_taken_as_they_are(tmp_path: Path) -> None:
    mine = {
        "env": {"MINE": "1", "BASH_MAX_OUTPUT_LENGTH": "9000", "MAX_THINKING_TOKENS": "0"},
        "permissions": {"deny": ["WebFetch"], "allow": ["Bash"]},
        "disableAllHooks": True,
        "outputStyle": "Explanatory",
    }
    agent = with_settings(tmp_path, json.dumps(mine).encode())
    files = agent.provision(context()).files
    assert json.loads(files["/home/agent/.claude/settings.json"]) == mine


def test_settings_on_the_command_line(tmp_path: Path) -> None:
    (tmp_path / "mine.json").write_text('{"model": "opus"}')
    done = call(tmp_path, "--set", f"agent.options.settings={tmp_path}/mine.json")
    refused(tmp_path, done, "mine.json sets model", "remove model")


# --- the real program alone, as the adapter launches it -------------------------------------------------


def context(home: Path = Path("/home/agent")) -> AgentContext:
    return AgentContext(
        life=LifeKey(scenario="x", arm="claude-code+native"),
        session=SessionPlan(id="s1", start_ns=1_900_000_000_000_000_000),
        memory=NativeMemory(),
        model="m-1",
        base_url=f"{NOWHERE}/agent",
        home=str(home),
        workdir=str(home if home.is_dir() else "/work"),
    )


def launched(home: Path, without: Iterable[str] = (), **env: str) -> tuple[int, list[Signal], str]:
    """Exit code, signals and standard error of one message to the program on this machine, then the end of
    its input."""
    agent, ctx = ClaudeCodeAgent(), context(home)
    folder = ensure_harness(agent, lambda _: None)
    provision, launch, channel = agent.provision(ctx), agent.launch(ctx), agent.channel(ctx)
    for path, data in provision.files.items():
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).write_bytes(data)
    message = channel.encode(Delivery(id="d1", kind=DeliveryKind.TURN, session="s1", text="HI"))
    done = subprocess.run(
        [arg.replace(HARNESS_DIR, str(folder)) for arg in launch.argv],
        input=message,
        capture_output=True,
        env={k: v for k, v in {**launch.env, **provision.env, **env}.items() if k not in without},
        cwd=launch.cwd,
        timeout=60,
    )
    lines = done.stdout.splitlines()
    return done.returncode, [s for x in lines for s in channel.decode("stdout", x)], done.stderr.decode()


def test_it_refuses_to_run_as_root_and_says_so(tmp_path: Path) -> None:
    """Why sandboxes run it as a user without rights; what it says is what a failed start shows."""
    assert os.getuid() == 0
    rc, signals, stderr = launched(tmp_path)
    assert (rc, signals) == (1, [])
    assert "cannot be used with root" in stderr


def test_asking_for_a_login_is_no_failure_of_the_agents(tmp_path: Path) -> None:
    _, signals, _ = launched(tmp_path, without=["ANTHROPIC_API_KEY"], IS_SANDBOX="1")
    (failed,) = [s for s in signals if isinstance(s, Failed)]
    assert failed.failure is FailureClass.SUBSTRATE
    assert "Please run /login" in failed.message
    assert Consumed(ids=("d1",)) in signals
    assert isinstance(signals[-2], TurnFinished)
    assert signals[-1] == Idle()


def test_its_own_retry_loop_is_short_and_ends_as_the_models_failure(tmp_path: Path) -> None:
    """The end of its input does not stop the loop; two tries on top of the gateway's do."""
    _, signals, _ = launched(tmp_path, IS_SANDBOX="1")
    (failed,) = [s for s in signals if isinstance(s, Failed)]
    assert failed.failure is FailureClass.MODEL
    assert "API Error" in failed.message


# --- a life of the real program -------------------------------------------------------------------------


@pytest.mark.docker
def test_an_endpoint_that_is_down_costs_the_turns_and_is_not_the_agents_failure(tmp_path: Path) -> None:
    profile = {"base_url": NOWHERE, "model": "m"}
    options = [
        "--set",
        "models.down.options.retry_attempts=3",
        "--set",
        "models.down.options.retry_base_s=0.1",
    ]
    for key, value in profile.items():
        options += ["--set", f'models.down.{key}="{value}"']
    life = Lived(tmp_path, TWO_DAYS, [], "--model", "down", *options)
    assert life.deliveries() == {"a/1": "delivered", "b/1": "delivered"}
    assert [t["failure"] for t in life.turns()] == ["model", "model"]
    assert all("Cannot connect" in t["failure_message"] for t in life.turns())
    calls = [(c["status"], c["retries"]) for c in life.calls()]
    assert calls == [(502, 2), (502, 2)], "the gateway tries again, the harness does not on top of it"


@pytest.mark.docker
def test_a_key_that_the_endpoint_refuses_is_not_the_agents_failure(tmp_path: Path) -> None:
    life = Lived(tmp_path, TWO_DAYS, [{"status": 401, "text": "no such key"}, {"text": "fine"}])
    refused, fine = life.turns()
    assert refused["failure"] == "model"
    assert "401" in refused["failure_message"]
    assert (fine["text"], fine["failure"]) == ("fine", None)


@pytest.mark.docker
def test_a_session_ends_in_time_also_in_the_midst_of_a_retry_loop(tmp_path: Path) -> None:
    plan = {**TWO_DAYS, "sessions": [{"id": "a", "at_s": 0, "stop_after_s": 2.5}, TWO_DAYS["sessions"][1]]}
    breaks_off = {"when": "HI", "delay_s": 1.0, "text": "x", "status": 0, "after_parts": 0}
    life = Lived(tmp_path, plan, [breaks_off, {"text": "fine"}], "--set", "budgets.stop_s=1")
    cut, after = life.turns()
    assert (cut["key"], cut["failure"]) == ("a/1", "model")
    assert (after["text"], after["failure"]) == ("fine", None)
    assert life.deliveries() == {"a/1": "delivered", "b/1": "delivered"}


@pytest.mark.docker
def test_a_transcript_over_100_mb_is_kept_and_one_that_fills_the_home_ends_the_life(tmp_path: Path) -> None:
    grow = "head -c 105000000 /dev/zero >> ~/.claude/projects/*/*.jsonl"
    fill = "stat -c %s ~/.claude/projects/*/*.jsonl; cat /dev/zero > ~/junk"
    script: list[dict[str, Any]] = [
        {"tool": "Bash", "input": {"command": grow}},
        {"text": "grown"},
        {"tool": "Bash", "input": {"command": fill}},
        {"text": "full"},
    ]
    plan = {**TWO_DAYS, "sessions": [*TWO_DAYS["sessions"], {"id": "c", "at_s": 2 * DAY_S}]}
    life = Lived(tmp_path, plan, script)
    assert [t["text"] for t in life.turns()] == ["grown", "full"]
    assert all(t["failure"] is None for t in life.turns())
    assert re.search(r"105\d{6}", life.requests()[-1]), "the transcript was not there the next day"
    assert life.done.returncode == 1
    (fault,) = life.of("fault")
    assert fault["failure"] == "budget"
    assert "home is full" in fault["message"]
    assert "failed (budget): the agent's home is full" in life.done.stdout
    closed = [s["session"] for s in life.of("session") if s["change"] == "closed"]
    assert closed == ["a", "b"], "a full home is not lived on"
