"""Values for fields: instants written in the style known, literals given, enumerations, counts, lists."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sclate_benchmarks.apprentice.fields import Asked, Field, listed_things, plural
from sclate_benchmarks.apprentice.moment import Moment, find_clock, find_day, parse_moment
from sclate_benchmarks.apprentice.records import Found, find_records, key_values, value_for
from sclate_benchmarks.apprentice.rules import Rules
from sclate_benchmarks.apprentice.rules.times import instants
from sclate_benchmarks.apprentice.task import Task, extension

_TIME_WORDS = frozenset(
    [
        "at",
        "on",
        "time",
        "date",
        "datetime",
        "timestamp",
        "deadline",
        "start",
        "end",
        "due",
        "updated",
        "modified",
        "reviewed",
        "created",
        "ending",
        "starting",
        "completion",
        "until",
        "since",
        "from",
    ]
)
_COUNT_WORDS = frozenset(
    [
        "count",
        "total",
        "number",
        "num",
        "pct",
        "percent",
        "percentage",
        "rate",
        "ms",
        "points",
        "hours",
        "score",
        "velocity",
        "seconds",
        "minutes",
        "avg",
        "min",
        "max",
        "sum",
        "hrs",
        "value",
        "opened",
        "closed",
        "rps",
        "p50",
        "p95",
        "p99",
        "logged",
        "completed",
        "passed",
        "failed",
        "tests",
        "users",
        "sessions",
        "errors",
        "capacity",
        "items",
    ]
)
_NUMBERISH = re.compile(r"\b(?:number|count|sum|percentage|percent|total|integer|between 0)\b|^\d-\d$", re.I)
_QUOTED = re.compile(r"^[\"'“](.+?)[\"'”]$")
_ENUM = re.compile(r"^[\w-]+(?:/[\w-]+)+$")
_NAMED_COUNT = re.compile(r"\b(\d{1,2}) (?:\w+ ){0,3}(?:records?|items?|objects?|points?|entries|tasks?)\b")
_EVERY = re.compile(r"(\d+)[- ]minute intervals|\b(hourly) intervals", re.I)


def is_time(name: str) -> bool:
    """Whether a field's name tells of an instant."""
    words = name.split(".")[-1].split("_")
    return words[-1] in _TIME_WORDS or (words[0] in ("created", "updated", "last") and len(words) > 1)


@dataclass
class Context:
    """All that values may be drawn from."""

    task: Task
    rules: Rules
    now: Moment
    files: Mapping[str, str]
    listing: list[str] = field(default_factory=list)

    def instant(self, moment: Moment) -> str:
        """An instant as the rules want it, else in the apprentice's own way."""
        return self.rules.time.write(moment) if self.rules.time else moment.plain()

    def spoken(self, text: str, default: tuple[int, int] | None = None) -> str | None:
        """The instant that a text tells of, written; without a rule, one written in full stays as it is."""
        if self.rules.time is None and (m := next(instants(text), None)) and m["h"]:
            return m[0]
        moment = parse_moment(text, self.now, default)
        return self.instant(moment) if moment else None

    def records(self) -> list[Found]:
        """Records of the first input that lists any."""
        for path in self.task.inputs:
            if path in self.files and (found := find_records(path, self.files[path])):
                return found
        return []

    def facts(self) -> Found:
        """Single facts told by the inputs."""
        out: Found = {}
        for path in self.task.inputs:
            if path in self.files and extension(path) not in ("json", "csv"):
                out |= {k: v for k, v in key_values(self.files[path]).items() if k not in out}
        return out


def literal(text: str) -> Any:
    """A value as a person writes it: number, truth, quoted text."""
    text = text.strip().strip("`")
    if m := _QUOTED.match(text):
        return m[1]
    if re.fullmatch(r"-?\d+", text):
        return int(text)
    if re.fullmatch(r"-?\d*\.\d+", text):
        return float(text)
    return {"true": True, "false": False, "null": None}.get(text.lower(), text)


