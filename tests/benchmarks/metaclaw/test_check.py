"""Protects the verdicts of the five checks: one line for each way in which a re-implementation goes wrong."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sclate_benchmarks.metaclaw import check

T = "2026-03-16T09:30:00+08:00"
PROGRAM = Path(check.__file__)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*argv: str) -> int:
    try:
        return check.main(argv)
    except SystemExit as end:
        return int(end.code or 0)


def text(path: Path, content: str) -> str:
    path.write_text(content, encoding="utf-8", newline="")
    return path.name


# --- the program ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("start", [["-m", "sclate_benchmarks.metaclaw.check"], [str(PROGRAM)]])
@pytest.mark.parametrize(
    ("argv", "rc"),
    [
        (["iso8601", "a.json", "t"], 0),
        (["iso8601", "a.json", "u"], 1),
        (["iso8601"], 2),
        (["nonsense"], 2),
        ([], 2),
    ],
)
def test_program_exits_as_documented(folder: Path, start: list[str], argv: list[str], rc: int) -> None:
    text(folder / "a.json", json.dumps({"t": T}))
    assert subprocess.run([sys.executable, *start, *argv], capture_output=True).returncode == rc


def test_program_stands_alone_on_python_3_9() -> None:
    tree = ast.parse(PROGRAM.read_text(), feature_version=(3, 9))
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
    done = subprocess.run([sys.executable, "-I", "-S", str(PROGRAM), "filename", "20260316_a.md"])
    assert done.returncode == 0


# --- iso8601 --------------------------------------------------------------------------------------------

ISO = [
    ({"a": T}, "a", 0, "the plain case"),
    ({"a": "2026-03-16T09:30:00.123456789+08:00"}, "a", 0, "any fraction"),
    ({"a": "2026-03-16T09:30:00.+08:00"}, "a", 1, "a fraction has digits"),
    ({"a": "2026-13-99T99:99:99+08:00"}, "a", 0, "no calendar check"),
    ({"a": "\uff12026-03-16T09:30:00+08:00"}, "a", 0, "any Unicode digit"),
    ({"a": T + "\n"}, "a", 0, "one final newline"),
    ({"a": T + "\r\n"}, "a", 1, "but no carriage return"),
    ({"a": T + " "}, "a", 1, "no space"),
    ({"a": "2026-03-16T01:30:00Z"}, "a", 1, "UTC is another offset"),
    ({"a": "2026-03-16T09:30:00+0800"}, "a", 1, "the offset has a colon"),
    ({"a": "2026-03-16 09:30:00+08:00"}, "a", 1, "the T is required"),
    ({}, "a", 1, "a missing field"),
    ({"a": None}, "a", 1, "null"),
    ({"a": 3}, "a", 1, "a number"),
    ({"a": [T]}, "a", 1, "a list is no timestamp"),
    ({}, "a.b", 1, "a missing branch of plain keys"),
    ({"a": 3}, "a.b", 1, "a branch that is no object"),
    ({}, "x[].b", 0, "a missing list"),
    ({"a": {}}, "a.x[].b", 0, "a missing list in a branch"),
    ({}, "a.x[].b", 1, "a missing branch before a list"),
    ({"x": []}, "x[].b", 0, "an empty list"),
    ({"x": None}, "x[].b", 1, "null for a list"),
    ({"x": 3}, "x[].b", 1, "a number for a list"),
    ({"x": [{"b": T}, {}]}, "x[].b", 1, "an item without the field"),
    ({"x": [{"b": T}, None]}, "x[].b", 1, "an item that is null"),
    ({"x": [T, T]}, "x[]", 0, "a list of timestamps"),
    ({"x": {T: 1}}, "x[]", 0, "an object yields its keys"),
    ({"x": {"k": T}}, "x[]", 1, "and not its values"),
    ([{"b": T}], "[].b", 1, "a list at the top"),
    ([], "[]", 1, "also an empty one"),
    ({"x": [{"y": [{"z": T}]}, {}]}, "x[].y[].z", 0, "lists in lists, missing inside"),
    ({"x": [{"y": [{"z": "no"}]}]}, "x[].y[].z", 1, "lists in lists, wrong inside"),
]


@pytest.mark.parametrize(("data", "path", "rc", "why"), ISO, ids=[case[3] for case in ISO])
def test_iso8601(folder: Path, data: Any, path: str, rc: int, why: str) -> None:
    assert run("iso8601", text(folder / "a.json", json.dumps(data)), path) == rc


def test_iso8601_wants_every_field_and_a_readable_file(folder: Path) -> None:
    name = text(folder / "a.json", json.dumps({"a": T, "b": "no"}))
    assert run("iso8601", name, "a", "b") == 1
    assert run("iso8601", "missing.json", "a") == 1
    assert run("iso8601", ".", "a") == 1
    assert run("iso8601", text(folder / "cut.json", '{"a": '), "a") == 1
    assert run("iso8601", text(folder / "bom.json", "\ufeff" + json.dumps({"a": T})), "a") == 1
    (folder / "latin.json").write_bytes(b'{"a": "\xff"}')
    assert run("iso8601", "latin.json", "a") == 1
    assert run("iso8601", name) == 2


# --- filename -------------------------------------------------------------------------------------------

NAMES = [
    ("20260316_a.json", 0, "need not exist"),
    ("day01/20260316_a1_b.md", 0, "only the base name counts"),
    ("99999999_a.md", 0, "no calendar check"),
    ("\uff120260316_a.md", 0, "any Unicode digit in the date"),
    ("20260316_a\uff12.md", 1, "but not in the name"),
    ("20260316_a.md\n", 0, "one final newline"),
    ("20260316_A.md", 1, "lower case"),
    ("20260316_9.md", 1, "a letter first"),
    ("20260316__a.md", 1, "no second underscore"),
    ("20260316_a-b.md", 1, "no hyphen"),
    ("20260316_a.MD", 1, "a lower-case extension"),
    ("20260316_a.tar.gz", 1, "one extension"),
    ("20260316_a", 1, "an extension"),
    ("2026-03-16_a.md", 1, "a compact date"),
    ("20260316_a.md/", 1, "a path that ends in a slash has no base name"),
    ("-h", 1, "one hyphen is a name"),
    ("", 1, "nothing"),
]


@pytest.mark.parametrize(("name", "rc", "why"), NAMES, ids=[case[2] for case in NAMES])
def test_filename(folder: Path, name: str, rc: int, why: str) -> None:
    assert run("filename", name) == rc


def test_filename_ignores_what_follows_a_name(folder: Path) -> None:
    assert run("filename", "20260316_a.md", "bad", "--dir", "nowhere") == 0
    assert run("filename", "bad", "--dir", ".", "--ext", "md") == 1


def test_filename_counts_in_a_folder(folder: Path) -> None:
    (folder / "d" / "20260316_folder.md").mkdir(parents=True)
    for name in (
        "20260316_a.md",
        "20260317_b.MD",
        "20260318_B.md",
        "x.md",
        "20260319_c.txt",
        "20260320_d.md\n",
    ):
        (folder / "d" / name).touch()
    (folder / "empty").mkdir()
    base = ("filename", "--dir", "d", "--ext")
    assert run(*base, "md", "--min-count", "2") == 0, "a folder counts too"
    assert run(*base, "md", "--min-count", "3") == 1
    assert run(*base, "..MD", "--min-count", "2") == 0, "extension without dots and case"
    assert run(*base, "", "--min-count", "1") == 1
    assert run("filename", "--dir", "empty", "--ext", "md") == 1
    assert run("filename", "--dir", "empty", "--ext", "md", "--min-count", "0") == 0
    assert run("filename", "--dir", "nowhere", "--ext", "md", "--min-count", "0") == 1
    assert run("filename", "--dir", "d/20260316_a.md", "--ext", "md", "--min-count", "0") == 1


def test_filename_takes_arguments_as_argparse_does(folder: Path) -> None:
    (folder / "20260316_a.md").touch()
    assert run("filename", "--di", ".", "--e=md", "--m", "1") == 0
    assert run("filename", "--dir", "nowhere", "--dir", ".", "--ext", "txt", "--ext", "md") == 0
    for wrong in (
        [],
        ["--"],
        ["--dir", "."],
        ["--ext", "md"],
        ["--dir", ".", "--ext", "md", "more"],
        ["--dir", ".", "--ext", "md", "--min-count", "x"],
    ):
        assert run("filename", *wrong) == 2, wrong


# --- metadata -------------------------------------------------------------------------------------------

GOOD = {"created_at": T, "author": "x", "status": "done"}
LINES = f"created_at: {T}\nauthor: x\nstatus: done\n"
COMMENT = f"created_at={T} author=x status=done"


def meta(**changes: Any) -> str:
    return json.dumps({"meta": {k: v for k, v in {**GOOD, **changes}.items() if v != "ABSENT"}})


SOMETHING: list[Any] = [0, False, [], {}, " "]
METADATA: list[tuple[str, str, int, str]] = [
    ("a.json", meta(), 0, "json"),
    ("a.JSON", meta(), 0, "the extension's case does not matter"),
    *[("a.json", meta(**{k: "ABSENT"}), 1, f"json without {k}") for k in GOOD],
    *[("a.json", meta(author=v), 0, f"author {v!r} counts") for v in SOMETHING],
    *[("a.json", meta(author=v), 1, f"author {v!r} is empty") for v in ("", None)],
    ("a.json", meta(status="Done"), 1, "status in lower case"),
    ("a.json", meta(status=["done"]), 1, "status as text"),
    ("a.json", meta(created_at="2026-03-16"), 1, "json with a plain date"),
    ("a.json", json.dumps({"Meta": GOOD}), 1, "the key's case matters"),
    ("a.json", json.dumps(GOOD), 1, "fields at the top"),
    ("a.json", json.dumps([{"meta": GOOD}]), 1, "a list at the top"),
    ("a.json", json.dumps({"meta": [GOOD]}), 1, "a list for meta"),
    ("a.json", "\ufeff" + meta(), 1, "json with a byte order mark"),
    ("a.md", f"---\n{LINES}---\n", 0, "md"),
    ("a.txt", f"---\n{LINES}---\n", 0, "txt is md"),
    ("a.md", f"---\n{LINES}---\n".replace("\n", "\r\n"), 0, "md with CRLF"),
    ("a.md", f"\ufeff---\n{LINES}---\n", 1, "md with a byte order mark"),
    ("a.md", f"\n---\n{LINES}---\n", 1, "md that does not start with it"),
    ("a.md", f"---\n{LINES}", 1, "md that is not closed"),
    ("a.md", f"---\n{LINES} ---\n", 1, "md closed at the line's start"),
    ("a.md", f"---\n{LINES}---x", 0, "md closed by a line that goes on"),
    ("a.md", "---\n" + LINES.replace("done", '"done"') + "---\n", 1, "md keeps quotes"),
    ("a.md", "---\n" + LINES.replace("done", "done # yes") + "---\n", 1, "md keeps comments"),
    ("a.md", "---\n" + LINES.replace(" x", ' ""') + "---\n", 0, "md: a quoted nothing is something"),
    ("a.md", "---\n" + LINES.replace("author", "Author") + "---\n", 1, "md keys by case"),
    ("a.md", "---\nmeta:\n" + LINES.replace("\n", "\n  ") + "\n---\n", 0, "md keys by any indent"),
    ("a.md", f"---\n{LINES}author:\n---\n", 1, "md: the last of a key wins"),
    ("a.md", "---\n" + LINES.replace("\nauthor", "\u2028author") + "---\n", 0, "md lines as str.splitlines"),
    ("a.py", f'"""What.\n\nMeta:\n  {LINES}"""\n', 0, "py"),
    (
        "a.py",
        "import x\n\n\ndef f():\n" + f'    """Meta:\n{LINES}"""\n',
        0,
        "py: the first docstring anywhere",
    ),
    ("a.py", f'"""What."""\n"""Meta:\n{LINES}"""\n', 1, "py: only the first"),
    ("a.py", f"'''Meta:\n{LINES}'''\n", 1, "py: only with double quotes"),
    ("a.py", f'"""meta:\n{LINES}"""\n', 1, "py: Meta by case"),
    ("a.py", f'"""Meta:\n{LINES.upper().replace("T09", "T09")}"""\n', 0, "py keys in any case"),
    (
        "a.py",
        '"""Meta:\n' + LINES.replace("\nauthor", "\n\nauthor") + '"""\n',
        1,
        "py: ends at an empty line",
    ),
    (
        "a.py",
        '"""Meta:\n' + LINES.replace("\nauthor", "\n \nauthor") + '"""\n',
        0,
        "py: a blank line is not empty",
    ),
    ("a.py", '"""Meta:\n' + LINES.replace("done", "whatever") + '"""\n', 0, "py status is free"),
    ("a.py", '"""Meta:\n' + LINES.replace("done", "") + '"""\n', 1, "py status is not empty"),
    ("a.csv", f"# meta: {COMMENT}\na,b\n", 0, "csv"),
    ("a.csv", f"# meta: {COMMENT}\r\na,b\r\n", 0, "csv with CRLF"),
    ("a.csv", f"\ufeff# meta: {COMMENT}\n", 1, "csv with a byte order mark"),
    ("a.csv", f"#meta: {COMMENT}\n", 1, "csv: one space"),
    ("a.csv", f"# Meta: {COMMENT}\n", 1, "csv by case"),
    ("a.csv", f"a,b\n# meta: {COMMENT}\n", 1, "csv: the first line"),
    ("a.csv", f"# meta: {COMMENT.replace(' ', ', ')}\n", 1, "csv: no commas"),
    ("a.csv", f"# meta: {COMMENT.replace('done', 'whatever')}\n", 0, "csv status is free"),
    ("a.csv", f"# meta: {COMMENT.replace('done', '')}\n", 1, "csv status is not empty"),
    (
        "a.csv",
        f"# meta:, created_at={T} \u2028author=x status=done",
        0,
        "csv: the line ends at a newline only",
    ),
    ("a.csv", "", 1, "csv that is empty"),
    ("a.yaml", f"---\n{LINES}---\n", 1, "an unknown kind of file"),
]


@pytest.mark.parametrize(("name", "content", "rc", "why"), METADATA, ids=[case[3] for case in METADATA])
def test_metadata(folder: Path, name: str, content: str, rc: int, why: str) -> None:
    assert run("metadata", text(folder / name, content)) == rc


def test_metadata_takes_arguments_as_argparse_does(folder: Path) -> None:
    name = text(folder / "a.bin", meta())
    assert run("metadata", name) == 1
    assert run("metadata", name, "--type", "json") == 0
    assert run("metadata", "--ty=json", name) == 0
    assert run("metadata", "missing.json") == 1
    for wrong in ([], [name, "more"], [name, "--type", "xml"], [name, "--type", "txt"]):
        assert run("metadata", *wrong) == 2, wrong


# --- backup ---------------------------------------------------------------------------------------------


def test_backup_compares_bytes(folder: Path) -> None:
    def verdict(now: bytes | None, before: bytes | None) -> int:
        for name, data in (("f", now), ("f.bak", before)):
            (folder / name).unlink(missing_ok=True)
            if data is not None:
                (folder / name).write_bytes(data)
        return run("backup", "f")

    assert verdict(b"new", b"old") == 0
    assert verdict(b"same", b"same") == 1
    assert verdict(b"", b"") == 1
    assert verdict(b"a\n", b"a\r\n") == 0, "any difference counts"
    assert verdict(b"\xff", b"\xfe") == 0, "also in what is no text"
    assert verdict(b"new", None) == 1
    assert verdict(None, b"old") == 1
    assert run("backup") == 2
    (folder / "d").mkdir()
    (folder / "d.bak").mkdir()
    assert run("backup", "d") == 1, "a folder is no file"
    verdict(b"new", b"old")
    assert run("backup", "f", "more") == 0, "further arguments are ignored"


# --- done_log -------------------------------------------------------------------------------------------

LINE = f"[DONE] {T} | task_a | what was done\n"
LOGS = [
    (LINE, 0, "one entry"),
    ("", 1, "no entry"),
    ("\n" + LINE + " \n\n", 0, "blank lines do not count"),
    (LINE.replace("\n", "\r\n"), 0, "CRLF"),
    ("\ufeff" + LINE, 1, "a byte order mark"),
    (LINE + "and then\n", 1, "any other line"),
    (" " + LINE, 1, "an indent"),
    (LINE.replace(" | ", "|"), 1, "spaces around pipes"),
    (LINE.replace("DONE", "done"), 1, "by case"),
    (LINE.replace(T, "2026-03-16"), 1, "a plain date"),
    (LINE.replace("task_a", "task | a"), 0, "a pipe in the summary"),
    (LINE.replace("task_a", "task|a"), 1, "a pipe in the task"),
    (LINE.replace("what was done", "x" * 80), 0, "80 characters"),
    (LINE.replace("what was done", "x" * 81), 1, "81 characters"),
    (LINE.replace("what was done", "  " + "x" * 80 + "  "), 0, "80 after strip"),
    (LINE.replace("what was done", "\U0001f600" * 80), 0, "80 code points"),
    (LINE.replace("what was done", ""), 1, "an empty summary"),
    (LINE.replace("what was done", "  "), 0, "a blank summary"),
    (LINE.strip() + "\u2028" + LINE, 0, "lines end at newlines only"),
]


@pytest.mark.parametrize(("content", "rc", "why"), LOGS, ids=[case[2] for case in LOGS])
def test_done_log(folder: Path, content: str, rc: int, why: str) -> None:
    assert run("done_log", text(folder / "done.log", content)) == rc


def test_done_log_counts_and_looks_at_the_last_task(folder: Path) -> None:
    name = text(folder / "done.log", LINE + LINE.replace("task_a", " other_b"))
    assert run("done_log", name, "--min-entries", "2") == 0
    assert run("done_log", name, "--min-entries=3") == 1
    assert run("done_log", name, "--task-prefix", "other") == 0
    assert run("done_log", name, "--task-prefix", "task") == 1
    assert run("done_log", name, "--task-p", "", "--min", "1") == 0
    text(folder / "empty.log", "")
    assert run("done_log", "empty.log", "--min-entries", "0") == 0
    assert run("done_log", "empty.log", "--min-entries", "0", "--task-prefix", "x") == 1
    assert run("done_log", "missing.log", "--min-entries", "0") == 1
    assert run("done_log", ".") == 1
    for wrong in ([], [name, "more"], [name, "--min-entries", "x"], [name, "--task-prefix"]):
        assert run("done_log", *wrong) == 2, wrong


# --- rules ----------------------------------------------------------------------------------------------


def test_rules_replace_what_is_looked_for(folder: Path) -> None:
    rules = text(
        folder / "rules.json",
        json.dumps(
            {
                "stamp": r"\d{4}-\d{2}-\d{2} \d{2}:\d{2}",
                "file_name": r"[a-z]+\.v\d\.md",
                "meta": "card",
                "fields": {"on": "stamp", "state": ["open", "closed"]},
                "backup_suffix": ".before",
                "log_line": r"(?P<task>\w+): (?P<summary>.+)",
                "summary_max": 10,
            }
        ),
    )
    text(folder / "a.json", json.dumps({"card": {"on": "2026-03-16 09:30", "state": "open"}}))
    text(folder / "a.json.before", "")
    text(folder / "log", "task: short\n")
    assert run("--rules", rules, "iso8601", "a.json", "card.on") == 0
    assert run("--rules", rules, "filename", "plan.v2.md") == 0
    assert run("--rules", rules, "filename", "20260316_a.md") == 1
    assert run("--rules", rules, "metadata", "a.json") == 0
    assert run("--rules", rules, "backup", "a.json") == 0
    assert run("--rules", rules, "done_log", "log") == 0
    text(folder / "log", "task: too long a line\n")
    assert run("--rules", rules, "done_log", "log") == 1
    assert run("--rules", text(folder / "bad.json", '{"colour": 1}'), "filename", "x") == 2
    assert run("--rules", "missing.json", "filename", "x") == 2
    assert run("--rules") == 2
