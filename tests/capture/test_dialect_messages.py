"""The Messages dialect: requests in, answers out, and what a recorded answer said."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sclate.capture import dialect_messages as messages
from sclate.capture.sse import EventStream
from sclate_adapters.models import (
    Message,
    ModelReply,
    ModelRequest,
    Part,
    StopReason,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolResultPart,
    Usage,
)
from tests.capture.wire import STOP, TEXT, USAGE_START, delta, event, start, text, whole

REQUEST = ModelRequest(model="m-1", messages=(Message(role="user", parts=(TextPart(text="hi"),)),))

WIRE_REQUEST: dict[str, Any] = {
    "model": "m-1",
    "max_tokens": 100,
    "temperature": 0.5,
    "stream": True,
    "system": [
        {"type": "text", "text": "one", "cache_control": {"type": "ephemeral"}},
        {"type": "text", "text": "two"},
    ],
    "tools": [{"name": "bash", "description": "d", "input_schema": {"type": "object"}}],
    "output_config": {"effort": "high"},
    "messages": [
        {"role": "user", "content": "plain"},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "hm", "signature": "sig"},
                {"type": "text", "text": "calling"},
                {"type": "tool_use", "id": "t1", "name": "bash", "input": {"command": "date"}},
            ],
        },
        {
            "role": "user",
            "content": [
                {
                    "type": "tool_result",
                    "tool_use_id": "t1",
                    "content": [{"type": "text", "text": "Mon"}],
                    "is_error": True,
                },
                {"type": "tool_result", "tool_use_id": "t2", "content": "string"},
                {"type": "text", "text": "and this"},
            ],
        },
    ],
}


def test_a_request_is_read_whole() -> None:
    request = messages.parse_request(WIRE_REQUEST)
    assert (request.model, request.max_tokens, request.temperature, request.stream) == ("m-1", 100, 0.5, True)
    assert request.system == "one\ntwo"
    assert request.reasoning_effort == "high"
    assert request.tools[0].name == "bash"
    assert request.tools[0].schema_ == {"type": "object"}
    assert [m.parts for m in request.messages] == [
        (TextPart(text="plain"),),
        (
            ThinkingPart(text="hm", signature="sig"),
            TextPart(text="calling"),
            ToolCallPart(id="t1", name="bash", input={"command": "date"}),
        ),
        (
            ToolResultPart(call_id="t1", text="Mon", is_error=True),
            ToolResultPart(call_id="t2", text="string"),
            TextPart(text="and this"),
        ),
    ]
    assert request.raw == WIRE_REQUEST


def test_what_a_harness_says_between_messages_is_kept_in_its_place() -> None:
    """Protects mid-conversation system messages: a change of date comes as one."""
    said = {"role": "system", "content": "Today's date is now 2031-03-04."}
    body = {"model": "m", "messages": [{"role": "user", "content": "hi"}, said]}
    assert [(m.role, m.text) for m in messages.parse_request(body).messages] == [
        ("user", "hi"),
        ("system", "Today's date is now 2031-03-04."),
    ]


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"model": "m"},
        {"model": "m", "messages": []},
        {"model": "m", "messages": [{"role": "tool", "content": "x"}]},
        {"model": "m", "messages": 3},
    ],
)
def test_what_is_no_request_is_refused(body: dict[str, Any]) -> None:
    with pytest.raises((KeyError, TypeError, ValueError)):
        messages.parse_request(body)


words = st.text(st.characters(codec="utf-8"), max_size=40)
parts = st.one_of(
    st.builds(TextPart, text=words),
    st.builds(ThinkingPart, text=words, signature=words),
    st.builds(
        ToolCallPart, id=words, name=words, input=st.dictionaries(words, words | st.integers() | st.none())
    ),
)


@settings(deadline=None)  # a busy machine is no fault
@given(st.lists(parts, max_size=4), st.sampled_from(StopReason))
def test_streamed_or_not_the_record_is_the_same_answer(answer: list[Part], reason: StopReason) -> None:
    usage = Usage(input_tokens=3, output_tokens=7, cache_read_tokens=1, cache_write_tokens=2)
    reply = ModelReply(parts=tuple(answer), stop_reason=reason, usage=usage)
    body = messages.render(reply, REQUEST, "msg_1")
    streamed = messages.hear_stream(b"".join(messages.stream(reply, REQUEST, "msg_1")))
    plain = messages.hear_json(json.loads(json.dumps(body)))
    assert streamed.content == plain.content == body["content"]
    assert (streamed.text, streamed.tool_calls) == (plain.text, plain.tool_calls)
    assert streamed.stop_reason == plain.stop_reason == reason.value
    assert streamed.usage == plain.usage == usage
    assert streamed.complete
    assert plain.complete


def test_the_events_come_in_the_order_that_clients_expect() -> None:
    reply = ModelReply(parts=(TextPart(text="a"), ToolCallPart(id="t", name="n", input={})))
    data = b"".join(messages.stream(reply, REQUEST, "msg_1"))
    block = ["content_block_start", "content_block_delta", "content_block_stop"]
    assert [e.event for e in EventStream().feed(data)] == [
        "message_start",
        *block,
        *block,
        "message_delta",
        "message_stop",
    ]
    *_, last = messages.stream(reply, REQUEST, "msg_1")
    assert messages.END.match(STOP)
    assert messages.END.search(last)


@pytest.mark.parametrize(
    "stream",
    [
        start()
        + text("x")
        + delta({"output_tokens": 64}, None)
        + delta({**USAGE_START, "output_tokens": 188})
        + STOP,
        start({"input_tokens": 5367, "output_tokens": 0})
        + text("x")
        + delta({**USAGE_START, "output_tokens": 188})
        + STOP,
        start() + text("x") + delta(dict.fromkeys(USAGE_START) | {"output_tokens": 188}) + STOP,
    ],
    ids=["running totals", "corrected at the end", "nulls at the end"],
)
def test_usage_is_the_last_word_per_field(stream: bytes) -> None:
    heard = messages.hear_stream(stream)
    assert heard.usage == Usage(
        input_tokens=37, output_tokens=188, cache_write_tokens=210, cache_read_tokens=5120
    )
    assert len(heard.raw_usage) >= 2  # as they came, so that the rule can be applied again


def test_a_stream_that_ends_early_keeps_its_text_and_has_no_usage() -> None:
    heard = messages.hear_stream(start() + text(TEXT)[:-20])
    assert not heard.complete
    assert heard.text == TEXT
    assert heard.usage == Usage()
    assert heard.raw_usage == [USAGE_START]


@pytest.mark.parametrize("end", [b"\r\n", b"\r"])
def test_line_ends_pings_and_comments_change_no_record(end: bytes) -> None:
    noisy = start() + event("ping") + b": keep-alive\n\n" + text(TEXT) + delta({"output_tokens": 188}) + STOP
    assert messages.hear_stream(noisy.replace(b"\n", end)) == messages.hear_stream(whole())


def test_an_error_in_the_stream_is_heard() -> None:
    heard = messages.hear_stream(start() + messages.error_event(529, "overloaded"))
    assert heard.error == "overloaded"
    assert not heard.complete


@pytest.mark.parametrize(
    "odd",
    [
        b"data: {not json\n\n",
        b"data: 3\n\n",
        b'data: {"type":"message_start","message":null}\n\n',
        event("content_block_delta", index=9, delta={"type": "citations_delta", "citation": {}}),
        event("content_block_delta", index=0),
        event("an_event_of_next_year", x=1),
    ],
)
def test_what_does_not_fit_is_passed_over(odd: bytes) -> None:
    heard = messages.hear_stream(start() + odd + text("x") + odd + delta({"output_tokens": 1}) + STOP)
    assert heard.text == "x"
    assert heard.complete


def test_arguments_that_never_became_whole_are_kept_as_they_came() -> None:
    block = {"type": "tool_use", "id": "t", "name": "bash", "input": {}}
    half = event(
        "content_block_delta", index=0, delta={"type": "input_json_delta", "partial_json": '{"a": "8€'}
    )
    heard = messages.hear_stream(start() + event("content_block_start", index=0, content_block=block) + half)
    assert heard.tool_calls[0]["input"] == {"_unparsed": '{"a": "8€'}


@pytest.mark.parametrize("body", [{"type": "error", "error": {"message": "no"}}, {"error": "no"}])
def test_error_bodies_of_every_shape_are_heard(body: dict[str, Any]) -> None:
    assert messages.hear_json(body).error == "no"
