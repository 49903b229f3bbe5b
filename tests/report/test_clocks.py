"""Protects the table of clocks: what is taken from requests and saved states, and what is said about it."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sclate.report.clocks import MOST_SEEN, ClockSeen, times_said
from sclate.report.inside import inside
from sclate.report.moments import meanings
from sclate.report.reading import SessionFiles
from sclate.report.saved import MOST_BYTES, times_recorded
from sclate.report.times import Span
from sclate_adapters.records import CallClass, CallRecord, Snapshot

BERLIN = ZoneInfo("Europe/Berlin")
DATE = "date '+%F %T %Z'"
A, B, C = ("sha256:" + letter * 64 for letter in "abc")
HOST_NS = 1_790_000_000_000_000_000
"""2026-09-21: when the sessions of these tests are lived."""


def ns(text: str) -> int:
    return round(datetime.fromisoformat(text).timestamp()) * 10**9


def call(call_class: CallClass | None = CallClass.MAIN, **request: Any) -> CallRecord:
    return CallRecord(
        seq=1,
        session="s",
        route="agent",
        call_class=call_class,
        request=request,
        start_real_ns=0,
        end_real_ns=1,
    )


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": [{"type": "text", "text": text}]}


def used(command: str, output: Any, id_: str = "t1", **more: Any) -> list[dict[str, Any]]:
    """A tool call of a shell and its answer, as messages."""
    asked = {"type": "tool_use", "id": id_, "name": "sh", "input": {"command": command}}
    said = {"type": "tool_result", "tool_use_id": id_, "content": output, **more}
    return [{"role": "assistant", "content": [asked]}, {"role": "user", "content": [said]}]


def heard(*calls: CallRecord) -> ClockSeen:
    clock = ClockSeen()
    for one in calls:
        clock.hear(one)
    return clock


# --- what a text means --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "first", "unit_s"),
    [
        ("2031-03-03", "2031-03-03T00:00+01:00", 86_400),
        ("2031-03-30", "2031-03-30T00:00+01:00", 82_800),
        ("2031-03-03 09:02", "2031-03-03T09:02+01:00", 60),
        ("2031-03-31 09:02:01 CEST", "2031-03-31T09:02:01+02:00", 1),
        ("2031-03-31T07:02:01Z", "2031-03-31T09:02:01+02:00", 1),
        ("2031-03-03T13:02:01+0500", "2031-03-03T08:02:01+00:00", 1),
        ("Mon Mar  3 09:02:01 CET 2031", "2031-03-03T09:02:01+01:00", 1),
        ("Mon Mar  3 09:02:01 PM CET 2031", "2031-03-03T21:02:01+01:00", 1),
        ("Mon, 03 Mar 2031 08:02:01 +0000", "2031-03-03T09:02:01+01:00", 1),
        ("1930291321", "2031-03-03T09:02:01+01:00", 1),
    ],
)
def test_a_time_is_known_to_its_own_precision(text: str, first: str, unit_s: int) -> None:
    assert meanings(text, BERLIN) == ((ns(first), ns(first) + unit_s * 10**9),)


def test_an_hour_that_comes_twice_means_both() -> None:
    twice = meanings("2031-10-26 02:30:00", BERLIN)
    assert {a for a, _ in twice} == {ns("2031-10-26T02:30+02:00"), ns("2031-10-26T02:30+01:00")}
    assert meanings("2031-10-26 02:30:00 CET", BERLIN) == (twice[1],)


@pytest.mark.parametrize(
    "text",
    ["", "09:02", "2031-02-30", "2031-03-03 09:02 JST", "at 2031-03-03", "99999-01-01", "9999-12-31 25:00"],
)
def test_what_is_no_time_or_in_no_zone_that_is_known_means_nothing(text: str) -> None:
    assert meanings(text, BERLIN) == ()


# --- requests -----------------------------------------------------------------------------------------------


def test_what_the_harness_told_is_its_own_words_and_the_last_of_them() -> None:
    system = [
        {"type": "text", "text": "It was made on 2020-01-01.\nCurrent date: Monday 2031-03-03T09:00:00+01:00"}
    ]
    reminder = user(
        "<system-reminder>The date has changed. Today's date is now 2031-03-04.</system-reminder>"
    )
    middle = {"role": "system", "content": "Today\u2019s date is 2031-03-05."}
    assert heard(call(system=system, messages=[user("hello")])).told == ["2031-03-03T09:00:00+01:00"]
    assert heard(call(system="Current date and time: 2031-03-03 09:00 CET", messages=[])).told == [
        "2031-03-03 09:00 CET"
    ]
    both = heard(call(system=system, messages=[reminder]), call(system=system, messages=[reminder, middle]))
    assert both.told == ["2031-03-04", "2031-03-05"]


def test_what_others_say_is_not_the_harnesss_word() -> None:
    said = "Today's date is 2026-09-21."
    messages = [user(said), {"role": "assistant", "content": [{"type": "text", "text": said}]}]
    assert heard(call(messages=[*messages, *used("cat x", said)])).told == []
    assert heard(call(CallClass.SIDE, system=said, messages=[])).told == [], "no main call"


def test_what_a_tool_said_is_the_answer_to_a_question_for_the_time() -> None:
    now = "2031-03-03 09:02:00 CET"
    blocks = [{"type": "text", "text": now + "\n"}]
    assert heard(call(messages=used(DATE, now + "\n"))).tools == [now]
    assert heard(call(messages=used(f"cd /work && {DATE}; ls", blocks))).tools == [now]
    assert heard(call(messages=used("date", "Mon Mar  3 09:02:00 CET 2031"))).tools == [
        "Mon Mar  3 09:02:00 CET 2031"
    ]
    again = [*used(DATE, now), *used(DATE, "2031-03-03 14:00:00 CET", "t2")]
    assert heard(call(messages=used(DATE, now)), call(messages=again)).tools == [
        now,
        "2031-03-03 14:00:00 CET",
    ]
    assert times_said("get_current_time", {}, now) == [now]
    assert times_said(
        "sh", {"command": "python3 -c 'from datetime import *; print(datetime.now())'"}, now
    ) == [now]


@pytest.mark.parametrize(
    ("command", "output"),
    [
        ("date -d '2031-05-01' +%F", "2031-05-01"),
        ("date -r old.txt", "2031-01-01 10:00:00 CET"),
        ("date -u '+%F %T'", "2031-03-03 08:02:00"),
        ("export TZ=Asia/Tokyo; date '+%F %T'", "2031-03-03 17:02:00"),
        ("date; cat times", "2031-03-03 09:02:00 CET\n2031-05-01 12:00:00"),
        ("cat due.txt", "2031-05-01 12:00:00"),
        ("cat > job.sh <<'EOF'\ndate\nEOF\ncat due.txt", "2031-05-01 12:00:00"),
        ("update date.txt", "2031-05-01"),
        (DATE, "bash: date: command not found"),
    ],
)
def test_a_time_that_is_not_now_is_not_taken_for_the_clock(command: str, output: str) -> None:
    assert heard(call(messages=used(command, output))).tools == []


def test_a_failed_question_has_no_answer() -> None:
    assert heard(call(messages=used(DATE, "2031-03-03 09:02:00 CET", is_error=True))).tools == []


@pytest.mark.parametrize(
    "request_",
    [
        {"system": 7, "messages": "x"},
        {
            "system": [None, {"type": "text", "text": 3}],
            "messages": [None, {"role": "user", "content": 5}, {}],
        },
        {
            "messages": [
                {"role": "assistant", "content": [{"type": "tool_use", "id": [], "input": "date"}, 3]}
            ]
        },
        {
            "messages": [
                {"role": "user", "content": [{"type": "tool_result", "tool_use_id": {}, "content": {}}]}
            ]
        },
    ],
)
def test_a_request_of_any_shape_is_survived(request_: dict[str, Any]) -> None:
    clock = heard(call(**request_))
    assert (clock.told, clock.tools) == ([], [])


@given(st.text(max_size=200))
def test_nothing_but_times_comes_out_of_hostile_texts(text: str) -> None:
    messages = [user(f"<system-reminder>current date {text}</system-reminder>"), *used("date", text)]
    clock = heard(call(system=f"Today's date is {text} 2031-03-03<script>", messages=messages))
    for value in (*clock.told, *clock.tools):
        assert len(value) <= 64
        assert not set(value) & set("<>&'\"\\\n")


def test_memory_stays_flat_whatever_tools_say() -> None:
    clock = ClockSeen()
    for n in range(500):
        clock.hear(call(messages=used("date +%s", str(1_930_000_000 + n))))
    assert clock.tools == [str(1_930_000_000 + n) for n in range(500 - MOST_SEEN, 500)]


# --- saved states -------------------------------------------------------------------------------------------


def saved(folder: Path, digest: str, files: Iterable[tuple[str, bytes] | tarfile.TarInfo]) -> None:
    with tarfile.open(folder / f"{digest.removeprefix('sha256:')}.tar", "w") as tar:
        for file in files:
            if isinstance(file, tarfile.TarInfo):
                tar.addfile(file)
            else:
                info = tarfile.TarInfo(file[0])
                info.size = len(file[1])
                tar.addfile(info, io.BytesIO(file[1]))


def state(harness: str, memory: str = A) -> Snapshot:
    return Snapshot(world=A, workspace=A, harness=harness, memory=memory)


def lines(*times: str) -> bytes:
    return b"".join(
        json.dumps(
            {"timestamp": t, "text": "due 2032-01-01T00:00:00Z", "due": "2032-01-01T00:00:00Z"}
        ).encode()
        + b"\n"
        for t in times
    )


def test_a_record_is_what_the_session_itself_added(tmp_path: Path) -> None:
    first, second, third = (f"2031-03-0{d}T08:00:00.125Z" for d in (3, 4, 5))
    saved(tmp_path, A, [("old.jsonl", lines(first)), ("grows.jsonl", lines(first))])
    saved(
        tmp_path,
        B,
        [("old.jsonl", lines(first)), ("grows.jsonl", lines(first, second)), ("n.jsonl", lines(third))],
    )
    assert times_recorded(tmp_path, state(A), state(B)) == [second, third]
    assert times_recorded(tmp_path, state(B), state(B)) == []
    assert times_recorded(tmp_path, state(C), state(B)) == [first, first, second, third], (
        "nothing is known of before"
    )


def test_notes_are_asked_where_no_transcript_says_a_time(tmp_path: Path) -> None:
    note = b"# Notes\nThe fair: 2032-01-01 10:00.\ncreated_at: 2031-03-03T09:02:01+01:00\n"
    note += b"- 2031-03-03 09:03 met Oda\n"
    saved(tmp_path, B, [("memory/notes.md", note)])
    assert times_recorded(tmp_path, state(A), state(A, B)) == [
        "2031-03-03T09:02:01+01:00",
        "2031-03-03 09:03",
    ]


def test_hostile_members_are_neither_followed_nor_believed(tmp_path: Path) -> None:
    outside = tmp_path / "outside.jsonl"
    outside.write_bytes(lines("2031-03-03T08:00:00Z"))
    members: list[tuple[str, bytes] | tarfile.TarInfo] = []
    for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE, tarfile.DIRTYPE):
        link = tarfile.TarInfo(f"link{kind.decode()}.jsonl")
        link.type, link.linkname = kind, str(outside)
        members.append(link)
    torn = lines("2031-03-04T08:00:00Z")[:-9]
    nested = b"[" * 100_000 + b"\n" + b'{"timestamp":' * 10_000 + b"\n\xff\xfe\n7\n"
    large = b"x" * (4 * MOST_BYTES) + b"\n" + lines("2031-03-05T08:00:00Z")
    members += [
        ("../../escaped.jsonl", torn + b"\n" + nested),
        ("large.jsonl", large),
        ("long.jsonl", b'{"timestamp": "' + b"2031-" * 10_000 + b'"}\n'),
    ]
    saved(tmp_path, B, members)
    before = sorted(tmp_path.rglob("*"))
    assert times_recorded(tmp_path, state(A), state(B)) == ["2031-03-05T08:00:00Z"]
    assert sorted(tmp_path.rglob("*")) == before
    assert not (tmp_path.parent.parent / "escaped.jsonl").exists()


def test_a_damaged_or_missing_state_has_no_times(tmp_path: Path) -> None:
    saved(
        tmp_path,
        B,
        [("a.jsonl", lines("2031-03-03T08:00:00Z")), ("b.jsonl", lines("2031-03-03T09:00:00Z") * 90)],
    )
    tar = tmp_path / f"{'b' * 64}.tar"
    tar.write_bytes(tar.read_bytes()[:2_000])
    assert set(times_recorded(tmp_path, state(A), state(B))) <= {"2031-03-03T08:00:00Z"}
    tar.write_bytes(b"\x1f\x8b" + b"no tar" * 500)
    assert times_recorded(tmp_path, state(A), state(B)) == []
    assert times_recorded(tmp_path, state(A), state(C)) == []


def test_a_digest_that_is_a_path_opens_no_file(tmp_path: Path) -> None:
    states = tmp_path / "state"
    states.mkdir()
    saved(tmp_path, "outside", [("a.jsonl", lines("2031-03-03T08:00:00Z"))])
    assert (states / "../outside.tar").is_file()
    for digest in ("sha256:../outside", "../outside", "", "sha256:" + "b" * 63 + "/"):
        assert times_recorded(states, state(A), state(digest)) == []


# --- what is said about it ----------------------------------------------------------------------------------


def row(told: list[str], tools: list[str], recorded: list[str]) -> tuple[str, list[tuple[str, str]]]:
    """A session from 09:00 to 14:00:30 on 3 March 2031, lived on 21 September 2026."""
    files = SessionFiles("s", clock=ClockSeen(told, tools), recorded=recorded)
    start, end = ns("2031-03-03T09:00+01:00"), ns("2031-03-03T14:00:30+01:00")
    found = inside(files, Span("s", "", False, 10.0, 20.0, start, end), HOST_NS, BERLIN)
    assert found.host == "2026-09-21"
    return found.word, [(cell.text, cell.word) for cell in (found.told, found.tools, found.record)]


def test_clocks_that_agree() -> None:
    told, tool, record = "2031-03-03", "2031-03-03 09:02:00 CET", "2031-03-03T13:00:30.999Z"
    word, cells = row([told], [tool], ["2031-03-01T00:00:00Z", record])
    assert word == "differs", "half a second after the end is after it"
    record = "2031-03-03T13:00:30Z"
    word, cells = row([told], [tool], ["2031-03-01T00:00:00Z", record])
    assert (word, cells) == ("agrees", [(told, "agrees"), (tool, "agrees"), (record, "agrees")])


def test_the_hosts_date_is_marked_as_a_leak_wherever_it_is_seen() -> None:
    good = "2031-03-03 09:02:00"
    assert row(["2026-09-21"], [], [])[0] == "leak"
    assert row([good], ["2026-09-21 16:13:30 UTC", good], [])[1][1] == ("2026-09-21 16:13:30 UTC", "leak")
    assert row([good], [good], ["2026-09-21T14:13:30Z", "2031-03-03T08:02:00Z"])[1][2] == (
        "2026-09-21T14:13:30Z",
        "leak",
    ), "later times do not hide it"
    assert row([good], [good, "2031-03-02 09:02:00"], [])[0] == "differs"
    assert row([good], ["2030-01-01"], ["2026-09-21T14:13:30Z"])[0] == "leak", "the worst is told"


def test_what_was_not_seen_is_not_guessed() -> None:
    assert row([], [], []) == ("unseen", [("–", "unseen")] * 3)
    assert row([], ["2031-03-03 17:02:00 JST"], []) == ("unseen", [("–", "unseen")] * 3)
    found = inside(SessionFiles("s", clock=ClockSeen(["2031-03-03"], [])), None, None, BERLIN)
    assert (found.word, found.host) == ("unseen", "–"), "where nothing says when the session was"
