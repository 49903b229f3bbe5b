"""The reference harness as a real process against a real server: the whole protocol, and what goes wrong."""

from __future__ import annotations

import ast
import asyncio
import json
import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from sclate_adapters.models import ModelReply, TextPart, ThinkingPart, ToolCallPart, ToolResultPart
from sclate_adapters.records import DeliveryKind
from sclate_adapters.signals import (
    Alive,
    Consumed,
    CronCleared,
    CronSet,
    Failed,
    Idle,
    TurnFinished,
    TurnStarted,
)
from sclate_agents.harness.reference.adapter import PROGRAM
from sclate_agents.memory.none import NoMemory
from tests.agents.kit import Model, Running, agent, bash, call, context, fault, harness, text

Body = Callable[[Running], Awaitable[None]]


def live(model: Model, home: Path, body: Body) -> None:
    async def main() -> None:
        async with agent(model, home) as running:
            await body(running)

    asyncio.run(main())


# --- the protocol -------------------------------------------------------------------------------------------


def test_a_turn_from_start_to_stop(tmp_path: Path) -> None:
    async def body(running: Running) -> None:
        await running.turn("8€?", "d7")
        assert running.signals == [
            Alive(),
            Idle(),
            TurnStarted(trigger="user"),
            Consumed(ids=("d7",)),
            TurnFinished(text="9€", stop="end_turn"),
            Idle(),
        ]
        assert await running.stop() == 0

    model = Model(text("9€"))
    live(model, tmp_path, body)
    assert model.last().text == "8€?"
    assert model.requests[0].model == "m-1"
    assert model.requests[0].stream


@pytest.mark.parametrize(
    ("kind", "trigger"),
    [(DeliveryKind.CRON, "cron"), (DeliveryKind.NOTICE, "notice"), (DeliveryKind.SYSTEM, "notice")],
)
def test_the_trigger_is_what_was_delivered(tmp_path: Path, kind: DeliveryKind, trigger: str) -> None:
    async def body(running: Running) -> None:
        await running.turn("wake", kind=kind)
        assert TurnStarted(trigger=trigger) in running.signals

    live(Model(text("up")), tmp_path, body)


def test_a_conversation_goes_on_within_a_session_and_is_new_in_the_next(tmp_path: Path) -> None:
    async def two_turns(running: Running) -> None:
        await running.turn("first")
        await running.turn("second", "d2")
        assert await running.stop() == 0

    async def one_turn(running: Running) -> None:
        await running.turn("third")

    model = Model()
    live(model, tmp_path, two_turns)
    live(model, tmp_path, one_turn)
    said = [[m.text for m in request.messages] for request in model.requests]
    assert said == [["first"], ["first", "no more", "second"], ["third"]]
    transcripts = sorted((tmp_path / ".reference/transcripts").iterdir())
    assert [len(t.read_text().splitlines()) for t in transcripts] == [4, 2]


def test_a_message_in_mid_turn_reaches_the_next_model_call(tmp_path: Path) -> None:
    model = Model(bash("sleep .3"), text("both"))

    async def body(running: Running) -> None:
        async def before(number: int) -> None:
            if number == 1:  # it is there while the tool runs
                await running.send("and this", "d2")

        model.before = before
        await running.turn("start")
        assert [s.ids for s in running.signals if isinstance(s, Consumed)] == [("d1",), ("d2",)]
        assert running.types().count("turn_started") == 1

    live(model, tmp_path, body)
    result, added = model.last().parts
    assert isinstance(result, ToolResultPart)
    assert added == TextPart(text="and this")


def test_a_message_during_the_last_call_has_a_turn_of_its_own(tmp_path: Path) -> None:
    model = Model(text("one"), text("two"))

    async def body(running: Running) -> None:
        asked, sent = asyncio.Event(), asyncio.Event()

        async def before(number: int) -> None:
            asked.set()
            await sent.wait()

        model.before = before
        await running.send("first")
        await asked.wait()
        await running.send("second", "d2")
        sent.set()
        await running.until("turn_finished")
        await running.until("turn_finished")
        await running.until("idle")
        assert [s.text for s in running.signals if isinstance(s, TurnFinished)] == ["one", "two"]

    live(model, tmp_path, body)


def test_closing_stdin_in_mid_turn_lets_the_turn_end(tmp_path: Path) -> None:
    async def body(running: Running) -> None:
        await running.send("go")
        await running.until("consumed")
        assert await running.stop() == 0
        assert running.process.stdout is not None
        assert b'"turn_finished"' in await running.process.stdout.read()

    live(Model(bash("sleep .5"), text("done")), tmp_path, body)


def test_lines_of_no_protocol_are_passed_over(tmp_path: Path) -> None:
    async def body(running: Running) -> None:
        await running.raw(b'{\n3\n{"type":"user"}\n\xff\n')
        assert (await running.turn("hi"))["text"] == "yes"

    live(Model(text("yes")), tmp_path, body)


