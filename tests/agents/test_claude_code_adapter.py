"""Protects what the adapter of Claude Code puts in place, how it launches it, what it keeps, and how it tells
the harness's calls apart."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from sclate_adapters.agent import HARNESS_DIR, AgentContext
from sclate_adapters.effects import SessionPlan
from sclate_adapters.memory import MemorySystem
from sclate_adapters.records import CallClass, CallRecord, LifeKey
from sclate_agents.harness.claude_code.adapter import INTEGRITY, VERSION, ClaudeCodeAgent
from sclate_agents.harness.claude_code.alarms import ClaudeCodeAlarms
from sclate_agents.memory.native import NativeMemory
from sclate_agents.memory.none import NoMemory

AGENT = ClaudeCodeAgent()
MINUTE_NS = 60_000_000_000


def context(session: str = "s1", memory: MemorySystem | None = None, **fields: Any) -> AgentContext:
    return AgentContext(
        life=LifeKey(scenario="x", arm="claude-code+native"),
        session=SessionPlan(id=session, start_ns=1_900_000_000_000_000_000),
        memory=memory or NativeMemory(),
        model="m-1",
        base_url="http://127.0.0.1:8080/agent",
        **fields,
    )


def test_memory_is_where_the_arm_says() -> None:
    none, native = context(memory=NoMemory()), context()
    assert AGENT.provision(none).env["CLAUDE_CODE_DISABLE_AUTO_MEMORY"] == "1"
    assert "CLAUDE_CODE_DISABLE_AUTO_MEMORY" not in AGENT.provision(native).env


def test_memory_lies_below_what_the_harness_keeps_and_belongs_to_it_alone() -> None:
    state = AGENT.durable_state(context(workdir="/srv/some/place"))
    assert state.harness == ("/home/agent/.claude",)
    assert state.memory == ("/home/agent/.claude/projects/-srv-some-place/memory",)


@pytest.mark.parametrize("memory", [NoMemory(), NativeMemory()])
def test_nothing_in_the_sandbox_names_the_benchmark_or_holds_a_key(memory: MemorySystem) -> None:
    ctx = context(memory=memory)
    provision, launch = AGENT.provision(ctx), AGENT.launch(ctx)
    told = " ".join([*launch.argv, *launch.env.values(), *provision.env.values(), *provision.files])
    assert "+native" not in told
    assert ctx.life.slug() not in told
    assert provision.env["ANTHROPIC_API_KEY"] == "none"
    assert provision.env["ANTHROPIC_BASE_URL"] == ctx.base_url
    assert all(path.startswith(f"{ctx.home}/") for path in provision.files)


def test_every_call_goes_to_the_one_model() -> None:
    ctx = context()
    launch, env = AGENT.launch(ctx), AGENT.provision(ctx).env
    assert launch.argv[launch.argv.index("--model") + 1] == "m-1"
    assert {k: v for k, v in env.items() if k.endswith("_MODEL")} == {
        "ANTHROPIC_DEFAULT_OPUS_MODEL": "m-1",
        "ANTHROPIC_DEFAULT_SONNET_MODEL": "m-1",
        "ANTHROPIC_DEFAULT_HAIKU_MODEL": "m-1",
        "CLAUDE_CODE_SUBAGENT_MODEL": "m-1",
    }


def test_its_own_time_limits_outlast_a_freeze() -> None:
    """Its monotonic clock runs on while it is frozen; the engine's freezes end at 9/10 of what is declared."""
    env = AGENT.provision(context()).env
    limits = [
        env[k]
        for k in ("API_TIMEOUT_MS", "CLAUDE_STREAM_IDLE_TIMEOUT_MS", "CLAUDE_BYTE_STREAM_IDLE_TIMEOUT_MS")
    ]
    assert min(map(int, limits)) * 1_000_000 >= AGENT.capabilities.request_timeout_ns
    assert min(int(env[k]) for k in ("BASH_DEFAULT_TIMEOUT_MS", "BASH_MAX_TIMEOUT_MS")) >= 15 * 60_000


def test_transcripts_outlast_simulated_decades() -> None:
    ctx = context()
    launch = AGENT.launch(ctx)
    flags = launch.argv[launch.argv.index("--settings") + 1]
    assert json.loads(AGENT.provision(ctx).files[flags])["cleanupPeriodDays"] >= 20 * 365
    state = AGENT.durable_state(ctx)
    assert not any(flags.startswith(f"{kept}/") for kept in state.harness), (
        "ours is laid anew, not the agent's to change"
    )


def test_each_session_is_a_conversation_of_its_own_and_the_same_in_each_run() -> None:
    def id_of(session: str) -> str:
        argv = ClaudeCodeAgent().launch(context(session)).argv
        return argv[argv.index("--session-id") + 1]

    assert id_of("a") == id_of("a") != id_of("b")
    assert str(UUID(id_of("a"))) == id_of("a")
    assert not {"--resume", "--continue"} & set(AGENT.launch(context()).argv)


def test_the_program_is_the_installed_one_and_it_is_called_with_a_whole_environment() -> None:
    launch = AGENT.launch(context(zone="Asia/Shanghai", workdir="/srv/w"))
    assert launch.argv[0] == f"{HARNESS_DIR}/claude"
    assert launch.cwd == "/srv/w"
    assert launch.env["TZ"] == "Asia/Shanghai"
    assert set(launch.env) >= {"HOME", "PATH", "SHELL"}


def test_the_channel_reads_schedules_in_the_agents_zone_and_place() -> None:
    channel = AGENT.channel(context(zone="Asia/Shanghai", workdir="/srv/w"))
    (store,) = channel.stores()
    assert store == "/srv/w/.claude/scheduled_tasks.json"
    data = b'{"tasks": [{"id": "1", "cron": "0 3 * * *", "prompt": "p"}]}'
    (job,) = channel.read_store(store, data)
    assert getattr(job, "zone", None) == "Asia/Shanghai"


