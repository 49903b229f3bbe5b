"""The line to be appended after each task: which file, which layout, from its example."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from sclate_benchmarks.apprentice.moment import Moment
from sclate_benchmarks.apprentice.rules.evidence import Statement, denied, majority
from sclate_benchmarks.apprentice.rules.times import TimeStyle, instants, style_of

_SPAN = re.compile(r"`([^`\n]+)`|\"([^\"\n]+)\"")
_FILE = r"`?((?:[\w-]+/)*[\w-]+\.[a-z]{2,5})`?"
_WHERE = re.compile(
    rf"\b(?:append|add|write|record|appended|entry|entries|lines?)\b[^.;:]{{0,60}}?\b(?:to|in|into)\s+(?:the\s+)?(?:root\s+|workspace\s+)*{_FILE}"
    rf"|{_FILE}\s+(?:entry|entries|line)",
    re.I,
)
_SEPARATOR = re.compile(r"\s+([^\w\s\0<>\[\](){}\"'`]{1,3})\s+")
_LIMIT = re.compile(r"(\d{2,3})[ -]char", re.I)


@dataclass(frozen=True)
class LogStyle:
    """`layout` has {time}, {task} and {summary}; `own_time` is the example's; `limit` in characters."""

    file: str
    layout: str
    own_time: TimeStyle
    limit: int = 60

    def line(self, moment: Moment, style: TimeStyle | None, task: str, summary: str) -> str:
        """One entry."""
        return (
            self.layout.replace("{time}", (style or self.own_time).write(moment))
            .replace("{task}", task)
            .replace("{summary}", summary[: self.limit].rstrip())
        )

    def matches(self, text: str, style: TimeStyle | None) -> bool:
        """Whether a line is laid out so, its time included."""
        body = re.escape(self.layout)
        for name, pattern in (("time", r"(?P<time>\S.*?)"), ("task", r"[\w.-]+"), ("summary", r".+")):
            body = body.replace(re.escape("{" + name + "}"), pattern)
        m = re.fullmatch(body, text.strip())
        return bool(m and (style or self.own_time).matches(m["time"]))


def _layout(span: str) -> tuple[str, TimeStyle] | None:
    """The layout that an example line shows."""
    at = next(instants(span), None)
    if at is None:
        return None
    outside = span[: at.start()] + "\0" + span[at.end() :]
    found = _SEPARATOR.findall(outside)
    if not found:
        return None
    sep = max(found, key=found.count)
    joints = [m[0] for m in re.finditer(rf"\s+{re.escape(sep)}\s+", outside)]
    pieces = re.split(rf"\s+{re.escape(sep)}\s+", outside)
    free = [i for i, p in enumerate(pieces) if "\0" not in p and not re.fullmatch(r"[A-Z\W]+", p)]
    if not free:
        return None
    if len(free) > 1:
        about = [i for i in free if re.search(r"<[^>]*summ|<[^>]*desc|<[^>]*what", pieces[i])]
        spaced = [i for i in free if " " in pieces[i].strip("<>")]
        summary = (about or spaced or free)[-1]
        task = next(i for i in free if i != summary)
        pieces[task] = "{task}"
    else:
        summary = free[0]
    pieces[summary] = "{summary}"
    text = pieces[0]
    for joint, piece in zip(joints, pieces[1:], strict=True):
        text += joint + piece
    return text.replace("\0", "{time}").strip(), style_of(at)


@lru_cache(maxsize=4096)
def _layouts(s: Statement) -> tuple[tuple[str, TimeStyle], ...]:
    """Layouts that a statement shows as wanted."""
    if not re.search(r"\b(?:append|entry|entries|log|line)\b", s.text, re.I):
        return ()
    spans = [m[1] or m[2] for m in _SPAN.finditer(s.text) if not denied(s.text, m.start(), m.end())]
    spans += [line for b in s.blocks for line in b.splitlines()]
    return tuple(made for span in spans if (made := _layout(span)))


@lru_cache(maxsize=4096)
def _places(s: Statement) -> tuple[str, ...]:
    """Files that a statement wants lines added to."""
    return tuple(m[1] or m[2] for m in _WHERE.finditer(s.text))


def learn_log(said: Sequence[Statement]) -> LogStyle | None:
    """The log that the statements ask for; None unless both file and layout are known."""
    made = majority((v, 1.0) for s in said for v in _layouts(s))
    file = majority((v, 1.0) for s in said for v in _places(s))
    if made is None or file is None:
        return None
    limit = majority((int(m[1]), 1.0) for s in said for m in _LIMIT.finditer(s.text))
    return LogStyle(file, made[0], made[1], limit or 60)
