"""A MetaClaw-Bench folder, loaded and checked.

The layout is upstream's: `all_tests.json` names the days; `eval/<day>/questions.json` has each day's rounds;
`openclaw_state/agents/<agent>/sessions/<session>.jsonl` has the user's first message and the day's date;
`workspaces/shared/` has the workspace's root files and a folder of inputs a day. Every fault is a
`DataError` that names the file and, where there is one, the round.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from datetime import datetime
from hashlib import sha256
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, NoReturn

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from sclate_adapters import NS_PER_S
from sclate_adapters.base import JsonDict, SimNs
from sclate_adapters.errors import DataError

SOURCE = "MetaClaw-Bench comes from the repository aiming-lab/MetaClaw, folder benchmark/data/metaclaw-bench"
PUBLISHED = {
    "full": Counter(days=30, rounds=346, file_check=224, multi_choice=122),
    "small": Counter(days=12, rounds=61, file_check=36, multi_choice=25),
}
"""What each variant holds as published; days are called day01, day02, ..."""
DAY_FOLDER = re.compile(r"day\d+")


class Shape(BaseModel):
    """JSON as upstream writes it; keys that are not read are left alone."""

    model_config = ConfigDict(frozen=True, extra="ignore", strict=True)


class FileCheck(Shape):
    """A round that is judged by a command's exit status in the workspace."""

    command: str = Field(min_length=1)
    expect_exit: int = 0
    timeout: float = Field(30.0, gt=0, allow_inf_nan=False, description="real seconds")
    expect_stdout: str | None = None
    expect_stdout_regex: bool = False

    @model_validator(mode="after")
    def _pattern_compiles(self) -> FileCheck:
        if self.expect_stdout_regex and self.expect_stdout is not None:
            re.compile(self.expect_stdout)
        return self


class Choice(Shape):
    """A round that is judged by the letters in the answer's first box."""

    options: dict[str, str] = Field(min_length=2)
    answer: frozenset[str] = Field(min_length=1)

    @field_validator("answer", mode="before")
    @classmethod
    def _letters(cls, value: Any) -> frozenset[str]:
        """Upstream takes every ASCII letter of a text, or of a list's items."""
        items = value if isinstance(value, list | frozenset) else [value]
        return frozenset(c.upper() for item in items for c in re.findall("[A-Za-z]", str(item)))

    @model_validator(mode="after")
    def _consistent(self) -> Choice:
        if odd := [o for o in self.options if not re.fullmatch("[A-Z]", o)]:
            raise ValueError(f"options are named by one letter A-Z, not {odd}")
        if beyond := sorted(self.answer - set(self.options)):
            raise ValueError(f"the answer has {beyond}, which are no options")
        return self


class Feedback(Shape):
    """`correct` and `incorrect` (file rounds), or `correct` and a text an option (choice rounds)."""

    correct: str = ""
    incorrect: str = ""
    options: dict[str, str] = Field(default_factory=dict)


class Round(Shape):
    """One question. `extra` is a benchmark's own addition, under the key `sclate`."""

    id: str = Field(min_length=1)
    type: Literal["file_check", "multi_choice"]
    question: str = Field(min_length=1)
    feedback: Feedback
    check: FileCheck | None = None
    choice: Choice | None = None
    extra: JsonDict = Field(default_factory=dict, alias="sclate")


class Day(BaseModel):
    """One day as loaded: one session. Instants are simulated, ns UTC."""

    model_config = ConfigDict(frozen=True)

    id: str
    title: str
    tags: tuple[str, ...]
    start_ns: SimNs
    intro_ns: SimNs
    intro: str
    intro_reply: str
    rounds: tuple[Round, ...]
    extra: JsonDict


