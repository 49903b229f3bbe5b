"""Protects loading: what a folder means, and that every fault is named with its file and round."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from sclate_adapters.errors import DataError
from sclate_benchmarks.metaclaw.data import load

from .sample import INTROS, write_sample

PUBLISHED = Path(__file__).parents[4] / "shared" / "data"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return write_sample(tmp_path / "bench")


def edit(path: Path, change: Callable[[Any], None]) -> None:
    data = json.loads(path.read_text())
    change(data)
    path.write_text(json.dumps(data))


def test_a_folder_is_days_with_rounds_at_their_instants(root: Path) -> None:
    data = load(root)
    assert [day.id for day in data.days] == ["day01", "day02"]
    assert data.rounds == 4
    first = data.days[0]
    assert datetime.fromtimestamp(first.start_ns / 1e9, UTC) == datetime(2026, 3, 16, 1, 0, tzinfo=UTC)
    assert first.intro_ns - first.start_ns == 120 * 10**9
    assert (first.intro, first.intro_reply) == (INTROS["day01"], "Hello.")
    assert first.rounds[0].check is not None
    assert first.rounds[0].check.timeout == 30.0
    assert first.rounds[1].choice is not None
    assert first.rounds[1].choice.answer == {"A", "C"}


def test_the_workspace_is_root_files_and_one_folder_a_day(root: Path) -> None:
    data = load(root)
    assert set(data.root_files()) == {"USER.md", "refs/terms.md"}
    assert data.day_files("day02") == {"day02/input.txt": b"input of day02\n"}


def test_another_size_is_accepted_and_noted(root: Path) -> None:
    data = load(root)
    assert data.variant == "custom"
    assert "2 days and 4 rounds" in data.notes[0]


def test_the_digest_follows_every_file(root: Path) -> None:
    before = load(root).digest()
    assert load(root).digest() == before
    (root / "workspaces/shared/day02/input.txt").write_text("changed")
    assert load(root).digest() != before


def test_a_list_of_one_group_is_read_as_the_group(root: Path) -> None:
    path = root / "eval/day01/questions.json"
    path.write_text(json.dumps([json.loads(path.read_text())]))
    assert len(load(root).days[0].rounds) == 2


def test_an_answer_may_be_a_text(root: Path) -> None:
    edit(root / "eval/day01/questions.json", lambda d: d["rounds"][1]["eval"].update(answer="a, C"))
    choice = load(root).days[0].rounds[1].choice
    assert choice is not None
    assert choice.answer == {"A", "C"}


def rounds(change: Callable[[list[Any]], None]) -> Callable[[Path], None]:
    return lambda root: edit(root / "eval/day02/questions.json", lambda d: change(d["rounds"]))


def in_days(change: Callable[[list[Any]], None]) -> Callable[[Path], None]:
    return lambda root: edit(root / "all_tests.json", lambda d: change(d["test"]))


FAULTS: list[tuple[str, Callable[[Path], Any], list[str]]] = [
    ("no all_tests.json", lambda r: (r / "all_tests.json").unlink(), ["no all_tests.json"]),
    ("no eval folder", lambda r: shutil.rmtree(r / "eval"), ["no folder eval"]),
    ("another layout", lambda r: shutil.rmtree(r / "openclaw_state"), ["no folder openclaw_state/agents"]),
    (
        "truncated all_tests",
        lambda r: (r / "all_tests.json").write_text('{"test": [{'),
        ["all_tests.json", "truncated"],
    ),
    ("no days", in_days(lambda d: d.clear()), ["all_tests.json", "`test`"]),
    ("a day twice", in_days(lambda d: d.append(d[0])), ["two days", "day01"]),
    ("days out of order", in_days(lambda d: d.reverse()), ["day01 does not start after day02"]),
    ("a day without eval", in_days(lambda d: d[1].pop("eval")), ["all_tests.json", "eval"]),
    ("a path for a name", in_days(lambda d: d[1].update(session="../x")), ["'../x'"]),
    ("no eval of a day", lambda r: shutil.rmtree(r / "eval/day02"), ["day02/questions.json", "missing"]),
    (
        "no session of a day",
        lambda r: (r / "openclaw_state/agents/ag/sessions/day02_x.jsonl").unlink(),
        ["day02_x.jsonl", "missing"],
    ),
    (
        "no inputs of a day",
        lambda r: shutil.rmtree(r / "workspaces/shared/day02"),
        ["workspaces/shared/day02"],
    ),
    (
        "truncated questions",
        lambda r: (r / "eval/day02/questions.json").write_text('{"rounds": ['),
        ["day02/questions.json", "truncated"],
    ),
    (
        "not UTF-8",
        lambda r: (r / "eval/day02/questions.json").write_bytes(b"\xff"),
        ["day02/questions.json", "UTF-8"],
    ),
    ("no rounds", rounds(lambda d: d.clear()), ["day02/questions.json", "`rounds`"]),
    ("a round twice", rounds(lambda d: d.append(d[0])), ["day02/questions.json", "two rounds", "r1"]),
    (
        "an unknown type",
        rounds(lambda d: d[1].update(type="essay")),
        ["day02/questions.json", "round r2", "type"],
    ),
    ("no question", rounds(lambda d: d[1].update(question="")), ["round r2", "question"]),
    ("no feedback", rounds(lambda d: d[0].pop("feedback")), ["round r1", "feedback"]),
    ("no command", rounds(lambda d: d[0]["eval"].pop("command")), ["round r1", "command"]),
    (
        "a text for a status",
        rounds(lambda d: d[0]["eval"].update(expect_exit="0")),
        ["round r1", "expect_exit"],
    ),
    (
        "a bad pattern",
        rounds(lambda d: d[0]["eval"].update(expect_stdout="(", expect_stdout_regex=True)),
        ["round r1"],
    ),
    (
        "an answer beyond the options",
        rounds(lambda d: d[1]["eval"].update(answer=["E"])),
        ["round r2", "['E']"],
    ),
    ("a number for an answer", rounds(lambda d: d[1]["eval"].update(answer=[3])), ["round r2", "answer"]),
    ("no answer", rounds(lambda d: d[1]["eval"].update(answer=[])), ["round r2", "answer"]),
    (
        "an option of two letters",
        rounds(lambda d: d[1]["eval"].update(options={"AB": "", "B": ""})),
        ["round r2", "AB"],
    ),
    ("updates", rounds(lambda d: d[0].update(update=[{"type": "workspace"}])), ["round r1", "updates"]),
    ("a round that is no object", rounds(lambda d: d.append("r3")), ["round number 3"]),
    (
        "a session without a reply",
        lambda r: _session(r, lambda lines: lines.pop()),
        ["day02_x.jsonl", "reply"],
    ),
    (
        "a session without a header",
        lambda r: _session(r, lambda lines: lines.pop(0)),
        ["day02_x.jsonl", "header"],
    ),
    (
        "a truncated session",
        lambda r: _session(r, lambda lines: lines.append('{"type"')),
        ["day02_x.jsonl", "line 4"],
    ),
    (
        "another session's file",
        lambda r: _session(r, lambda lines: lines.__setitem__(0, lines[0].replace("day02_x", "day01_x"))),
        ["day02_x.jsonl", "line 1", "the session day01_x"],
    ),
    (
        "a date that does not exist",
        lambda r: _session(r, lambda lines: lines.__setitem__(0, lines[0].replace("03-17", "02-29"))),
        ["day02_x.jsonl", "line 1", "day"],
    ),
    (
        "a session without an instant",
        lambda r: _session(r, lambda lines: lines.__setitem__(0, '{"type": "session"}')),
        ["day02_x.jsonl", "line 1", "timestamp"],
    ),
    (
        "an instant without a zone",
        lambda r: _session(
            r, lambda lines: lines.__setitem__(0, '{"type": "session", "timestamp": "2026-03-17T01:00:00"}')
        ),
        ["day02_x.jsonl", "line 1", "zone"],
    ),
]


def _session(root: Path, change: Callable[[list[str]], Any]) -> None:
    path = root / "openclaw_state/agents/ag/sessions/day02_x.jsonl"
    lines = path.read_text().splitlines()
    change(lines)
    path.write_text("\n".join(lines))


@pytest.mark.parametrize(("damage", "said"), [f[1:] for f in FAULTS], ids=[f[0] for f in FAULTS])
def test_a_fault_is_named_with_its_place(root: Path, damage: Callable[[Path], Any], said: list[str]) -> None:
    damage(root)
    with pytest.raises(DataError) as caught:
        load(root)
    assert all(part in str(caught.value) for part in said), str(caught.value)
    assert caught.value.fix


def test_a_folder_above_the_data_is_pointed_to_it(root: Path) -> None:
    with pytest.raises(DataError, match=f"give --data {root}"):
        load(root.parent)


def test_folders_below_are_all_named(root: Path) -> None:
    shutil.copytree(root, root.parent / "bench-small")
    with pytest.raises(DataError, match=f"give --data {root} or --data {root}-small"):
        load(root.parent)


def test_inputs_that_questions_want_changed_must_be_there(root: Path) -> None:
    def ask(path: str) -> Callable[[Any], None]:
        command = f"python scripts/check_backup.py {path} && true"
        return lambda data: data["rounds"][0]["eval"].update(command=command)

    edit(root / "eval/day02/questions.json", ask("day02/config.py"))
    assert "missing: day02/config.py" in load(root).notes[-1]
    edit(root / "eval/day02/questions.json", ask("day02/input.txt"))
    assert load(root).missing_inputs() == []


def test_a_variant_that_is_asked_for_must_be_whole(root: Path) -> None:
    with pytest.raises(DataError, match="not the small variant") as caught:
        load(root).require("small")
    assert "2 days and 4 rounds (2 file_check, 2 multi_choice)" in caught.value.why
    assert "missing: day03, day04, day05" in caught.value.why
    assert "--split all" in caught.value.fix


@pytest.mark.data
def test_a_day_or_a_round_that_is_missing_is_noticed(tmp_path: Path) -> None:
    copy = Path(shutil.copytree(PUBLISHED / "metaclaw-bench-small", tmp_path / "small"))
    load(copy).require("small")
    with pytest.raises(DataError, match="is the small variant, not full"):
        load(copy).require("full")
    edit(copy / "eval/day03/questions.json", lambda d: d["rounds"].pop(0))
    with pytest.raises(
        DataError, match=r"60 rounds \(35 file_check, 25 multi_choice\), as published 12 days"
    ):
        load(copy).require("small")
    edit(copy / "all_tests.json", lambda d: d["test"].pop(4))
    with pytest.raises(DataError, match="missing: day05\n"):
        load(copy).require("small")


@pytest.mark.data
@pytest.mark.parametrize(
    ("folder", "variant", "days", "files", "choices"),
    [("metaclaw-bench", "full", 30, 224, 122), ("metaclaw-bench-small", "small", 12, 36, 25)],
)
def test_the_published_data_loads(folder: str, variant: str, days: int, files: int, choices: int) -> None:
    assert (PUBLISHED / folder).is_dir(), f"put the published data at {PUBLISHED / folder}"
    data = load(PUBLISHED / folder)
    kinds = [r.type for day in data.days for r in day.rounds]
    assert (data.variant, len(data.days)) == (variant, days)
    assert (kinds.count("file_check"), kinds.count("multi_choice")) == (files, choices)
    for day in data.days:
        local = datetime.fromtimestamp(day.start_ns / 1e9, UTC)
        assert (local.hour, local.minute) == (1, 0)
        assert local.weekday() < 5
        assert day.intro_ns - day.start_ns == 120 * 10**9
