"""Protects that rules are read and not known: whatever the wording says, of each of the five kinds, is done."""

from __future__ import annotations

import csv
import json
import re
from datetime import date
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sclate_adapters.models import Message, ModelRequest, TextPart, ToolCallPart, ToolSpec
from sclate_benchmarks.apprentice import Apprentice
from sclate_benchmarks.apprentice.moment import Moment
from sclate_benchmarks.apprentice.rules import learn

from .sim import TOOLS, Bench, ask

PLAN = (
    "Please create notes/plan.json. Include these fields: opened_at (today at 14:05), closed_at (tomorrow at noon)"
    ' and owner ("Kim").'
)
REPORT = "Please write a release summary in Markdown format, and save it to notes/. Include risks and costs."
RATES = "Please export the exchange rates as a CSV file, saved to the notes/ directory. Columns: currency, rate_value."
SCRIPT = "Please write a cleanup script and keep it in notes/ (Python file). It should offer `clean(path)`."
CHANGE = "Please update notes/limits.json: change max_users from 5 to 9."


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    """A workspace on Tuesday 5 May 2026 with one existing file."""
    made = Bench(tmp_path / "bench", date(2026, 5, 5))
    made.put("notes/limits.json", '{\n  "max_users": 5,\n  "name": "limits"\n}\n')
    return made


def test_without_a_rule_the_work_is_plain(bench: Bench) -> None:
    bench.says(PLAN)
    bench.says(CHANGE)
    bench.says(REPORT)
    assert json.loads(bench.get("notes/plan.json")) == {
        "opened_at": "2026-05-05 14:05",
        "closed_at": "2026-05-06 12:00",
        "owner": "Kim",
    }
    assert json.loads(bench.get("notes/limits.json")) == {"max_users": 9, "name": "limits"}
    assert bench.get("notes/release-summary.md").startswith("# Release Summary")
    assert bench.files() == ["notes/limits.json", "notes/plan.json", "notes/release-summary.md"]


@pytest.mark.parametrize(
    ("shown", "opened", "closed"),
    [
        ("2026-03-16T09:30:00+08:00", "2026-05-05T14:05:00+08:00", "2026-05-06T12:00:00+08:00"),
        ("2026-03-16T09:30:00-05:00", "2026-05-05T14:05:00-05:00", "2026-05-06T12:00:00-05:00"),
        ("2026-03-16T09:30:00Z", "2026-05-05T14:05:00Z", "2026-05-06T12:00:00Z"),
        ("2026-03-16 09:30 +0900", "2026-05-05 14:05 +0900", "2026-05-06 12:00 +0900"),
        ("2026/03/16 09:30:00 UTC", "2026/05/05 14:05:00 UTC", "2026/05/06 12:00:00 UTC"),
        ("16.03.2026 09:30", "05.05.2026 14:05", "06.05.2026 12:00"),
        ("20260316T093000Z", "20260505T140500Z", "20260506T120000Z"),
        ("2026-03-16T09:30:00.000+01:00", "2026-05-05T14:05:00.000+01:00", "2026-05-06T12:00:00.000+01:00"),
    ],
)
@pytest.mark.parametrize("by", ["feedback", "memory", "file"])
def test_times(bench: Bench, by: str, shown: str, opened: str, closed: str) -> None:
    bench.learns(
        f"All times must be written in full. For example, a start at 9:30 should be recorded as {shown}.", by
    )
    bench.says(PLAN)
    made = json.loads(bench.get("notes/plan.json"))
    assert (made["opened_at"], made["closed_at"]) == (opened, closed)


