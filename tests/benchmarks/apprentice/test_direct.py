"""Protects requests that name one of the harness's tools: the apprentice calls it, with what was said."""

from __future__ import annotations

import asyncio

import pytest

from sclate_adapters.models import (
    Message,
    ModelRequest,
    TextPart,
    ToolCallPart,
    ToolResultPart,
    ToolSpec,
)
from sclate_benchmarks.apprentice import Apprentice
from sclate_benchmarks.apprentice.view import View

SCHEDULE = ToolSpec(
    name="schedule",
    schema_={
        "properties": {"id": {}, "cron": {}, "zone": {}, "prompt": {}},
        "required": ["cron", "zone", "prompt"],
    },
)
UNSCHEDULE = ToolSpec(name="unschedule", schema_={"properties": {"id": {}}, "required": ["id"]})
ASK = "Please use your scheduling tool: cron `15 4 * * 1`, zone `Asia/Tokyo`, prompt `Count the boats.`"


def respond(*messages: Message) -> tuple[object, ...]:
    request = ModelRequest(model="m", messages=messages, tools=(SCHEDULE, UNSCHEDULE))
    return asyncio.run(Apprentice().respond(request)).parts


def user(text: str) -> Message:
    return Message(role="user", parts=(TextPart(text=text),))


def test_the_named_tool_is_called_with_what_was_said() -> None:
    (call,) = respond(user(ASK))
    assert isinstance(call, ToolCallPart)
    assert call.name == "schedule"
    assert call.input == {"cron": "15 4 * * 1", "zone": "Asia/Tokyo", "prompt": "Count the boats."}


def test_it_is_called_once() -> None:
    (call,) = respond(user(ASK))
    assert isinstance(call, ToolCallPart)
    result = Message(role="user", parts=(ToolResultPart(call_id=call.id, text="scheduled as job-1"),))
    (said,) = respond(user(ASK), Message(role="assistant", parts=(call,)), result)
    assert isinstance(said, TextPart)


@pytest.mark.parametrize(
    "text", ["Use your unscheduling tool: id `job-1`.", "The unscheduling tool, id `job-1`"]
)
def test_a_tool_is_known_by_its_stem(text: str) -> None:
    (call,) = respond(user(text))
    assert isinstance(call, ToolCallPart)
    assert (call.name, call.input) == ("unschedule", {"id": "job-1"})


def test_a_quoted_command_is_run_first_and_once() -> None:
    bash = ToolSpec(name="bash", schema_={"properties": {"command": {}}, "required": ["command"]})
    text = (
        "Please run `sh tools/count.sh` first. Then please create out/boats.json with the fields boats (3)."
    )
    messages = [user(text)]

    def step() -> ToolCallPart:
        request = ModelRequest(model="m", messages=tuple(messages), tools=(bash,))
        call = asyncio.run(Apprentice().respond(request)).parts[0]
        assert isinstance(call, ToolCallPart)
        messages.append(Message(role="assistant", parts=(call,)))
        messages.append(Message(role="user", parts=(ToolResultPart(call_id=call.id, text="counted"),)))
        return call

    assert step().input == {"command": "sh tools/count.sh"}
    assert "out/boats.json" in step().input["command"]


CRON_CREATE = ToolSpec(
    name="CronCreate",
    schema_={
        "properties": {"cron": {}, "prompt": {}, "recurring": {}, "durable": {}},
        "required": ["cron", "prompt"],
    },
)
CRON_LIST = ToolSpec(name="CronList", schema_={"properties": {}})
CRON_DELETE = ToolSpec(name="CronDelete", schema_={"properties": {"id": {}}, "required": ["id"]})
LOADER = ToolSpec(name="ToolSearch", schema_={"properties": {"query": {}}, "required": ["query"]})
WAKEUP = ToolSpec(name="ScheduleWakeup", schema_={"properties": {"prompt": {}}, "required": ["prompt"]})
TOLD = Message(role="system", parts=(TextPart(text="Deferred tools:\nCronCreate\nCronDelete\nCronList"),))


def work(text: str, results: dict[str, str]) -> list[tuple[str, dict[str, object]]]:
    """Calls of a turn in a harness whose schedule tools are loaded by another tool; `results` by tool."""
    tools, messages, calls = [LOADER, WAKEUP], [user(text), TOLD], []
    for _ in range(8):
        request = ModelRequest(model="m", messages=tuple(messages), tools=tuple(tools))
        (part,) = asyncio.run(Apprentice().respond(request)).parts
        if isinstance(part, TextPart):
            return calls
        assert isinstance(part, ToolCallPart)
        calls.append((part.name, part.input))
        if part.name == "ToolSearch":
            tools += [t for t in (CRON_CREATE, CRON_LIST, CRON_DELETE) if t.name in str(part.input)]
        answer = ToolResultPart(call_id=part.id, text=results.get(part.name, "ok"))
        messages += [Message(role="assistant", parts=(part,)), Message(role="user", parts=(answer,))]
    raise AssertionError(f"no end: {calls}")


def test_a_tool_that_has_to_be_loaded_first_is_loaded() -> None:
    assert work(ASK, {}) == [
        ("ToolSearch", {"query": "select:CronCreate"}),
        (
            "CronCreate",
            {"cron": "15 4 * * 1", "prompt": "Count the boats.", "recurring": True, "durable": True},
        ),
    ]


def test_a_schedule_is_cleared_by_the_id_that_the_harness_gave_it() -> None:
    listed = "0a1b2c3d Every day at noon: Feed the cat.\n9f8e7d6c Mondays (durable): Count the boats."
    assert work("Use your unscheduling tool: id `count-boats`.", {"CronList": listed})[1:] == [
        ("CronList", {}),
        ("CronDelete", {"id": "9f8e7d6c"}),
    ]


def test_the_date_is_what_the_harness_says_in_so_many_words() -> None:
    """Not the "date:" in a word, a memory or a list of skills; the latest word counts."""
    told = "# Skills\n- update-config: since 1999-01-01\nDate: 2001-02-03\nToday's date is 2031-03-03."
    later = Message(
        role="system", parts=(TextPart(text="The date has changed. Today's date is now 2031-03-05."),)
    )
    first = Message(role="system", parts=(TextPart(text=told),))
    for messages, day in (((first,), "2031-03-03"), ((first, later), "2031-03-05")):
        request = ModelRequest(model="m", messages=(user("Hello."), *messages))
        assert View(request).now.day.isoformat() == day


def test_a_system_prompts_date_stands_before_what_memory_says() -> None:
    system = "Current date: Monday 2031-03-03T09:15:00+00:00\n<memory>\nDate: 2030-01-01\n</memory>"
    now = View(ModelRequest(model="m", system=system, messages=(user("Hello."),))).now
    assert (now.day.isoformat(), now.hour, now.minute) == ("2031-03-03", 9, 15)
