"""Protects the office's world: what has arrived when, and that an agent's odd file is no reply."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sclate_benchmarks.workmonth import value
from sclate_benchmarks.workmonth.adapter import SHIPPED
from sclate_benchmarks.workmonth.office import _reply, load_office

OFFICE = load_office(SHIPPED)


def test_what_has_arrived_only_grows() -> None:
    before = {"mail": 0, "calendar": 0, "tickets": 0}
    for instant in OFFICE.arrivals():
        after = OFFICE.counts(instant)
        assert after != before
        assert all(after[k] >= before[k] for k in before)
        before = after
    assert before == {"mail": 10, "calendar": 5, "tickets": 2}


def test_a_ticket_is_put_once_and_lists_are_put_in_full() -> None:
    put = [OFFICE.files(instant) for instant in OFFICE.arrivals()]
    for ticket in OFFICE.tickets:
        assert sum(ticket.path in files for files in put) == 1
    assert [len(json.loads(files["mail/inbox.json"])) for files in put] == sorted(
        len(json.loads(files["mail/inbox.json"])) for files in put
    )


@given(st.binary(max_size=60) | st.none())
def test_no_bytes_in_a_tickets_file_break_the_world(data: bytes | None) -> None:
    assert isinstance(_reply(data), str)


@pytest.mark.parametrize(
    ("data", "reply"),
    [
        (b'{"reply": " Yes "}', "Yes"),
        (b'{"reply": ""}', ""),
        (b'{"reply": 3}', ""),
        (b'{"reply": "Ye', ""),
        (b'["reply"]', ""),
        (b"", ""),
        (None, ""),
    ],
)
def test_only_a_text_is_a_reply(data: bytes | None, reply: str) -> None:
    assert _reply(data) == reply


@pytest.mark.parametrize(
    ("key", "wanted", "rc"),
    [
        ("a", "4.5", 0),
        ("a", "4", 1),
        ("b.c", '"x"', 0),
        ("b", '{"c": "x"}', 0),
        ("b.d", "1", 1),
        ("a.b", "1", 1),
    ],
)
def test_the_value_check_compares_json(tmp_path: Path, key: str, wanted: str, rc: int) -> None:
    (tmp_path / "f.json").write_text('{"a": 4.5, "b": {"c": "x"}}')
    program = [sys.executable, "-I", str(Path(value.__file__)), str(tmp_path / "f.json"), key, wanted]
    assert subprocess.run(program, capture_output=True).returncode == rc


def test_the_value_check_stands_alone(tmp_path: Path) -> None:
    ast.parse(Path(value.__file__).read_text(), feature_version=(3, 9))
    assert value.main(["missing.json", "a", "1"]) == 1
    assert value.main(["a"]) == 2
