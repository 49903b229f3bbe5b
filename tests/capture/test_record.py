"""Reading the proxy's lines while it writes them, and after it died."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import orjson
import pytest

from sclate.capture.record import CallReader
from sclate.trace import dumps
from sclate_adapters.models import Dialect, Usage
from sclate_adapters.records import CallRecord
from tests.capture.wire import STOP, TEXT, delta, start, text, whole

MESSAGES = "text/event-stream; charset=utf-8"


def line(seq: int, response: bytes | None = None, **fields: Any) -> bytes:
    body = whole() if response is None else response
    try:
        kept = {"text": body.decode()}
    except UnicodeDecodeError:
        kept = {"base64": base64.b64encode(body).decode()}
    record = {
        "seq": seq,
        "route": "agent",
        "uid": 64001,
        "method": "POST",
        "path": "/agent/v1/messages?beta=true",
        "start": {"real_ns": 1000, "mono_ns": 10},
        "first_byte": {"real_ns": 1100, "mono_ns": 110},
        "end": {"real_ns": 1200, "mono_ns": 210},
        "status": 200,
        "response_headers": {"content-type": MESSAGES},
        "request": {
            "text": json.dumps({"model": "m-1", "temperature": 0.5, "max_tokens": 9, "messages": []})
        },
        "response": kept,
        "retries": 2,
        "error": None,
    }
    return json.dumps(record | fields, ensure_ascii=False).encode() + b"\n"


def reader(tmp_path: Path, data: bytes = b"") -> CallReader:
    (tmp_path / "calls.jsonl").write_bytes(data)
    return CallReader(tmp_path / "calls.jsonl", "s1", lambda mono: 5_000_000 + mono)


def append(calls: CallReader, data: bytes) -> None:
    with calls.path.open("ab") as out:
        out.write(data)


def test_a_line_becomes_a_record(tmp_path: Path) -> None:
    (record,) = reader(tmp_path, line(1)).take("s1/t1")
    assert (record.session, record.turn, record.route, record.dialect) == (
        "s1",
        "s1/t1",
        "agent",
        Dialect.MESSAGES,
    )
    assert (record.text, record.finish_reason, record.model) == (TEXT, "end_turn", "m-1")
    assert record.streamed
    assert not record.truncated
    assert record.usage == Usage(
        input_tokens=37, output_tokens=188, cache_write_tokens=210, cache_read_tokens=5120
    )
    assert record.sampling == {"temperature": 0.5, "max_tokens": 9}
    assert (record.start_real_ns, record.first_byte_real_ns, record.end_real_ns) == (1000, 1100, 1200)
    assert (record.start_sim_ns, record.first_byte_sim_ns, record.end_sim_ns) == (5000010, 5000110, 5000210)
    assert record.retries == 2
    assert record.output_token_ids is None  # what the endpoint does not return is null, with the reason
    assert record.unfaithful


def test_a_response_that_is_no_stream(tmp_path: Path) -> None:
    body = {
        "type": "message",
        "model": "m",
        "content": [{"type": "text", "text": "yes"}],
        "stop_reason": "end_turn",
    }
    data = line(1, json.dumps(body).encode(), response_headers={"content-type": "application/json"})
    (record,) = reader(tmp_path, data).take(None)
    assert (record.text, record.streamed, record.truncated) == ("yes", False, False)
    assert record.usage == Usage()


def test_faults_are_in_the_record(tmp_path: Path) -> None:
    broken = line(1, start() + text(TEXT), error="connection closed")
    refused = line(2, b"not yours", status=403, response_headers={})
    short = line(3, cut=True)
    one, two, three = reader(tmp_path, broken + refused + short).take(None)
    assert (one.truncated, one.text, one.error) == (True, TEXT, "connection closed")
    assert (two.status, two.error) == (403, "HTTP 403")
    assert three.truncated


def test_an_answer_cut_inside_a_character_is_kept_up_to_there(tmp_path: Path) -> None:
    stream = whole()
    (record,) = reader(tmp_path, line(1, stream[: stream.index("€".encode()) + 2])).take(None)
    assert record.truncated
    assert record.model == "m-1"


def test_half_of_a_surrogate_pair_can_be_written_to_the_trace(tmp_path: Path) -> None:
    stream = start() + text("8€ X").replace(b"X", rb"\ud83d") + delta({"output_tokens": 1}) + STOP
    request = {"text": r'{"model":"m","messages":[{"role":"user","content":"\ud83d 8€"}]}'}
    (record,) = reader(tmp_path, line(1, stream, request=request)).take(None)
    assert record.text == "8€ \\ud83d"
    assert orjson.loads(dumps(record))["request"]["messages"][0]["content"] == "\\ud83d 8€"
    (whole_pair,) = reader(tmp_path, line(1, request={"text": r'{"model":"\ud83d\ude42"}'})).take(None)
    assert whole_pair.request == {"model": "🙂"}


def test_a_path_of_no_dialect_is_recorded_without_meaning(tmp_path: Path) -> None:
    (record,) = reader(tmp_path, line(1, b"404", path="/agent/admin", status=404)).take(None)
    assert record.dialect is None
    assert record.error == "HTTP 404"


def test_half_a_line_waits_for_its_other_half(tmp_path: Path) -> None:
    second = line(2)
    cut = second.index("€".encode()) + 2  # inside the character
    calls = reader(tmp_path, line(1) + second[:cut])
    assert [r.seq for r in calls.take("a")] == [1]
    assert calls.take("a") == []
    append(calls, second[cut:] + line(3))
    assert [(r.seq, r.turn) for r in calls.take("b")] == [(2, "b"), (3, "b")]
    assert calls.damaged == 0


def ends(tmp_path: Path, data: bytes) -> tuple[list[CallRecord], int]:
    calls = reader(tmp_path, line(1) + data)
    return calls.rest(None), calls.damaged


def test_a_whole_last_line_needs_no_line_end(tmp_path: Path) -> None:
    records, damaged = ends(tmp_path, line(2).rstrip(b"\n"))
    assert [r.seq for r in records] == [1, 2]
    assert damaged == 0


HALF = line(2)[: line(2).index("€".encode()) + 2]


@pytest.mark.parametrize(
    ("damage", "kept"),
    [
        (HALF, [1]),
        (HALF + b"\n\n", [1]),
        (b"\0" * 4096, [1]),
        (HALF + b"\n" + line(3), [1, 3]),
        (b'{"seq":2,"ki' + line(2) + line(3), [1, 3]),
        (line(1) + line(3), [1, 3]),
        (b'{"seq": 2}\n' + line(3), [1, 3]),
    ],
    ids=["half", "half and blank", "zeros", "half inside", "glued", "repeated", "no record"],
)
def test_damage_is_counted_and_swallows_no_neighbour(tmp_path: Path, damage: bytes, kept: list[int]) -> None:
    records, damaged = ends(tmp_path, damage)
    assert [r.seq for r in records] == kept
    assert damaged == 1


def test_reading_changes_nothing(tmp_path: Path) -> None:
    data = line(1) + b"half"
    calls = reader(tmp_path, data)
    calls.take(None)
    calls.rest(None)
    assert calls.path.read_bytes() == data


def test_a_proxy_that_has_not_written_yet(tmp_path: Path) -> None:
    assert CallReader(tmp_path / "calls.jsonl", "s1", lambda mono: mono).take(None) == []
