"""Reading a run folder, also one that broke off: what cannot be read is left out, and said."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import orjson
from pydantic import ValidationError

from sclate.report.clocks import ClockSeen
from sclate.report.saved import times_recorded
from sclate_adapters.judgments import Judgment
from sclate_adapters.records import CallRecord, Delivery, SessionRecord, TurnRecord

T = TypeVar("T")
Json = dict[str, Any]
TRACE_TYPES = frozenset({"run", "clock", "session", "delivery", "dispatch", "fault", "end"})


class NoRunError(Exception):
    """A folder that nobody ran in."""


@dataclass
class SessionFiles:
    """One `sessions/<k>`: `path` is relative to the run folder; `record` is None where it did not end.

    `clock`: times that requests showed; `recorded`: those of the transcripts and notes that it left.
    """

    path: str
    id: str = ""
    deliveries: list[tuple[Delivery, str]] = field(default_factory=list)
    turns: list[TurnRecord] = field(default_factory=list)
    calls: list[CallRecord] = field(default_factory=list)
    judgments: list[Judgment] = field(default_factory=list)
    record: SessionRecord | None = None
    clock: ClockSeen = field(default_factory=ClockSeen)
    recorded: list[str] = field(default_factory=list)


@dataclass
class LifeFiles:
    """One `lives/<life>`. `trace`: the lines of `TRACE_TYPES`; `result` is None where it broke off."""

    path: str
    about: Json
    trace: list[Json]
    last: Json | None
    sessions: list[SessionFiles]
    result: Json | None

    @property
    def zone(self) -> str:
        return str(self.about.get("scenario", {}).get("zone", "UTC"))


@dataclass
class RunFiles:
    """A run folder. `problems`: what is missing or damaged, a sentence each."""

    folder: Path
    config: Json
    config_text: str
    lock: Json
    result: Json | None
    lives: list[LifeFiles]
    problems: list[str]


def read_run(folder: Path) -> RunFiles:
    """Read all of a run that the report shows; requests and responses of calls are read and dropped.

    Raises:
        NoRunError: there is neither a result nor a life.
        OSError: the folder cannot be read.
    """
    return _Reader(folder).run()


class _Reader:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.problems: list[str] = []

    def run(self) -> RunFiles:
        names = {path.name for path in self.folder.iterdir()}
        if not names & {"result.json", "lives"}:
            raise NoRunError(f"{self.folder} has neither result.json nor lives/")
        result = self._json(self.folder / "result.json")
        if result is None:
            self.problems.append(
                "This run broke off: it has no result.json. What follows is what it had recorded by then."
            )
        text, config = self._config(self.folder / "config.toml")
        lock = self._json(self.folder / "lock.json") or {}
        lives = [self._life(path) for path in _folders(self.folder / "lives")]
        return RunFiles(self.folder, config, text, lock, result, lives, self.problems)

    def _life(self, path: Path) -> LifeFiles:
        result = self._json(path / "result.json")
        if result is None:
            self.problems.append(f"The life {path.name} broke off: it has no result.json.")
        trace: list[Json] = []
        last: Json | None = None
        for line in self._lines(path / "trace.jsonl", _trace_line):
            last = line
            if line["type"] in TRACE_TYPES:
                trace.append(line)
        return LifeFiles(
            path=self._name(path),
            about=self._json(path / "life.json") or {},
            trace=trace,
            last=last,
            sessions=[self._session(one) for one in _folders(path / "sessions")],
            result=result,
        )

    def _session(self, path: Path) -> SessionFiles:
        files = SessionFiles(self._name(path))
        for said in self._lines(path / "transcript.jsonl", _transcript_line):
            if isinstance(said, TurnRecord):
                files.turns.append(said)
            else:
                files.deliveries.append(said)
        for call in self._lines(path / "calls.jsonl", CallRecord.model_validate_json):
            files.clock.hear(call)
            files.calls.append(_without_bodies(call))
        files.judgments = list(self._lines(path / "judgments.jsonl", Judgment.model_validate_json))
        files.record = next(self._lines(path / "state.json", SessionRecord.model_validate_json), None)
        if files.record is not None:
            states = path.parent.parent / "state"
            files.recorded = times_recorded(states, files.record.before, files.record.after)
        known = [files.record, *files.turns, *(d for d, _ in files.deliveries), *files.calls]
        first = next((one for one in known if one is not None), None)
        if isinstance(first, SessionRecord):
            files.id = first.id
        elif first is not None:
            files.id = first.session
        else:
            files.id = path.name.partition("-")[2] or path.name
        return files

    def _lines(self, path: Path, parse: Callable[[bytes], T]) -> Iterator[T]:
        """The lines of a file that can be read; of the others it is said how many there were."""
        try:
            file = path.open("rb")
        except FileNotFoundError:
            return
        damaged = 0
        with file:
            for line in file:
                try:
                    yield parse(line)
                except (ValueError, ValidationError, KeyError, TypeError):
                    if line.endswith(b"\n"):
                        damaged += 1
                    else:
                        name = self._name(path)
                        self.problems.append(
                            f"The last line of {name} is torn: {len(line):,} bytes left out."
                        )
        if damaged:
            self.problems.append(f"{damaged:,} lines of {self._name(path)} cannot be read and are left out.")

    def _json(self, path: Path) -> Json | None:
        try:
            value = orjson.loads(path.read_bytes())
        except FileNotFoundError:
            return None
        except ValueError as error:
            self.problems.append(f"{self._name(path)} cannot be read: {error}")
            return None
        return value if isinstance(value, dict) else None

    def _config(self, path: Path) -> tuple[str, Json]:
        try:
            text = path.read_text(errors="backslashreplace")
            return text, tomllib.loads(text)
        except FileNotFoundError:
            return "", {}
        except ValueError as error:
            self.problems.append(f"{self._name(path)} cannot be read: {error}")
            return "", {}

    def _name(self, path: Path) -> str:
        return path.relative_to(self.folder).as_posix()


def _folders(path: Path) -> list[Path]:
    return sorted(one for one in path.iterdir() if one.is_dir()) if path.is_dir() else []


def _trace_line(line: bytes) -> Json:
    value: Json = orjson.loads(line)
    if not {"type", "sim_ns", "real_ns"} <= value.keys():
        raise ValueError("no line of a trace")
    return value


def _transcript_line(line: bytes) -> TurnRecord | tuple[Delivery, str]:
    value: Json = orjson.loads(line)
    if value["type"] == "turn":
        return TurnRecord.model_validate(value["turn"])
    return Delivery.model_validate(value["delivery"]), str(value["state"])


def _without_bodies(call: CallRecord) -> CallRecord:
    """A month of them is large, and the page does not show them."""
    return call.model_copy(update={"request": None, "response": None, "raw_usage": ()})