# --- the prompt and memory ----------------------------------------------------------------------------------


def test_the_prompt_has_place_and_date(tmp_path: Path) -> None:
    async def body(running: Running) -> None:
        await running.turn("hi")

    model = Model()
    live(model, tmp_path, body)
    assert f"Working directory: {tmp_path}/work\n" in model.requests[0].system
    assert "Current date: " in model.requests[0].system


def test_memory_is_read_at_the_start_and_only_then(tmp_path: Path) -> None:
    memory = tmp_path / "memory"
    (memory / "folder.md").mkdir(parents=True)
    (memory / "b.md").write_text("second 8€")
    (memory / "a.md").write_bytes(b"first \xff")
    (memory / "c.txt").write_text("no note")

    async def body(running: Running) -> None:
        (memory / "z.md").write_text("too late")
        await running.turn("hi")

    model = Model()
    live(model, tmp_path, body)
    system = model.requests[0].system
    assert f"Memory directory: {memory}\n" in system
    assert system.endswith(
        '<memory file="a.md">\nfirst \ufffd\n</memory>\n<memory file="b.md">\nsecond 8€\n</memory>'
    )


def test_a_memory_without_end_does_not_fill_the_prompt(tmp_path: Path) -> None:
    (tmp_path / "memory").mkdir()
    for name in "abc":
        (tmp_path / f"memory/{name}.md").write_text(name.upper() * 150_000)

    async def body(running: Running) -> None:
        await running.turn("hi")

    model = Model()
    live(model, tmp_path, body)
    system = model.requests[0].system
    assert ("A" * 150_000 in system, system.count("BB")) == (True, 25_000)
    assert "CC" not in system


def test_without_memory_no_word_of_it(tmp_path: Path) -> None:
    (tmp_path / "memory").mkdir()
    (tmp_path / "memory/a.md").write_text("left over")

    async def main() -> None:
        async with agent(model, tmp_path, NoMemory()) as running:
            await running.turn("hi")

    model = Model()
    asyncio.run(main())
    request = json.dumps(model.requests[0].raw).lower()
    assert "memory" not in request.replace(str(tmp_path).lower(), "")
    assert "left over" not in request


def test_what_was_remembered_is_there_in_the_next_session(tmp_path: Path) -> None:
    async def body(running: Running) -> None:
        await running.turn("remember")

    model = Model(bash("echo 'door code 4711' >> ../memory/notes.md"), text("done"))
    live(model, tmp_path, body)
    live(model, tmp_path, body)
    assert "4711" not in model.requests[0].system
    assert "4711" in model.requests[-1].system


# --- tools --------------------------------------------------------------------------------------------------


def results(tmp_path: Path, *tools: tuple[str, dict[str, Any]]) -> list[ToolResultPart]:
    """What the model is told after it called these tools at once."""

    async def body(running: Running) -> None:
        assert (await running.turn("go"))["text"] == "done"

    model = Model(call(*tools), text("done"))
    live(model, tmp_path, body)
    return model.results()


def test_tools_work_on_files(tmp_path: Path) -> None:
    out = results(
        tmp_path,
        ("write", {"path": "deep/er/a.txt", "content": "8€"}),
        ("read", {"path": "deep/er/a.txt"}),
        ("bash", {"command": "cat deep/er/a.txt; echo; pwd"}),
        ("bash", {"command": "echo no >&2; exit 3"}),
    )
    assert [(r.call_id, r.is_error) for r in out] == [
        ("t0", False),
        ("t1", False),
        ("t2", False),
        ("t3", True),
    ]
    assert out[1].text == "8€"
    assert out[2].text == f"8€\n{tmp_path}/work\n"
    assert out[3].text == "no\n\n(exit code 3)"


def test_whatever_a_model_asks_for_the_turn_goes_on(tmp_path: Path) -> None:
    out = results(
        tmp_path,
        ("no_such_tool", {}),
        ("bash", {}),
        ("bash", {"command": 3}),
        ("read", {"path": "missing"}),
        ("read", {"path": "."}),
        ("write", {"path": "/proc/x", "content": "y"}),
        ("write", {"path": "a", "content": "\ud800"}),
        ("schedule", {"cron": 3, "zone": "UTC", "prompt": "p"}),
        ("schedule", {"cron": "* *", "zone": "UTC", "prompt": "p"}),
        ("unschedule", {"id": "job-9"}),
    )
    assert len(out) == 10
    assert all(r.is_error and r.text for r in out)