class Dataset(BaseModel):
    """All days of a folder, in order, with what stands in the workspace."""

    model_config = ConfigDict(frozen=True)

    root: Path
    name: str
    days: tuple[Day, ...]
    extra: JsonDict

    @property
    def rounds(self) -> int:
        return sum(len(day.rounds) for day in self.days)

    @property
    def size(self) -> Counter[str]:
        """How many days, rounds, and rounds of each type."""
        types = Counter[str](one.type for day in self.days for one in day.rounds)
        return types + Counter(days=len(self.days), rounds=self.rounds)

    @property
    def variant(self) -> str:
        """`full`, `small`, or `custom` for any other size."""
        return next((name for name, size in PUBLISHED.items() if size == self.size), "custom")

    @property
    def notes(self) -> tuple[str, ...]:
        """What a user should know about this folder although it can be run."""
        notes = []
        if self.variant == "custom":
            known = " or ".join(f"{_said(size)} ({name})" for name, size in PUBLISHED.items())
            notes.append(f"{_said(self.size)}; as published it has {known}")
        if missing := self.missing_inputs():
            notes.append(f"inputs that questions want changed are missing: {', '.join(missing)}")
        return tuple(notes)

    def missing_inputs(self) -> list[str]:
        """Files that a backup check names and that no day brings, so that its round cannot be passed."""
        named = {
            path
            for day in self.days
            for one in day.rounds
            if one.check is not None
            for path in re.findall(r"check_backup\.py (day\d+/\S+)", one.check.command)
        }
        base = self.root / "workspaces" / "shared"
        return sorted(path for path in named if not (base / path).is_file())

    def require(self, variant: str) -> None:
        """Refuse a folder that is not this variant, whole.

        Raises:
            DataError: says how it differs.
        """
        if self.variant == variant:
            return
        if self.variant != "custom":
            raise DataError(
                f"{self.root} is the {self.variant} variant, not {variant}",
                f"split {variant} was asked for",
                f"give --split {self.variant}, or --data with the folder of the {variant} variant. {SOURCE}",
            )
        wanted = PUBLISHED[variant]
        have = {day.id for day in self.days}
        lost = [d for n in range(wanted["days"]) if (d := f"day{n + 1:02}") not in have]
        why = f"it has {_said(self.size)}, as published {_said(wanted)}"
        raise DataError(
            f"{self.root} is not the {variant} variant of MetaClaw-Bench",
            why + (f"; missing: {', '.join(lost)}" if lost else ""),
            f"fetch the folder anew, or give --split all to run it as it is. {SOURCE}",
        )

    def root_files(self) -> dict[str, bytes]:
        """What the workspace holds from the first day on: everything but the days' folders."""
        base = self.root / "workspaces" / "shared"
        return {path: data for path, data in _files(base) if not DAY_FOLDER.fullmatch(path.partition("/")[0])}

    def day_files(self, day: str) -> dict[str, bytes]:
        """A day's inputs, by path in the workspace."""
        base = self.root / "workspaces" / "shared"
        return {f"{day}/{path}": data for path, data in _files(base / day)}

    def scripts(self) -> dict[str, bytes]:
        """Upstream's own checkers by file name, where the user's folder has them."""
        base = self.root / "eval" / "scripts"
        return {path: data for path, data in _files(base) if re.fullmatch(r"\w+\.py", path)}

    def digest(self, *more: str) -> str:
        """`sha256:...` over every file of the folder that can change a result, and `more` by name."""
        total = sha256()
        for folder in ("eval", "openclaw_state", "workspaces"):
            for path, data in _files(self.root / folder):
                total.update(f"{folder}/{path}\0{len(data)}\0".encode() + data)
        for name in ("all_tests.json", *more):
            total.update((self.root / name).read_bytes())
        return "sha256:" + total.hexdigest()


def load(root: Path) -> Dataset:
    """Load and check a folder that holds `all_tests.json`.

    Raises:
        DataError: something is missing, truncated or contradicts itself.
    """
    if not root.is_dir():
        state = "is no folder" if root.exists() else "does not exist"
        raise DataError(f"the data folder {root} {state}", "--data names it", f"give --data DIR. {SOURCE}")
    top = root / "all_tests.json"
    if not top.is_file():
        below = [found for depth in range(1, 5) for found in root.glob("*/" * depth + "all_tests.json")]
        nested = [f"--data {found.parent}" for found in sorted(below)]
        hint = f"give {' or '.join(nested)}" if nested else f"give the folder that holds it. {SOURCE}"
        raise DataError(f"no all_tests.json in {root}", "it names the days", hint)
    for folder in ("eval", "openclaw_state/agents", "workspaces/shared"):
        if not (root / folder).is_dir():
            raise DataError(
                f"no folder {folder} in {root}",
                "the layout is all_tests.json, eval/, openclaw_state/agents/, workspaces/shared/",
                f"fetch the folder whole. {SOURCE}",
            )
    tests = _json(top)
    entries = tests.get("test") if isinstance(tests, dict) else None
    if not isinstance(entries, list) or not entries:
        _bad(top, "it has no list `test` of days")
    days = tuple(_day(root, top, entry) for entry in entries)
    _unique(top, "day", [day.id for day in days])
    for before, after in pairwise(days):
        if after.start_ns <= before.start_ns:
            _bad(top, f"{after.id} does not start after {before.id}")
    try:
        return Dataset(root=root, name=str(tests.get("name", "")), days=days, extra=tests.get("sclate", {}))
    except ValidationError as error:
        _bad(top, _first(error))


def _day(root: Path, top: Path, entry: Any) -> Day:
    wanted = ("id", "agent", "session", "eval")
    if not isinstance(entry, dict) or not all(isinstance(entry.get(k), str) for k in wanted):
        _bad(top, f"a day needs the texts {', '.join(wanted)}: {str(entry)[:80]}")
    for key in wanted:
        if not re.fullmatch(r"[\w.-]+", entry[key]) or entry[key].startswith("."):
            _bad(top, f"{key} {entry[key]!r} is not a plain file name")
    questions = root / "eval" / entry["eval"] / "questions.json"
    if not (root / "workspaces" / "shared" / entry["id"]).is_dir():
        _bad(top, f"{entry['id']} has no inputs: no folder workspaces/shared/{entry['id']}")
    session = root / "openclaw_state" / "agents" / entry["agent"] / "sessions" / f"{entry['session']}.jsonl"
    rounds, said = _rounds(questions), _session(session)
    tags = entry.get("preference_tags", [])
    try:
        return Day(
            id=entry["id"],
            title=str(entry.get("desc", entry["id"])),
            tags=tuple(tags) if isinstance(tags, list) else tags,
            rounds=rounds,
            extra=entry.get("sclate", {}),
            **said,
        )
    except ValidationError as error:
        _bad(top, f"{entry['id']}: {_first(error)}")


