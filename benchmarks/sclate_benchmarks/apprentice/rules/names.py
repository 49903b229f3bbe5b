"""How new files are to be named: date part, its place, and the way words are joined, from examples."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from functools import lru_cache

from sclate_benchmarks.apprentice.rules.evidence import Statement, denied, majority

_TOKEN = re.compile(r"(?<![\w/.<>*-])(?:[\w.-]+/)*([\w<>*.\-]*[\w>*])\.([A-Za-z]{2,4}|\*)(?![\w/])")
_DATE = re.compile(
    r"(?P<y>20\d\d|YYYY|yyyy)(?P<s1>[-_.]?)(?P<m>\d\d|MM|mm)(?P<s2>[-_.]?)(?P<d>\d\d|DD|dd)(?!\d)"
    r"|(?<!\d)(?P<d2>\d\d|DD|dd)(?P<s3>[-_.]?)(?P<m2>\d\d|MM|mm)(?P<s4>[-_.]?)(?P<y2>20\d\d|YYYY|yyyy)(?!\d)"
)


@dataclass(frozen=True)
class NameShape:
    """Where the date stands, how it is written, and what joins it to the description."""

    day: str
    leads: bool
    joint: str


@dataclass(frozen=True)
class NameStyle:
    """A shape and how the words of the description are written."""

    shape: NameShape
    between: str
    case: str

    def write(self, words: Sequence[str], day: date, ext: str) -> str:
        """A file name for a description in words."""
        put = {"upper": str.upper, "title": str.capitalize}.get(self.case, str.lower)
        text = self.between.join(put(w) for w in words)
        parts = (
            [day.strftime(self.shape.day), text] if self.shape.leads else [text, day.strftime(self.shape.day)]
        )
        return f"{self.shape.joint.join(parts)}.{ext}"

    def matches(self, name: str, day: date | None = None) -> bool:
        """Whether a file name is in this style, and of `day` where given."""
        found = _shape_of(name.rpartition(".")[0])
        if found is None or found[0] != self.shape:
            return False
        text, written = found[1], found[2]
        if day is not None and written != day.strftime(self.shape.day):
            return False
        word = {"upper": r"[A-Z0-9]+", "title": r"[A-Z][a-z0-9]*"}.get(self.case, r"[a-z0-9]+")
        return bool(re.fullmatch(rf"{word}(?:{re.escape(self.between)}{word})*", text))


def _shape_of(stem: str) -> tuple[NameShape, str, str] | None:
    """Shape, description and written date of a file's stem."""
    m = _DATE.search(stem)
    if not m:
        return None
    if m["y"]:
        day = f"%Y{m['s1']}%m{m['s2']}%d"
    else:
        day = f"%d{m['s3']}%m{m['s4']}%Y"
    before, after = stem[: m.start()], stem[m.end() :]
    if before and after:
        return None
    text = after or before
    joint = re.match(r"[-_. ]*", text) if after else re.search(r"[-_. ]*$", text)
    assert joint is not None
    rest = text[joint.end() :] if after else text[: joint.start()]
    return NameShape(day, bool(after), joint[0]), rest, m[0]


def _words_style(text: str) -> tuple[str, str] | None:
    """Separator and case that a description of more than one word shows."""
    if not re.fullmatch(r"[A-Za-z0-9]+(?:[-_. ]?[A-Za-z0-9]+)*", text):
        return None
    seps = re.findall(r"[-_. ]", text)
    if seps:
        case = "lower" if text == text.lower() else "upper" if text == text.upper() else "title"
        return seps[0], case
    return ("", "title") if re.search(r"[a-z][A-Z]", text) else None


@lru_cache(maxsize=4096)
def _examples(s: Statement) -> tuple[tuple[NameShape, str], ...]:
    """Shapes and descriptions of the names that a statement shows as wanted."""
    if not s.obliges and not re.search(r"\bnam(?:e|ing)", s.text, re.I):
        return ()
    shown = (m for m in _TOKEN.finditer(s.text) if not denied(s.text, m.start(), m.end()))
    return tuple((found[0], found[1]) for m in shown if (found := _shape_of(m[1])))


def learn_name(said: Sequence[Statement]) -> NameStyle | None:
    """The style of file names that the statements ask for."""
    seen = [e for s in said for e in _examples(s)]
    shape = majority((s, 1.0) for s, _ in seen)
    if shape is None:
        return None
    style = majority((w, 1.0) for s, text in seen if s == shape and (w := _words_style(text)))
    between, case = style or (shape.joint, "lower")
    return NameStyle(shape, between, case)