def gone(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return True
    return state == "Z"


def test_a_command_over_its_time_is_killed_with_its_children(tmp_path: Path) -> None:
    (out,) = results(
        tmp_path, ("bash", {"command": "echo begun; sleep 300 & echo $! > pid; wait", "timeout_s": 0.5})
    )
    assert out.text == "begun\n\n(killed after 0.5 s)"
    assert out.is_error
    assert gone(int((tmp_path / "work/pid").read_text()))


def test_what_is_left_in_the_background_does_not_hold_the_turn(tmp_path: Path) -> None:
    (out,) = results(tmp_path, ("bash", {"command": "sleep 300 & echo $! > pid; echo started"}))
    assert out.text == "started\n"
    pid = int((tmp_path / "work/pid").read_text())
    assert not gone(pid)
    os.kill(pid, 9)


def test_a_flood_of_output_is_cut_in_the_middle(tmp_path: Path) -> None:
    command = "echo first; head -c 50000000 /dev/zero | tr '\\0' x; echo last"
    (out,) = results(tmp_path, ("bash", {"command": command}))
    assert len(out.text) < 200_000
    assert out.text.startswith("first\n")
    assert out.text.endswith("xlast\n")
    assert "(cut)" in out.text


def test_schedules_are_told_and_kept(tmp_path: Path) -> None:
    daily = {"cron": "0 9 * * *", "zone": "Asia/Tokyo", "prompt": "news"}
    store = tmp_path / ".reference/crons.json"

    async def first(running: Running) -> None:
        await running.turn("go")
        told = [s for s in running.signals if isinstance(s, CronSet | CronCleared)]
        assert told == [
            CronSet(id="job-1", **daily),
            CronSet(id="job-2", **daily),
            CronCleared(id="job-1"),
            CronSet(id="job-1", **daily),
            CronSet(id="mine", **daily),
        ]
        assert set(json.loads(store.read_text())) == {"job-1", "job-2", "mine"}

    async def second(running: Running) -> None:
        await running.turn("go")
        assert CronCleared(id="mine") in running.signals
        assert set(json.loads(store.read_text())) == {"job-1", "job-2"}

    schedule = ("schedule", daily)
    calls = call(
        schedule, schedule, ("unschedule", {"id": "job-1"}), schedule, ("schedule", {**daily, "id": "mine"})
    )
    live(Model(calls), tmp_path, first)
    live(Model(call(("unschedule", {"id": "mine"}))), tmp_path, second)
    store.write_text("[{")  # the agent's own shell may damage it
    live(Model(call(("unschedule", {"id": "job-1"}))), tmp_path, lambda running: running.turn("go"))  # type: ignore[arg-type, return-value]


# --- the model ----------------------------------------------------------------------------------------------


def test_thinking_goes_back_as_it_came(tmp_path: Path) -> None:
    async def body(running: Running) -> None:
        assert (await running.turn("go"))["text"] == "done"

    thought = ThinkingPart(text="hm, 8€", signature="sig")
    tool = ToolCallPart(id="t1", name="bash", input={"command": "true"})
    model = Model(ModelReply(parts=(thought, tool)), text("done"))
    live(model, tmp_path, body)
    assert model.requests[1].messages[1].parts == (thought, tool)


@pytest.mark.parametrize(
    "first", [fault(429), fault(503), fault(0), fault(0, after_parts=1), fault(529, after_parts=1)]
)
def test_faults_that_pass_are_waited_out(tmp_path: Path, first: ModelReply) -> None:
    async def body(running: Running) -> None:
        assert (await running.turn("go"))["text"] == "there"

    model = Model(first, text("there"))
    live(model, tmp_path, body)
    assert len(model.requests) == 2
    assert model.requests[0].messages == model.requests[1].messages


def test_a_refusal_is_not_asked_again_and_the_next_turn_works(tmp_path: Path) -> None:
    async def body(running: Running) -> None:
        assert (await running.turn("go"))["stop"] == "error"
        (failed,) = [s for s in running.signals if isinstance(s, Failed)]
        assert "HTTP 400" in failed.message
        assert (await running.turn("again", "d2"))["text"] == "there"

    model = Model(fault(400), text("there"))
    live(model, tmp_path, body)
    assert len(model.requests) == 2


def test_an_endpoint_that_is_down_ends_the_turn_and_not_the_harness(tmp_path: Path) -> None:
    async def main() -> None:
        async with harness(context(tmp_path, "http://127.0.0.1:9/agent")) as running:
            assert (await running.turn("go"))["stop"] == "error"
            assert [s.failure for s in running.signals if isinstance(s, Failed)] == ["model"]
            assert await running.stop() == 0

    asyncio.run(main())


def test_a_turn_has_an_end(tmp_path: Path) -> None:
    async def body(running: Running) -> None:
        assert (await running.turn("go"))["stop"] == "max_calls"

    model = Model(*(bash("true") for _ in range(50)))
    live(model, tmp_path, body)
    assert len(model.requests) == 40


# --- the program --------------------------------------------------------------------------------------------


def test_the_program_runs_wherever_there_is_a_python() -> None:
    tree = ast.parse(PROGRAM, feature_version=(3, 9))
    imported = {
        name.partition(".")[0]
        for node in ast.walk(tree)
        for name in (
            [a.name for a in node.names]
            if isinstance(node, ast.Import)
            else [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else []
        )
    }
    assert imported <= sys.stdlib_module_names