@given(
    day=st.sampled_from("-/."),
    joint=st.sampled_from(["T", " ", "_"]),
    clock=st.sampled_from([":", "."]),
    zone=st.one_of(
        st.sampled_from(["", "Z", " UTC"]),
        st.builds("{:+03d}:{:02d}".format, st.integers(-12, 14), st.sampled_from([0, 30, 45])),
    ),
    seconds=st.booleans(),
)
def test_any_layout_of_an_instant_is_learnt(
    day: str, joint: str, clock: str, zone: str, seconds: bool
) -> None:
    def written(hour: str, second: str) -> str:
        return f"2026{day}03{day}16{joint}{hour}{clock}30{clock + second if seconds else ''}{zone}"

    style = learn([f"Timestamps must look like {written('09', '00')}."]).time
    assert style is not None
    assert style.write(Moment(date(2026, 3, 16), 17, 30)) == written("17", "00")
    assert style.matches(written("23", "59"))
    assert not style.matches("16 March 2026")


def test_an_instant_with_an_offset_of_its_own_is_converted() -> None:
    style = learn(["Use this format: 2026-03-16T09:30:00+08:00"]).time
    assert style is not None
    assert style.write(Moment(date(2026, 3, 16), 20, 30, offset_min=0)) == "2026-03-17T04:30:00+08:00"


@pytest.mark.parametrize(
    ("shown", "name"),
    [
        ("20260316_build_report.json", "20260505_release_summary.md"),
        ("2026-03-16-build-report.json", "2026-05-05-release-summary.md"),
        ("2026_03_16__build_report.json", "2026_05_05__release_summary.md"),
        ("build_report_20260316.json", "release_summary_20260505.md"),
        ("16-03-2026_buildReport.json", "05-05-2026_ReleaseSummary.md"),
        ("20260316-BUILD-REPORT.json", "20260505-RELEASE-SUMMARY.md"),
    ],
)
@pytest.mark.parametrize("by", ["feedback", "memory", "file"])
def test_names(bench: Bench, by: str, shown: str, name: str) -> None:
    bench.learns(f"Naming is off. Output files must be named like `{shown}`.", by)
    bench.says(REPORT)
    assert f"notes/{name}" in bench.files()


def test_a_name_pattern_without_an_example_is_enough(bench: Bench) -> None:
    bench.learns("New files must use the format `YYYY.MM.DD+<description>.ext`.".replace("+", "_"))
    bench.says(REPORT)
    assert "notes/2026.05.05_release_summary.md" in bench.files()


HEADERS = [("author", "status", "done"), ("owner", "state", "final"), ("maintainer", "phase", "released")]


@pytest.mark.parametrize(("who", "state", "value"), HEADERS)
@pytest.mark.parametrize("by", ["feedback", "memory"])
def test_front_matter(bench: Bench, by: str, who: str, state: str, value: str) -> None:
    for fence in ("---", "+++"):
        rule = f"```\n{fence}\nmade_on: 2026-03-16T<time>+02:00\n{who}: night_shift\n{state}: {value}\n{fence}\n```"
        bench.learns(f"Markdown files must start with this header:\n{rule}", by)
        bench.says(REPORT)
        path = next(f for f in bench.files() if f.endswith(".md"))
        head = f"{fence}\nmade_on: 2026-05-05T09:00:00+02:00\n{who}: night_shift\n{state}: {value}\n{fence}\n"
        assert bench.get(path).startswith(head)