def value(ctx: Context, f: Field, source: Found | None = None, at: int = 0) -> Any:
    """The value of one field; `source` is the record it belongs to, `at` its place in a list."""
    if f.children:
        return _things(ctx, f, source) if f.many else {c.name: value(ctx, c, source, at) for c in f.children}
    if (
        source is not None
        and not f.note
        and not is_time(f.name)
        and (known := value_for(source, f)) is not None
    ):
        return literal(known.split("\n")[0])
    if re.search(r"\bnull\b", f.note) and at > 0:
        return None
    if f.many:
        return several(ctx, f)
    if is_time(f.name) or (find_clock(f.note) and find_day(f.note, ctx.now.day)):
        return when(ctx, f, source, at)
    note = f.note.strip()
    if _QUOTED.match(note) or re.fullmatch(r"-?\d+(?:\.\d+)?|true|false", note):
        return literal(note)
    if _ENUM.match(note):
        options = note.split("/")
        return options[at % len(options)]
    if re.search(r"\bbool(?:ean)?\b", note):
        return True
    if re.match(r"[A-Z]\w*(?: [\w-]+)*$", note):
        return note
    if _NUMBERISH.search(note) or set(f.name.split("_")) & _COUNT_WORDS:
        return _count(ctx, f, at)
    if source is None and (known := ctx.facts().get(f.name)):
        return literal(known)
    if _EVERY.search(note):
        return times_between(ctx, note)
    if f.name.endswith("_id") or f.name == "id":
        return f"{(ctx.task.topic[0] if ctx.task.topic else 'item')[:8]}-{at + 1}"
    return f"{f.name.replace('_', ' ').capitalize()} of {' '.join(ctx.task.topic)}"


def when(ctx: Context, f: Field, source: Found | None = None, at: int = 0) -> str:
    """The instant of a field: from what is said of it, from its record, else now."""
    note = f.note
    if source is not None and not (find_clock(note) and find_day(note, ctx.now.day)):
        text = value_for(source, f) or source.get("text", "")
        hour = find_clock(note)
        if written := ctx.spoken(text, (hour[0], hour[1]) if hour else (18, 0)):
            return written
    if at and find_day(note, ctx.now.day) is None and "current" not in note:
        return ctx.instant(ctx.now.shifted(60 * at))
    return ctx.spoken(note) or ctx.instant(ctx.now)


def _count(ctx: Context, f: Field, at: int) -> int | float:
    found = ctx.records()
    words = f.name.split("_")
    for name in (f.name, *(k for k in ctx.facts() if set(words) <= set(k.split("_")))):
        m = re.match(r"-?\d+(?:\.\d+)?", ctx.facts().get(name, ""))
        if m:
            return float(m[0]) if "." in m[0] else int(m[0])
    if words[0] in ("total", "count") or words[-1] in ("count", "total"):
        return len(found) or _lines(ctx) or 5
    if "rate" in words:
        return round(0.01 + at * 0.002, 4)
    numbers = [
        float(v)
        for r in found
        for k, v in r.items()
        if set(k.split("_")) & set(words) and re.fullmatch(r"\d+(?:\.\d+)?", v)
    ]
    return round(sum(numbers) / len(numbers), 2) if numbers else 10 + at


def _lines(ctx: Context) -> int:
    return sum(len(ctx.files[p].splitlines()) for p in ctx.task.inputs if p in ctx.files)


def several(ctx: Context, f: Field) -> list[Any]:
    """A plain list: instants at intervals, names out of the inputs, else a few lines on the topic."""
    if _EVERY.search(f.note):
        return times_between(ctx, f.note)
    if re.search(r"\bdates?\b", f.note):
        return [ctx.instant(ctx.now.shifted(1440 * i)) for i in range(5)]
    facts = ctx.facts()
    if told := next(
        (v for k, v in facts.items() if k == f.name or set(k.split("_")) & set(f.name.split("_"))), None
    ):
        return [p.strip() for p in re.split(r",\s*", re.sub(r"\([^)]*\)", "", told)) if p.strip()]
    titles = [r["title"] for r in ctx.records() if r.get("title")]
    if titles:
        return titles[:8]
    if "address" in f.note:
        return ["team@example.org"]
    return [f"{f.name.replace('_', ' ').capitalize()}: {w}" for w in ctx.task.topic[:3]]


def times_between(ctx: Context, text: str) -> list[str]:
    """Instants from one time of day to another at the interval that a text names."""
    m = _EVERY.search(text)
    clocks = re.findall(r"\b(\d{1,2}):(\d{2})\b", text)
    step = int(m[1]) if m and m[1] else 60
    if len(clocks) < 2:
        return [ctx.instant(ctx.now)]
    start, end = (int(h) * 60 + int(mi) for h, mi in clocks[:2])
    first = Moment(ctx.now.day)
    return [ctx.instant(first.shifted(t)) for t in range(start, end + 1, step)]


