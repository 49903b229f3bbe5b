"""Protects what the adapter makes of Claude Code's output: each kind of line, and lines that are none."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sclate_adapters.errors import FailureClass
from sclate_adapters.records import Delivery, DeliveryKind
from sclate_adapters.signals import (
    Alive,
    BackgroundTask,
    Consumed,
    CronCleared,
    CronSet,
    Failed,
    Idle,
    Signal,
    TurnFinished,
    TurnStarted,
)
from sclate_agents.harness.claude_code.channel import HELLO, ClaudeCodeChannel

STORE = "/work/.claude/scheduled_tasks.json"


def told(channel: ClaudeCodeChannel, *events: Any) -> list[Signal]:
    return [s for event in events for s in channel.decode("stdout", json.dumps(event).encode())]


def sent(
    channel: ClaudeCodeChannel, id_: str, text: str = "x", kind: DeliveryKind = DeliveryKind.TURN
) -> str:
    """The uuid that a delivery goes out with."""
    line = channel.encode(Delivery(id=id_, kind=kind, session="s", text=text))
    return str(json.loads(line)["uuid"])


def system(subtype: str, **fields: Any) -> dict[str, Any]:
    return {"type": "system", "subtype": subtype, **fields}


def lifecycle(uuid: str, state: str, **fields: Any) -> dict[str, Any]:
    return {"type": "command_lifecycle", "command_uuid": uuid, "state": state, **fields}


RUNNING = system("session_state_changed", state="running")
IDLE = system("session_state_changed", state="idle")


# --- in -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", DeliveryKind)
def test_a_delivery_is_one_line_whatever_its_text(kind: DeliveryKind) -> None:
    text = 'a\nb\u2028\r8€\x00"\\ud83d'
    line = ClaudeCodeChannel().encode(Delivery(id="d", kind=kind, session="s", text=text))
    assert line.count(b"\n") == 1
    assert line.endswith(b"\n")
    message = json.loads(line)
    assert message["type"] == "user"
    assert message["message"] == {"role": "user", "content": text}


def test_deliveries_are_told_apart_by_their_uuid_and_the_same_run_sends_the_same() -> None:
    first, second = (ClaudeCodeChannel() for _ in range(2))
    assert sent(first, "a") == sent(second, "a") != sent(first, "b")


def test_it_is_greeted_and_alive_once_it_answers() -> None:
    channel = ClaudeCodeChannel()
    hello = json.loads(channel.greeting())
    assert (hello["type"], hello["request_id"]) == ("control_request", HELLO)
    answer = {"subtype": "success", "request_id": HELLO}
    assert told(channel, {"type": "control_response", "response": answer}) == [Alive()]
    other = {"subtype": "success", "request_id": "another"}
    assert told(channel, {"type": "control_response", "response": other}) == []


def test_it_is_stopped_by_the_end_of_its_input() -> None:
    stop = ClaudeCodeChannel().stop()
    assert (stop.how, stop.write) == ("close_stdin", b"")
    assert stop.grace_s <= 10


# --- turns ----------------------------------------------------------------------------------------------


def test_a_turn_from_its_start_to_idle() -> None:
    channel = ClaudeCodeChannel()
    uuid = sent(channel, "a/1")
    assert told(
        channel,
        RUNNING,
        lifecycle(uuid, "queued"),
        lifecycle(uuid, "started"),
        system("init", tools=["Bash"]),
        {"type": "assistant", "message": {"content": [{"type": "text", "text": "done"}]}},
        {"type": "result", "subtype": "success", "result": "done", "stop_reason": "end_turn"},
        lifecycle(uuid, "completed"),
        IDLE,
    ) == [
        TurnStarted(trigger="user"),
        Consumed(ids=("a/1",)),
        TurnFinished(text="done", stop="end_turn"),
        Idle(),
    ]


def test_a_delivery_is_consumed_once_and_only_when_it_becomes_input() -> None:
    channel = ClaudeCodeChannel()
    first, second = sent(channel, "a"), sent(channel, "b")
    assert told(channel, lifecycle(first, "queued"), lifecycle(second, "queued")) == []
    assert told(channel, lifecycle(second, "started")) == [Consumed(ids=("b",))]
    assert told(channel, lifecycle(second, "started"), lifecycle("unknown", "started")) == []
    assert told(channel, lifecycle(first, "started")) == [Consumed(ids=("a",))]


def test_a_turn_that_nobody_sent_is_its_own() -> None:
    channel = ClaudeCodeChannel()
    assert told(channel, RUNNING) == [TurnStarted(trigger="own")]
    uuid = sent(channel, "a")
    told(channel, lifecycle(uuid, "started"))
    assert told(channel, RUNNING) == [TurnStarted(trigger="own")], "what was consumed sets off nothing more"


def test_a_turn_of_its_schedules_is_an_alarm() -> None:
    event = lifecycle("theirs", "started", wakeup_source="cron")
    assert told(ClaudeCodeChannel(), RUNNING, event) == [
        TurnStarted(trigger="own"),
        TurnStarted(trigger="alarm"),
    ]


@pytest.mark.parametrize(
    ("fields", "failure"),
    [
        ({"is_error": True, "result": "API Error: 502 no"}, FailureClass.MODEL),
        (
            {"is_error": False, "result": "API Error: stalled", "stop_reason": "stop_sequence"},
            FailureClass.MODEL,
        ),
        ({"is_error": False, "result": "", "terminal_reason": "api_error"}, FailureClass.MODEL),
        ({"is_error": True, "result": "Not logged in · Please run /login"}, FailureClass.SUBSTRATE),
        ({"is_error": True, "result": "Invalid API key · Fix it"}, FailureClass.SUBSTRATE),
        ({"is_error": True, "subtype": "error_during_execution", "errors": ["why"]}, FailureClass.MODEL),
    ],
)
def test_a_turn_without_an_answer_is_never_the_agents_failure(
    fields: dict[str, Any], failure: FailureClass
) -> None:
    failed, finished = told(ClaudeCodeChannel(), {"type": "result", "subtype": "success", **fields})
    assert isinstance(failed, Failed)
    assert failed.failure is failure
    assert failed.message
    assert isinstance(finished, TurnFinished)


def test_an_answer_about_errors_is_an_answer() -> None:
    event = {
        "type": "result",
        "subtype": "success",
        "result": "API Error 404: mended",
        "stop_reason": "end_turn",
    }
    assert told(ClaudeCodeChannel(), event) == [TurnFinished(text="API Error 404: mended", stop="end_turn")]


def test_an_interrupted_turn_says_why_it_stopped() -> None:
    (finished,) = told(ClaudeCodeChannel(), {"type": "result", "subtype": "error_max_turns"})
    assert finished == TurnFinished(text="", stop="error_max_turns")


# --- background tasks -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "end",
    [
        system("task_notification", task_id="t1", status="completed"),
        *(
            system("task_updated", task_id="t1", patch={"status": s})
            for s in ("completed", "failed", "killed")
        ),
    ],
)
def test_a_background_task_from_start_to_end(end: dict[str, Any]) -> None:
    assert told(ClaudeCodeChannel(), system("task_started", task_id="t1"), end) == [
        BackgroundTask(id="t1", running=True),
        BackgroundTask(id="t1", running=False),
    ]


def test_news_of_a_task_that_goes_on_is_not_its_end() -> None:
    news = [{"status": "running"}, {"output": "x"}, None]
    assert told(ClaudeCodeChannel(), *(system("task_updated", task_id="t", patch=p) for p in news)) == []


# --- schedules ------------------------------------------------------------------------------------------

JOB = {"cron": "30 3 * * *", "prompt": "look", "recurring": False, "durable": True}


def use(name: str, input_: dict[str, Any], id_: str = "toolu_1") -> dict[str, Any]:
    block = {"type": "tool_use", "id": id_, "name": name, "input": input_}
    return {"type": "assistant", "message": {"content": [block]}}


def outcome(result: Any, id_: str = "toolu_1", **fields: Any) -> dict[str, Any]:
    block = {"type": "tool_result", "tool_use_id": id_, "content": "...", **fields}
    return {"type": "user", "message": {"content": [block]}, "tool_use_result": result}


def test_a_schedule_is_set_once_its_tool_has_succeeded_and_under_the_harnesss_id() -> None:
    channel = ClaudeCodeChannel("Asia/Shanghai")
    assert told(channel, use("CronCreate", JOB)) == []
    assert told(channel, outcome({"id": "d942d3b8"})) == [
        CronSet(id="d942d3b8", cron="30 3 * * *", zone="Asia/Shanghai", prompt="look", recurring=False)
    ]
    told(channel, use("CronDelete", {"id": "d942d3b8"}, "toolu_2"))
    assert told(channel, outcome({"id": "d942d3b8"}, "toolu_2")) == [CronCleared(id="d942d3b8")]


def test_a_schedule_recurs_unless_it_says_otherwise() -> None:
    channel = ClaudeCodeChannel()
    (job,) = told(channel, use("CronCreate", {"cron": "* * * * *", "prompt": "p"}), outcome({"id": "a"}))
    assert isinstance(job, CronSet)
    assert job.recurring


@pytest.mark.parametrize(
    "end",
    [
        outcome("Error: no such thing"),
        outcome({"id": "a"}, is_error=True),
        outcome({"id": "a"}, "toolu_other"),
        outcome({}),
        outcome(None),
    ],
)
def test_a_schedule_that_was_refused_is_none(end: dict[str, Any]) -> None:
    assert told(ClaudeCodeChannel(), use("CronCreate", JOB), end) == []


def test_other_tools_set_no_schedule() -> None:
    assert told(ClaudeCodeChannel(), use("Bash", JOB), outcome({"id": "a"})) == []


def test_what_a_session_leaves_of_its_schedules() -> None:
    """Durable ones stay; those of its memory alone have died with it; a forgotten one is told of."""
    channel = ClaudeCodeChannel()
    for id_ in ("durable1", "memory01"):
        told(channel, use("CronCreate", JOB), outcome({"id": id_}))
    tasks = [{"id": "durable1", **JOB}, {"id": "another1", **JOB}]
    assert channel.stores() == (STORE,)
    left = list(channel.read_store(STORE, json.dumps({"tasks": tasks}).encode()))
    assert [(type(s), s.id) for s in left if isinstance(s, CronSet | CronCleared)] == [
        (CronSet, "another1"),
        (CronCleared, "memory01"),
    ]


@pytest.mark.parametrize(
    "data",
    [None, b"", b"{", b"[]", b'{"tasks": 3}', b'{"tasks": [{}]}', b'{"tasks": [{"id": "x"}]}', b"\xff"],
)
def test_a_damaged_store_leaves_no_schedule_behind(data: bytes | None) -> None:
    channel = ClaudeCodeChannel()
    told(channel, use("CronCreate", JOB), outcome({"id": "a"}))
    assert list(channel.read_store(STORE, data)) == [CronCleared(id="a")]


# --- what is none of it ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "line",
    [
        *(b"", b"Traceback", b"{", b"{}", b"[]", b"3", b"null", b"\xff", b'"result"', b'{"type":"news"}'),
        b'{"type":"result","result":3}',
        b'{"type":"control_response"}',
        b'{"type":"control_response","response":null}',
        b'{"type":"command_lifecycle"}',
        b'{"type":"command_lifecycle","state":"started"}',
        b'{"type":"command_lifecycle","state":"started","command_uuid":[]}',
        b'{"type":"system","subtype":"session_state_changed"}',
        b'{"type":"system","subtype":"session_state_changed","state":"asleep"}',
        b'{"type":"system","subtype":"task_started"}',
        b'{"type":"system","subtype":"task_started","task_id":7}',
        b'{"type":"system","subtype":"api_retry","attempt":1}',
        b'{"type":"assistant"}',
        b'{"type":"assistant","message":{"content":"text"}}',
        b'{"type":"user","message":{"content":[7,"x",{"type":"tool_result"}]}}',
        b'{"type":"assistant","message":{"content":[{"type":"tool_use","id":[],"name":"CronCreate"}]}}',
        b"[" * 100_000,
    ],
)
def test_output_that_is_none_of_ours_gives_no_signal(line: bytes) -> None:
    assert list(ClaudeCodeChannel().decode("stdout", line)) == []


@given(
    st.dictionaries(
        st.sampled_from(
            ["type", "subtype", "state", "command_uuid", "task_id", "result", "message", "patch"]
        ),
        st.sampled_from(["result", "system", "user", "started", "task_started", "task_updated", "assistant"])
        | st.none()
        | st.integers()
        | st.lists(st.integers())
        | st.just({"content": [{"type": "tool_use"}]}),
    )
)
def test_no_line_does_harm(event: dict[str, Any]) -> None:
    channel = ClaudeCodeChannel()
    uuid = sent(channel, "a")
    list(channel.decode("stdout", json.dumps(event).encode()))
    assert Consumed(ids=("a",)) in told(channel, lifecycle(uuid, "started"))


def test_stderr_gives_no_signal() -> None:
    assert list(ClaudeCodeChannel().decode("stderr", json.dumps(IDLE).encode())) == []


def test_half_of_a_surrogate_pair_becomes_text() -> None:
    line = rb'{"type":"result","subtype":"success","result":"8\ud83d","stop_reason":"end_turn"}'
    (signal,) = ClaudeCodeChannel().decode("stdout", line)
    assert isinstance(signal, TurnFinished)
    assert signal.text == "8\\ud83d"