@pytest.mark.parametrize(("who", "state", "value"), HEADERS)
@pytest.mark.parametrize("label", ["meta", "about"])
def test_headers_of_data_code_and_tables(bench: Bench, label: str, who: str, state: str, value: str) -> None:
    stamp = "2026-03-16T09:00:00+02:00"
    bench.learns(
        f"JSON files must have a top-level `{label}` object in this format:\n```json\n"
        f'{{"{label}": {{"made_on": "{stamp}", "{who}": "night_shift", "{state}": "{value}"}}, "content": {{}}}}\n```'
    )
    bench.learns(
        f"Python files must have a docstring with a {label.title()} section like this:\n"
        f'```python\n"""\nWhat it is.\n\n{label.title()}:\n  made_on: {stamp}\n'
        f'  {who}: night_shift\n  {state}: {value}\n"""\n```'
    )
    bench.learns(
        f"CSV files must have a first-line comment: `# {label}: made_on={stamp} {who}=night_shift {state}={value}`."
    )
    for ask_for in (PLAN, SCRIPT, RATES):
        bench.says(ask_for)
    now = "2026-05-05T09:00:00+02:00"
    assert json.loads(bench.get("notes/plan.json"))[label] == {
        "made_on": now,
        who: "night_shift",
        state: value,
    }
    code = next(bench.get(f) for f in bench.files() if f.endswith(".py"))
    compile(code, "made.py", "exec")
    doc = code.split('"""')[1]
    assert f"\n{label.title()}:\n  made_on: {now}\n  {who}: night_shift\n  {state}: {value}\n" in doc
    table = next(bench.get(f) for f in bench.files() if f.endswith(".csv")).splitlines()
    assert table[0] == f"# {label}: made_on={now} {who}=night_shift {state}={value}"
    assert next(csv.reader(table[1:])) == ["currency", "rate_value"]


@pytest.mark.parametrize(
    ("shown", "copy"),
    [
        ("docs/guide.md.bak", "notes/limits.json.bak"),
        ("docs/guide.md.orig", "notes/limits.json.orig"),
        ("docs/guide.md~", "notes/limits.json~"),
        ("docs/old_guide.md", "notes/old_limits.json"),
        ("docs/backup/guide.md", "notes/backup/limits.json"),
        ("docs/guide.saved.md", "notes/limits.saved.json"),
    ],
)
@pytest.mark.parametrize("by", ["feedback", "memory", "file"])
def test_backups(bench: Bench, by: str, shown: str, copy: str) -> None:
    before = bench.get("notes/limits.json")
    bench.learns(f"Before modifying docs/guide.md, you must first back it up as {shown}.", by)
    bench.says(CHANGE)
    assert bench.get(copy) == before
    assert json.loads(bench.get("notes/limits.json"))["max_users"] == 9


@pytest.mark.parametrize(
    ("file", "shown", "pattern"),
    [
        (
            "done.log",
            "[DONE] 2026-03-16T<time>+08:00 | <task_id> | <summary>",
            r"\[DONE\] 2026-05-05T09:00:00\+08:00 \| (\w+) \| (.+)",
        ),
        (
            "journal.txt",
            "FINISHED; 2026-03-16 09:30Z ; <id> ; <summary>",
            r"FINISHED; 2026-05-05 09:00Z ; (\w+) ; (.+)",
        ),
        ("ops/ledger.log", "<task> :: <summary> :: 2026/03/16 09:30", r"(\w+) :: (.+) :: 2026/05/05 09:00"),
    ],
)
@pytest.mark.parametrize("by", ["feedback", "memory"])
def test_log_lines(bench: Bench, by: str, file: str, shown: str, pattern: str) -> None:
    bench.learns(f"After each task you must append one line to {file} in the root: `{shown}`.", by)
    bench.says(REPORT)
    bench.says(CHANGE)
    lines = bench.get(file).splitlines()
    found = [re.fullmatch(pattern, line) for line in lines]
    assert len(found) == 2
    assert all(found), lines


def test_what_is_denied_is_not_taken_for_the_rule(bench: Bench) -> None:
    bench.learns("Times must look like 2026-03-16T09:30:00+08:00, not 2026-03-16T09:30:00Z.")
    bench.learns("Use `20260316_build_report.json` instead of build_report_20260316.json.")
    bench.says(PLAN)
    bench.says(REPORT)
    assert json.loads(bench.get("notes/plan.json"))["opened_at"].endswith("+08:00")
    assert "notes/20260505_release_summary.md" in bench.files()