def _rounds(path: Path) -> tuple[Round, ...]:
    group = _json(path)
    if isinstance(group, list) and len(group) == 1:
        group = group[0]
    if not isinstance(group, dict) or not isinstance(group.get("rounds"), list) or not group["rounds"]:
        _bad(path, "it has no list `rounds`")
    rounds = tuple(_round(path, number, entry) for number, entry in enumerate(group["rounds"], 1))
    _unique(path, "round", [r.id for r in rounds])
    return rounds


def _round(path: Path, number: int, entry: Any) -> Round:
    name = entry.get("id", f"number {number}") if isinstance(entry, dict) else f"number {number}"
    try:
        if not isinstance(entry, dict):
            raise ValueError("it is no object")
        if entry.get("update"):
            raise ValueError("it has updates; the published data has none and they are not supported")
        kind, fields = entry.get("type"), {k: v for k, v in entry.items() if k not in ("eval", "update")}
        if kind == "file_check":
            fields["check"] = FileCheck.model_validate(entry.get("eval"))
        elif kind == "multi_choice":
            fields["choice"] = Choice.model_validate(entry.get("eval"))
        return Round.model_validate(fields)
    except ValidationError as error:
        _bad(path, f"round {name}: {_first(error)}")
    except (ValueError, re.error, RecursionError, OverflowError) as error:
        _bad(path, f"round {name}: {error}")


def _session(path: Path) -> dict[str, Any]:
    """Start, first message, its instant and the reply that upstream puts before the first round."""
    start: SimNs | None = None
    said: list[tuple[str, str, SimNs]] = []
    for number, line in enumerate(_text(path).splitlines(), 1):
        try:
            record = _parse(line)
            if record["type"] == "session":
                if record.get("id", path.stem) != path.stem:
                    raise ValueError(f"it is the session {record['id']}")
                start = _instant(record["timestamp"])
            elif record["type"] == "message":
                message = record["message"]
                texts = [part["text"] for part in message["content"] if part["type"] == "text"]
                said.append((message["role"], "\n".join(texts), _instant(record["timestamp"])))
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
            _bad(path, f"line {number}: {type(error).__name__}: {error}")
    if start is None or [role for role, *_ in said] != ["user", "assistant"]:
        _bad(path, "a session has a header, one message of the user and one reply")
    (_, intro, intro_ns), (_, reply, _) = said
    if intro_ns < start:
        _bad(path, "the first message comes before the session's start")
    return {"start_ns": start, "intro_ns": intro_ns, "intro": intro, "intro_reply": reply}


def _instant(text: str) -> SimNs:
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError(f"{text!r} has no time zone")
    return round(moment.timestamp() * 1000) * (NS_PER_S // 1000)


def _said(size: Counter[str]) -> str:
    kinds = f"{size['file_check']} file_check, {size['multi_choice']} multi_choice"
    return f"{size['days']} days and {size['rounds']} rounds ({kinds})"


def _unique(path: Path, what: str, ids: list[str]) -> None:
    for one in ids:
        if ids.count(one) > 1:
            _bad(path, f"two {what}s are called {one}")


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        _bad(path, "it is missing")
    except UnicodeDecodeError as error:
        _bad(path, f"it is not UTF-8: {error}")
    except OSError as error:
        _bad(path, f"it cannot be read: {error.strerror}")


def _parse(text: str) -> Any:
    """Raises ValueError: no JSON, or a text in it is none, for half of a surrogate pair cannot be written."""
    value = json.loads(text)
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise ValueError("a text in it has half of a surrogate pair") from None
    return value


def _json(path: Path) -> Any:
    try:
        return _parse(_text(path))
    except ValueError as error:
        _bad(path, f"it is truncated or no JSON: {error}")
    except RecursionError:
        _bad(path, "it is nested too deeply to be read")


def _first(error: ValidationError) -> str:
    """The first fault, behind the key that has it."""
    first = error.errors(include_url=False)[0]
    where = "".join(f"{part}: " for part in (".".join(map(str, first["loc"])),) if part)
    return where + first["msg"].removeprefix("Value error, ")


def _files(base: Path) -> Iterator[tuple[str, bytes]]:
    for path in sorted(base.rglob("*")):
        if path.is_file():
            yield path.relative_to(base).as_posix(), path.read_bytes()


def _bad(path: Path, why: str) -> NoReturn:
    raise DataError(f"{path} is not as MetaClaw-Bench has it", why, f"fetch the folder anew. {SOURCE}")
