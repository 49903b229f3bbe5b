"""The adapter of the reference harness: what it puts in place, what it keeps, what it makes of a line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sclate_adapters.memory import MemorySystem
from sclate_adapters.records import CallClass, CallRecord, Delivery, DeliveryKind
from sclate_adapters.signals import BackgroundTask, Signal, TurnFinished
from sclate_adapters.sources import CronSource
from sclate_agents.memory.native import NativeMemory
from sclate_agents.memory.none import NoMemory
from tests.agents.kit import AGENT, context


@pytest.mark.parametrize("memory", [NoMemory(), NativeMemory()])
def test_memory_is_where_the_arm_says(tmp_path: Path, memory: MemorySystem) -> None:
    ctx = context(tmp_path, "http://127.0.0.1:8080/agent", memory)
    remembers = memory.mode == "native"
    assert ("REFERENCE_MEMORY_DIR" in AGENT.provision(ctx).env) is remembers
    state = AGENT.durable_state(ctx)
    assert state.memory == ((f"{tmp_path}/memory",) if remembers else ())
    assert f"{tmp_path}/.reference/transcripts" in state.harness


def test_nothing_in_the_sandbox_tells_the_arm(tmp_path: Path) -> None:
    ctx = context(tmp_path, "http://127.0.0.1:8080/agent", NoMemory())
    provision, launch = AGENT.provision(ctx), AGENT.launch(ctx)
    told = " ".join([*launch.argv, *launch.env.values(), *provision.env.values(), *provision.files])
    assert "none" not in told.replace(str(tmp_path), "")
    assert all(path.startswith(f"{tmp_path}/") for path in provision.files)


@pytest.mark.parametrize("kind", DeliveryKind)
def test_a_delivery_is_one_line_whatever_its_text(tmp_path: Path, kind: DeliveryKind) -> None:
    channel = AGENT.channel(context(tmp_path, ""))
    line = channel.encode(Delivery(id="d1", kind=kind, session="s", text="a\nb\u2028\r8€\x00"))
    assert line.count(b"\n") == 1
    assert line.endswith(b"\n")
    assert json.loads(line)["text"] == "a\nb\u2028\r8€\x00"


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"Traceback",
        b"{",
        b"{}",
        b"[]",
        b'{"type":"news"}',
        b'{"type":"consumed"}',
        b'{"type":"consumed","ids":3}',
        b"\xff",
    ],
)
def test_output_that_is_none_of_ours_gives_no_signal(tmp_path: Path, line: bytes) -> None:
    channel = AGENT.channel(context(tmp_path, ""))
    assert list(channel.decode("stdout", line)) == []


def test_half_of_a_surrogate_pair_becomes_text(tmp_path: Path) -> None:
    line = rb'{"type":"turn_finished","text":"8\ud83d","stop":"end_turn"}'
    (signal,) = AGENT.channel(context(tmp_path, "")).decode("stdout", line)
    assert isinstance(signal, TurnFinished)
    assert signal.text == "8\\ud83d"


def test_stderr_gives_no_signal(tmp_path: Path) -> None:
    assert list(AGENT.channel(context(tmp_path, "")).decode("stderr", b'{"type":"idle"}')) == []


def test_background_tasks(tmp_path: Path) -> None:
    channel = AGENT.channel(context(tmp_path, ""))
    lines = (b'{"type":"background_started","id":"b"}', b'{"type":"background_ended","id":"b"}')
    told: list[Signal] = [s for line in lines for s in channel.decode("stdout", line)]
    assert told == [BackgroundTask(id="b", running=True), BackgroundTask(id="b", running=False)]


def test_its_crons_are_on_the_timeline() -> None:
    (source,) = AGENT.event_sources(NativeMemory())
    assert isinstance(source, CronSource)


def test_every_call_is_the_main_conversation() -> None:
    record = CallRecord(seq=1, session="s", route="agent", start_real_ns=0, end_real_ns=1)
    assert AGENT.classify_call(record) is CallClass.MAIN


@pytest.mark.parametrize("memory", [NoMemory(), NativeMemory(frozen=True)])
def test_memories_say_what_could_change_a_result(memory: MemorySystem) -> None:
    assert memory.describe()["name"] == memory.name
    assert not memory.services()
    assert not memory.event_sources()