def test_its_schedules_are_on_the_timeline() -> None:
    (source,) = AGENT.event_sources(NativeMemory())
    assert isinstance(source, ClaudeCodeAlarms)


# --- the program ----------------------------------------------------------------------------------------


def test_the_pinned_version_is_named_and_its_bytes_are_known(tmp_path: Path) -> None:
    assert AGENT.program() == f"claude-code {VERSION}"
    assert INTEGRITY[VERSION].startswith("sha512-")
    assert AGENT.remarks(tmp_path) == ()


def test_another_version_is_another_program_and_said_to_be_untested(tmp_path: Path) -> None:
    other = ClaudeCodeAgent({"version": "2.1.1"})
    assert other.program() != AGENT.program()
    (remark,) = other.remarks(tmp_path)
    assert "2.1.1 is untested" in remark
    assert VERSION in remark


def test_a_binary_of_the_users_is_told_apart_by_what_it_is(tmp_path: Path) -> None:
    given = tmp_path / "claude"
    given.write_text(f'#!/bin/sh\necho "{VERSION} (Claude Code)"\n')
    given.chmod(0o755)
    agent = ClaudeCodeAgent({"binary": str(given)})
    before = agent.program()
    folder = tmp_path / "installed"
    folder.mkdir()
    agent.install(folder)
    assert (folder / "claude").read_bytes() == given.read_bytes()
    assert agent.remarks(folder) == ()
    given.write_text(f'#!/bin/sh\n# changed\necho "{VERSION} (Claude Code)"\n')
    assert agent.program() != before


# --- whose call it is -----------------------------------------------------------------------------------


def request(tag: str = "", user: Any = "hello", **fields: Any) -> dict[str, Any]:
    """The shape of its requests: a billing line first in the system prompt, tools, messages."""
    billing = f"x-anthropic-billing-header: cc_version={VERSION}; cc_entrypoint=sdk-cli;{tag}"
    system = [{"type": "text", "text": billing}, {"type": "text", "text": "You are ..."}]
    tools = [{"name": "Bash", "input_schema": {}}, {"name": "Read", "input_schema": {}}]
    messages = [{"role": "user", "content": user}]
    return {"model": "m-1", "system": system, "tools": tools, "messages": messages, **fields}


COMPACT = "CRITICAL: Respond with TEXT ONLY. Do NOT call any tools.\n\nSummarize."
CALLS = [
    ("a turn", "/v1/messages?beta=true", request(), CallClass.MAIN),
    ("a subagent", "/v1/messages", request(" cc_is_subagent=true;"), CallClass.SUBAGENT),
    (
        "a subagent that compacts",
        "/v1/messages",
        request(" cc_is_subagent=true;", user=COMPACT),
        CallClass.SUBAGENT,
    ),
    ("a title", "/v1/messages", request(tools=[], output_config={"format": {}}), CallClass.SIDE),
    ("without tools", "/v1/messages", {"messages": [{"role": "user", "content": "x"}]}, CallClass.SIDE),
    (
        "a search",
        "/v1/messages",
        request(tools=[{"type": "web_search_20250305", "name": "web_search"}]),
        CallClass.SIDE,
    ),
    (
        "a turn with search among its tools",
        "/v1/messages",
        request(tools=[{"name": "Bash"}, {"type": "web_search_20250305"}]),
        CallClass.MAIN,
    ),
    ("counting", "/v1/messages/count_tokens?beta=true", request(), CallClass.SIDE),
    (
        "compaction",
        "/v1/messages",
        request(user=[{"type": "text", "text": "hello"}, {"type": "text", "text": COMPACT}]),
        CallClass.COMPACTION,
    ),
    ("compaction as text", "/v1/messages", request(user=COMPACT), CallClass.COMPACTION),
    (
        "a turn long after a compaction",
        "/v1/messages",
        request(
            messages=[
                {"role": "user", "content": COMPACT},
                {"role": "assistant", "content": [{"type": "text", "text": "a summary"}]},
                {
                    "role": "user",
                    "content": [{"type": "tool_result", "tool_use_id": "t", "content": COMPACT}],
                },
            ]
        ),
        CallClass.MAIN,
    ),
    ("another client's", "/v1/messages", request(system="You are a script."), CallClass.MAIN),
    ("an empty one", "/v1/messages", {}, CallClass.SIDE),
]


def record(path: str, body: dict[str, Any] | None) -> CallRecord:
    return CallRecord(
        seq=1, session="s", route="agent", path=path, request=body, start_real_ns=0, end_real_ns=1
    )


@pytest.mark.parametrize(("path", "body", "wanted"), [c[1:] for c in CALLS], ids=[c[0] for c in CALLS])
def test_whose_call_it_is(path: str, body: dict[str, Any], wanted: CallClass) -> None:
    assert AGENT.classify_call(record(path, body)) is wanted


@pytest.mark.parametrize(
    "body",
    [
        None,
        {"system": 3, "tools": 3, "messages": 3},
        {"system": [3], "tools": [3], "messages": [3]},
        {
            "system": [{"text": None}],
            "tools": [{"type": None}],
            "messages": [{"role": "user", "content": [3]}],
        },
        {"tools": [{}], "messages": [{"role": "user", "content": None}]},
        {"tools": [{}], "messages": [{"role": "user", "content": [{"type": "text", "text": 3}]}]},
    ],
)
def test_a_request_that_the_agents_own_programs_sent_does_no_harm(body: dict[str, Any] | None) -> None:
    assert AGENT.classify_call(record("/v1/messages", body)) in CallClass
