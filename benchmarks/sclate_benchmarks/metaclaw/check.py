"""The five checks of file rounds: `check.py [--rules FILE] KIND ARGS...`, exit 0 pass, 1 fail, 2 usage.

Stands alone (standard library, Python 3.9 or later), because it is shipped into grader sandboxes that hold
nothing else of this project. Argument lists and verdicts follow MetaClaw-Bench's own checkers, also where
those are surprising; `docs/benchmarks/metaclaw.md` lists where. What the checks look for is data
(`Rules`): the defaults are MetaClaw's, and `--rules FILE` replaces any of them with JSON of the same names.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from dataclasses import dataclass, field
from typing import Any, Callable, Iterator, Sequence  # noqa: UP035 - Python 3.9 in sandboxes

PASS, FAIL, USAGE = 0, 1, 2

# `\d` takes any Unicode digit and `$` one final newline; there is no calendar check. All as upstream.
STAMP = r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(?:\.\d+)?\+08:00"


@dataclass(frozen=True)
class Rules:
    """What is looked for. Patterns are anchored at both ends by the checks.

    `fields`: required metadata, by name: "stamp", "text" (anything but empty) or the list of allowed values;
    the list binds in JSON and Markdown only. `log_line`: pattern with the groups `task` and `summary`.
    """

    stamp: str = STAMP
    file_name: str = r"\d{8}_[a-z][a-z0-9_]*\.[a-z0-9]+"
    meta: str = "meta"
    fields: dict[str, Any] = field(
        default_factory=lambda: {
            "created_at": "stamp",
            "author": "text",
            "status": ["pending", "in_progress", "done"],
        }
    )
    backup_suffix: str = ".bak"
    log_line: str = r"\[DONE\] " + STAMP + r" \| (?P<task>[^|]+) \| (?P<summary>.+)"
    summary_max: int = 80


class Failed(Exception):
    """The work is not as the rules want it; the message says what was found."""


def matches(pattern: str, value: object) -> bool:
    """Whether `value` is a string that the pattern describes from start to end (or one final newline)."""
    return isinstance(value, str) and re.match("(?:" + pattern + ")$", value) is not None


def read_text(path: str) -> str:
    """The file as UTF-8 with universal newlines; a byte order mark stays."""
    with open(path, encoding="utf-8") as stream:
        return stream.read()


def values_at(data: Any, parts: Sequence[str]) -> Iterator[Any]:
    """The values at a dotted path; `key[]` walks a list. A plain key that is missing yields None.

    A missing list yields nothing, a mapping in its place yields its keys, and a list is only found inside
    a mapping.
    """
    if not parts:
        yield data
        return
    head, rest = parts[0], parts[1:]
    if head.endswith("[]"):
        if not isinstance(data, dict):
            raise Failed(f"{head}: not inside an object")
        items = data.get(head[:-2], [])
        if not isinstance(items, (list, dict, str)):
            raise Failed(f"{head}: not a list")
        for item in items:
            yield from values_at(item, rest)
    elif isinstance(data, dict) and head in data:
        yield from values_at(data[head], rest)
    else:
        yield None


def check_iso8601(rules: Rules, argv: Sequence[str]) -> int:
    """`FILE FIELD...`: every value at every path is a timestamp of the required form."""
    if len(argv) < 2:
        print("usage: iso8601 FILE FIELD [FIELD ...]", file=sys.stderr)
        return USAGE
    data = json.loads(read_text(argv[0]))
    for path in argv[1:]:
        for value in values_at(data, path.split(".")):
            if value is None:
                raise Failed(f"{path} is missing")
            if not matches(rules.stamp, value):
                raise Failed(f"{path} is {value!r}")
    return PASS


def check_filename(rules: Rules, argv: Sequence[str]) -> int:
    """`NAME` (need not exist; further arguments are ignored) or `--dir DIR --ext EXT [--min-count N]`."""
    if argv and not argv[0].startswith("--"):
        name = os.path.basename(argv[0])
        if not matches(rules.file_name, name):
            raise Failed(f"file name {name!r} is not of the required form")
        return PASS
    parser = argparse.ArgumentParser(prog="filename")
    parser.add_argument("--dir", required=True)
    parser.add_argument("--ext", required=True)
    parser.add_argument("--min-count", type=int, default=1)
    args = parser.parse_args(argv)
    if not os.path.isdir(args.dir):
        raise Failed(f"no folder {args.dir}")
    ending = "." + args.ext.lower().lstrip(".")
    good = [n for n in os.listdir(args.dir) if n.endswith(ending) and matches(rules.file_name, n)]
    if len(good) < args.min_count:
        raise Failed(f"{len(good)} of {args.min_count} well-named {ending} files in {args.dir}")
    return PASS


def json_fields(rules: Rules, text: str) -> dict[str, Any]:
    meta = json.loads(text)
    meta = meta.get(rules.meta) if isinstance(meta, dict) else None
    if not isinstance(meta, dict):
        raise Failed(f"no object {rules.meta!r} at the top")
    return meta


def colon_fields(text: str) -> dict[str, str]:
    """`key: value` lines; later ones win, quotes and comments are part of the value."""
    pairs = (line.partition(":") for line in text.splitlines() if ":" in line)
    return {key.strip(): value.strip() for key, _, value in pairs}


def md_fields(rules: Rules, text: str) -> dict[str, Any]:
    end = text.find("\n---", 3)
    if not text.startswith("---") or end < 0:
        raise Failed("no front matter between two lines of ---")
    return colon_fields(text[3:end])


def py_fields(rules: Rules, text: str) -> dict[str, Any]:
    found = re.search(r'"""(.*?)"""', text, re.DOTALL)
    if found is None:
        raise Failed('no docstring in """')
    _, mark, section = found.group(1).partition(rules.meta.capitalize() + ":")
    if not mark:
        raise Failed(f"docstring without a section {rules.meta.capitalize()}:")
    return {key.lower(): value for key, value in colon_fields(section.split("\n\n")[0]).items()}