def _things(ctx: Context, f: Field, source: Found | None) -> list[dict[str, Any]]:
    """A list of things with fields of their own: listed in the note, found in the inputs, else a few."""
    told = [line for line in f.note.split("\n")[1:] if line.strip()]
    if told:
        return [_told(ctx, list(f.children), line, i) for i, line in enumerate(told)]
    if source is None and (found := ctx.records()):
        return [{c.name: value(ctx, c, r, i) for c in f.children} for i, r in enumerate(found[:20])]
    m = re.search(r"\bat least (\d+)", f.note) or _NAMED_COUNT.search(f.note)
    return [{c.name: value(ctx, c, None, i) for c in f.children} for i in range(int(m[1]) if m else 3)]


def _told(ctx: Context, children: list[Field], line: str, at: int) -> dict[str, Any]:
    """One thing that the request itself lists in a line of words."""
    paren = re.search(r"\(([^)]*)\)", line)
    head, _, tail = line.partition(": ")
    title = re.sub(r"\s*\([^)]*\)", "", tail or line).strip()
    ident = re.match(r"[\w.]*[A-Za-z][\w.-]*\d[\w.-]*", line)
    out: dict[str, Any] = {}
    plain_given = False
    for c in children:
        words = set(c.name.split("_"))
        if re.search(r"\bnull\b", c.note):
            out[c.name] = None
        elif is_time(c.name):
            hour = find_clock(c.note)
            if "current" in c.note and hour:
                out[c.name] = ctx.spoken(c.note)
            else:
                out[c.name] = ctx.spoken(line, (hour[0], hour[1]) if hour else None) or when(ctx, c, None, at)
        elif ident and (words & {"id", "version"} or c.name.endswith("_id")):
            out[c.name] = ident[0]
        elif not plain_given and not c.note:
            out[c.name], plain_given = (title if tail or not paren else head.split(" (")[0]), True
        elif paren and not c.note:
            out[c.name] = (
                [p.strip() for p in re.split(r",| and ", paren[1])] if c.name.endswith("s") else paren[1]
            )
        else:
            out[c.name] = value(ctx, c, None, at)
    return out


def compose(ctx: Context) -> dict[str, Any]:
    """The whole content of a structured file."""
    asked: Asked = ctx.task.asked
    out: dict[str, Any] = {}
    listed = [f for f in asked.fields if f.many and not f.children]
    things = listed_things(ctx.task.question) if asked.each else []
    for f in asked.fields:
        if asked.each and listed and f is listed[-1]:
            out[f.name] = each_thing(ctx, asked.each, things, f.note)
        else:
            out[f.name] = value(ctx, f)
    if asked.each and not listed:
        noun = re.sub(r"\s+(?:entry|entries|records?|objects?)$", "", asked.noun)
        out[plural(noun or "item")] = each_thing(ctx, asked.each, things, ctx.task.question)
    if not out:
        out = _summary(ctx)
    return out


def each_thing(ctx: Context, fields: list[Field], things: list[str], hint: str) -> list[dict[str, Any]]:
    """A list of things that the request describes by `each`."""
    if things:
        return [_told(ctx, fields, line, i) for i, line in enumerate(things)]
    if found := ctx.records():
        return [{c.name: value(ctx, c, r, i) for c in fields} for i, r in enumerate(found[:20])]
    return _things(ctx, Field("", hint, True, tuple(fields)), None)


def _summary(ctx: Context) -> dict[str, Any]:
    """Where no field is asked for: what the inputs hold, told in numbers and names."""
    found = ctx.records()
    out: dict[str, Any] = {"title": " ".join(ctx.task.topic).capitalize(), "items_seen": len(found)}
    numbers: dict[str, list[float]] = {}
    for r in found:
        for k, v in r.items():
            if re.fullmatch(r"-?\d+(?:\.\d+)?", v):
                numbers.setdefault(k, []).append(float(v))
    if numbers:
        out["averages"] = {k: round(sum(v) / len(v), 3) for k, v in numbers.items()}
        out["sums"] = {k: round(sum(v), 3) for k, v in numbers.items()}
    out["items"] = found[:50] or [{"name": w, "notes": f"Covers {w}"} for w in ctx.task.topic]
    return out
