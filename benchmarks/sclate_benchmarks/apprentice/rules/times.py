"""How instants are to be written: a pattern taken from the examples in the rule text."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from sclate_benchmarks.apprentice.moment import Moment, parse_offset
from sclate_benchmarks.apprentice.rules.evidence import Statement, denied, majority

_ZONE = r"(?: ?(?:[+-]\d{2}(?::?\d{2})?(?!\d)|(?!AM\b|PM\b)[A-Z]{1,5}\b))"
_DAY = (
    r"(?:(?P<y>\d{4}|YYYY)(?P<s1>[-/._]?)(?P<m>\d{2}|MM)(?P<s2>[-/._]?)(?P<d>\d{2}|DD)"
    r"|(?P<d2>\d{2}|DD)(?P<s3>[-/._])(?P<m2>\d{2}|MM)(?P<s4>[-/._])(?P<y2>\d{4}|YYYY))"
)
_CLOCK = (
    r"(?:<[^<>\n]*(?:[Tt]ime|[Cc]lock|[Hh]our|[Hh][Hh]|iso|ISO)[^<>\n]*>"
    r"|(?P<h>\d{2}|HH|hh)(?P<s5>[:.h]?)(?P<mi>\d{2}|MM|mm)(?:(?P<s6>[:.]?)(?P<s>\d{2}|SS|ss))?(?P<f>[.,]\d+)?)"
)
INSTANT = re.compile(
    rf"(?<![\w/.-]){_DAY}(?P<sep>T|t| |_|, | at )(?P<clock>{_CLOCK})(?P<zone>{_ZONE})?(?![\w])"
)


@dataclass(frozen=True)
class TimeStyle:
    """`pattern` in strftime's letters, `zone` as it is to be written (empty where none is)."""

    pattern: str
    zone: str

    def write(self, moment: Moment) -> str:
        """A moment in this style; one with an offset of its own is converted, others are taken as local."""
        wanted = parse_offset(self.zone) if self.zone else None
        if moment.offset_min is not None and wanted is not None:
            moment = moment.shifted(wanted - moment.offset_min)
        parts = {
            "%Y": f"{moment.day.year:04d}", "%m": f"{moment.day.month:02d}", "%d": f"{moment.day.day:02d}",
            "%H": f"{moment.hour:02d}", "%M": f"{moment.minute:02d}", "%S": f"{moment.second:02d}",
            "%f": "000",
        }  # fmt: skip
        return re.sub(r"%[YmdHMSf]", lambda m: parts[m[0]], self.pattern) + self.zone

    def matches(self, text: str) -> bool:
        """Whether a text is an instant in this style; a fraction of a second may be there or not."""
        body = re.escape(self.pattern)
        for letter, digits in (("%Y", r"\d{4}"), ("%f", r"\d+"), *((f"%{c}", r"\d{2}") for c in "mdHMS")):
            body = body.replace(re.escape(letter), digits)
        fraction = "" if "%f" in self.pattern else r"(?:\.\d+)?"
        return bool(re.fullmatch(body + fraction + re.escape(self.zone), text.strip()))


def instants(text: str) -> Iterator[re.Match[str]]:
    """Every full instant (day and time) written in figures or as a placeholder pattern."""
    return INSTANT.finditer(text)


def style_of(match: re.Match[str]) -> TimeStyle:
    """The style that one written instant shows."""
    g = match.groupdict(default="")
    if g["y"]:
        day = f"%Y{g['s1']}%m{g['s2']}%d"
    else:
        day = f"%d{g['s3']}%m{g['s4']}%Y"
    if not g["h"]:
        clock = "%H:%M:%S"
    else:
        clock = f"%H{g['s5']}%M" + (f"{g['s6']}%S" if g["s"] else "") + (f"{g['f'][0]}%f" if g["f"] else "")
    return TimeStyle(day + g["sep"] + clock, g["zone"])


@lru_cache(maxsize=4096)
def _votes(s: Statement) -> tuple[tuple[TimeStyle, float], ...]:
    """Styles that a statement shows as wanted, with weights."""
    return tuple(
        (style_of(m), 1.0 if m["h"] and m["h"].isdigit() else 0.5)
        for text in ((s.text, *s.blocks) if s.obliges else ())
        for m in instants(text)
        if not denied(text, m.start(), m.end())
    )


def learn_time(said: Sequence[Statement]) -> TimeStyle | None:
    """The style of instants that the statements ask for."""
    return majority(v for s in said for v in _votes(s))