CHOICE = """Which of these instants are well written?

A. 2026-03-16T09:30:00+08:00
B. 2026-03-16 09:30:00
C. 2026-03-16T09:30:00Z
D. 20260316T093000+0800

Answer using \\bbox{X,Y} format."""


@pytest.mark.parametrize(
    ("shown", "right"),
    [("2026-04-01T10:00:00+08:00", "A"), ("2026-04-01 10:00:00", "B"), ("2026-04-01T10:00:00Z", "C")],
)
def test_choices_are_judged_by_what_was_read(bench: Bench, shown: str, right: str) -> None:
    bench.learns(f"Times must look like {shown}.")
    assert bench.says(CHOICE) == rf"\bbox{{{right}}}"
    wrong = ",".join(x for x in "ABCD" if x != right)
    assert bench.says(CHOICE.replace("are well written", "need to be corrected")) == rf"\bbox{{{wrong}}}"


def test_lessons_are_noted_word_for_word_and_once(bench: Bench) -> None:
    lesson = "Times must look like 2026-03-16T09:30:00+08:00."
    bench.remember("")
    bench.hears(f"Well done so far. {lesson}")
    bench.hears(f"Still wrong. {lesson}")
    assert bench.memory() == f"- {lesson}\n"


def request(tools: tuple[ToolSpec, ...], question: str) -> ModelRequest:
    return ModelRequest(
        model="any",
        system="Current date: Tuesday 2026-05-05T09:00:00+08:00",
        messages=(Message(role="user", parts=(TextPart(text=question),)),),
        tools=tools,
    )


def test_other_harnesses_tools_are_used_by_their_own_names() -> None:
    args = {
        "type": "object",
        "properties": {"command": {}, "description": {}},
        "required": ["command", "description"],
    }
    (call,) = ask(Apprentice(), request((ToolSpec(name="Bash", schema_=args),), PLAN)).parts
    assert isinstance(call, ToolCallPart)
    assert call.name == "Bash"
    assert "notes/plan.json" in call.input["command"]
    assert call.input["description"]

    argv = {"type": "object", "properties": {"command": {"type": "array"}}}
    (call,) = ask(Apprentice(), request((ToolSpec(name="shell", schema_=argv),), PLAN)).parts
    assert isinstance(call, ToolCallPart)
    assert call.input["command"][:2] == ["bash", "-lc"]

    write = {"type": "object", "properties": {"file_path": {}, "content": {}}}
    (call,) = ask(Apprentice(), request((ToolSpec(name="Write", schema_=write),), PLAN)).parts
    assert isinstance(call, ToolCallPart)
    assert call.input["file_path"] == "notes/plan.json"
    assert json.loads(call.input["content"])["owner"] == "Kim"


def test_without_a_shell_files_are_read_and_written_one_by_one(bench: Bench) -> None:
    bench.tools = [t for t in TOOLS if t.name != "bash"]
    bench.learns("Before modifying a.md, you must first back it up as a.md.orig.")
    bench.says(CHANGE)
    assert json.loads(bench.get("notes/limits.json"))["max_users"] == 9
    assert json.loads(bench.get("notes/limits.json.orig"))["max_users"] == 5


def test_without_a_shell_memory_and_log_keep_what_they_held(bench: Bench) -> None:
    bench.tools = [t for t in TOOLS if t.name != "bash"]
    bench.put("done.txt", "an older line\n")
    bench.remember("- Be brief.\n")
    rule = "After each task you must append one line to done.txt: `OK 2026-03-16 09:30 | <task> | <summary>`."
    bench.learns(rule)
    bench.says(REPORT)
    assert (
        bench.get("done.txt")
        == "an older line\nOK 2026-05-05 09:00 | release_summary | Prepared release summary\n"
    )
    assert bench.memory() == f"- Be brief.\n- {rule}\n"
    bench.hears("Times must look like 2026-03-16T09:30:00Z.")
    assert bench.memory().endswith("- Times must look like 2026-03-16T09:30:00Z.\n")
