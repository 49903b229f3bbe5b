"""The stream parser on what providers, relays and networks do to a stream."""

from __future__ import annotations

import itertools
import random
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sclate.capture.dialect_messages import END
from sclate.capture.sse import EndHolder, EventStream, ServerEvent
from tests.capture.wire import STOP, TEXT, whole

DELTA = (
    'event: content_block_delta\ndata: {"type":"content_block_delta","index":0,'
    '"delta":{"type":"text_delta","text":"価格は8€🙂"}}\n\n'
).encode()
DONE = b'data: {"choices":[{"index":0,"delta":{"content":"print [DONE] last"}}]}\n\ndata:[DONE]\n\n'


def parse(*pieces: bytes) -> list[ServerEvent]:
    stream = EventStream()
    return [e for piece in pieces for e in stream.feed(piece)] + stream.end()


@pytest.mark.parametrize("cut", [124, 125, 126])
def test_a_cut_inside_a_character_loses_nothing(cut: int) -> None:
    assert len(DELTA) == 132
    (event,) = parse(DELTA[:cut], DELTA[cut:])
    assert TEXT in event.data
    assert "\ufffd" not in event.data


@settings(deadline=None)  # a busy machine is no fault
@given(st.lists(st.integers(0, len(whole())), max_size=12), st.sampled_from([b"\n", b"\r\n", b"\r"]))
def test_any_cut_and_any_line_end_give_the_same_events(cuts: list[int], line_end: bytes) -> None:
    data = whole().replace(b"\n", line_end)
    edges = [0, *sorted(cuts), len(data)]
    assert parse(*(data[a:b] for a, b in itertools.pairwise(edges))) == parse(whole())
    assert parse(*(data[n : n + 1] for n in range(len(data)))) == parse(whole())


lines = [b"data:", b"data", b"event: e", b"id: 7", b":", b" ", b"\n", b"\r", b"\r\n", b"\n\n", b"x", b"\0"]
characters = [c.encode() for c in ("€", "🙂", "\ufeff", "\u2028")]
damage = [b"\xff", b"\xe2\x82"]
scraps = st.sampled_from(lines + characters + damage)


@settings(deadline=None)
@given(st.lists(scraps, max_size=30).map(b"".join), st.data())
def test_any_cut_of_any_stream_gives_the_same_events(stream: bytes, data: st.DataObject) -> None:
    cuts = data.draw(st.lists(st.integers(0, len(stream)), max_size=6))
    edges = [0, *sorted(cuts), len(stream)]
    assert parse(*(stream[a:b] for a, b in itertools.pairwise(edges))) == parse(stream)


@pytest.mark.parametrize("line_end", [b"\n", b"\r\n", b"\r"])
def test_words_that_look_like_an_end_marker_are_words(line_end: bytes) -> None:
    first, last = parse(DONE.replace(b"\n", line_end))
    assert "print [DONE] last" in first.data
    assert last.data == "[DONE]"


def test_comments_and_pings_are_no_content() -> None:
    ping = b'event: ping\ndata: {"type":"ping"}\n\n'
    events = parse(DELTA + b":\n\n" + b": keep-alive 7\n\n" + ping + DELTA)
    assert [e.event for e in events] == ["content_block_delta", "ping", "content_block_delta"]


def test_the_last_event_needs_no_blank_line() -> None:
    assert parse(DELTA.rstrip(b"\n")) == parse(DELTA)


@pytest.mark.parametrize("cut", range(4))
def test_a_byte_order_mark_hides_nothing(cut: int) -> None:
    marked = "\ufeff".encode() + DELTA
    assert parse(marked[:cut], marked[cut:]) == parse(DELTA)


def test_separators_of_unicode_do_not_end_a_line() -> None:
    assert parse('data: {"text":"a\u2028b\x0bc\x85d"}'.encode())[0].data == '{"text":"a\u2028b\x0bc\x85d"}'


@pytest.mark.parametrize("line_end", [b"\n", b"\r\n", b"\r"])
def test_no_event_waits_for_a_later_one(line_end: bytes) -> None:
    stream = EventStream()
    assert len(stream.feed(DELTA.replace(b"\n", line_end))) == 1
    assert len(stream.feed(DELTA.replace(b"\n", line_end))) == 1


def test_a_long_stream_is_parsed_in_linear_time() -> None:
    started = time.monotonic()
    assert len(parse(DELTA * 40_000)) == 40_000  # 5 MB; hours, were it quadratic
    assert time.monotonic() - started < 20


# --- holding back the end -----------------------------------------------------------------------------------


def test_the_holder_keeps_the_end_and_nothing_else_in_any_cut() -> None:
    rng = random.Random(7)
    for line_end in (b"\n", b"\r\n", b"\r"):
        data, end = (part.replace(b"\n", line_end) for part in (whole(), STOP))
        for _ in range(200):
            holder, sent, at = EndHolder(END), b"", 0
            while at < len(data):
                step = rng.randint(1, 60)
                sent += holder.feed(data[at : at + step])
                at += step
            assert sent == data.removesuffix(end)
            assert sent + holder.held() == data


def test_an_event_is_passed_on_with_its_last_byte() -> None:
    holder = EndHolder(END)
    assert holder.feed(DELTA) == DELTA
    assert holder.feed(DELTA[:60]) + holder.feed(DELTA[60:]) == DELTA


def test_an_answer_that_speaks_of_the_end_is_not_its_end() -> None:
    data = whole('event: message_stop {"type":"message_stop"}')
    assert EndHolder(END).feed(data) == data.removesuffix(STOP)


def test_an_end_without_an_event_line_is_an_end() -> None:
    data = b'data: {"type":"ping"}\n\ndata: {"type":"message_stop"}\n\n'
    assert EndHolder(END).feed(data) == b'data: {"type":"ping"}\n\n'