def csv_fields(rules: Rules, text: str) -> dict[str, Any]:
    first = text.split("\n", 1)[0].strip()
    mark = f"# {rules.meta}:"
    if not first.startswith(mark):
        raise Failed(f"first line does not start with {mark!r}")
    pairs = (token.partition("=") for token in first[len(mark) :].split() if "=" in token)
    return {key: value for key, _, value in pairs}


READERS: dict[str, Callable[[Rules, str], dict[str, Any]]] = {
    "json": json_fields,
    "md": md_fields,
    "txt": md_fields,
    "py": py_fields,
    "csv": csv_fields,
}


def check_metadata(rules: Rules, argv: Sequence[str]) -> int:
    """`FILE [--type json|md|py|csv]`: the required fields are there and well formed."""
    parser = argparse.ArgumentParser(prog="metadata")
    parser.add_argument("filepath")
    parser.add_argument("--type", choices=["json", "md", "py", "csv"])
    args = parser.parse_args(argv)
    kind = args.type or args.filepath.rsplit(".", 1)[-1].lower()
    if kind not in READERS:
        raise Failed(f"no metadata is defined for files of type {kind!r}")
    fields = READERS[kind](rules, read_text(args.filepath))
    for name, want in rules.fields.items():
        value = fields.get(name)
        if value is None or value == "":
            raise Failed(f"{name} is missing or empty")
        if want == "stamp" and not matches(rules.stamp, value):
            raise Failed(f"{name} is {value!r}")
        if isinstance(want, list) and kind not in ("py", "csv") and value not in want:
            raise Failed(f"{name} is {value!r}, not one of {want}")
    return PASS


def check_backup(rules: Rules, argv: Sequence[str]) -> int:
    """`FILE`: its backup stands beside it and differs from it."""
    if not argv:
        print("usage: backup FILE", file=sys.stderr)
        return USAGE
    contents = []
    for path in (argv[0], argv[0] + rules.backup_suffix):
        with open(path, "rb") as stream:
            contents.append(stream.read())
    if contents[0] == contents[1]:
        raise Failed(f"{argv[0]} is the same as its backup")
    return PASS


def check_done_log(rules: Rules, argv: Sequence[str]) -> int:
    """`FILE [--min-entries N] [--task-prefix P]`: every line that is not blank is a log line.

    The prefix is that of the last line's task.
    """
    parser = argparse.ArgumentParser(prog="done_log")
    parser.add_argument("logfile")
    parser.add_argument("--task-prefix")
    parser.add_argument("--min-entries", type=int, default=1)
    args = parser.parse_args(argv)
    tasks = []
    for number, line in enumerate(read_text(args.logfile).split("\n"), 1):
        if not line.strip():
            continue
        found = re.match("(?:" + rules.log_line + ")$", line)
        if found is None:
            raise Failed(f"line {number} is not of the required form: {line!r}")
        summary = found.group("summary").strip()
        if len(summary) > rules.summary_max:
            raise Failed(f"line {number}: summary of {len(summary)} characters, {rules.summary_max} allowed")
        tasks.append(found.group("task").strip())
    if len(tasks) < args.min_entries:
        raise Failed(f"{len(tasks)} of {args.min_entries} entries")
    if args.task_prefix and not (tasks and tasks[-1].startswith(args.task_prefix)):
        raise Failed(f"last task is {tasks[-1:]}, not {args.task_prefix}...")
    return PASS


CHECKS: dict[str, Callable[[Rules, Sequence[str]], int]] = {
    "iso8601": check_iso8601,
    "filename": check_filename,
    "metadata": check_metadata,
    "backup": check_backup,
    "done_log": check_done_log,
}


def main(argv: Sequence[str]) -> int:
    """Run one check; prints what is wrong. A file that cannot be read or parsed fails the check."""
    rules = Rules()
    rest = list(argv)
    try:
        if rest[:1] == ["--rules"]:
            rules = Rules(**json.loads(read_text(rest[1])))
            rest = rest[2:]
        check = CHECKS[rest[0]]
    except (IndexError, KeyError, OSError, TypeError, ValueError) as error:
        print(f"usage: check.py [--rules FILE] {{{','.join(CHECKS)}}} ARGS... ({error!r})", file=sys.stderr)
        return USAGE
    try:
        return check(rules, rest[1:])
    except (Failed, OSError, ValueError, RecursionError) as error:
        print(f"FAIL: {error}")
        return FAIL


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
