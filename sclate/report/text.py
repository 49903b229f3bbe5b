"""Text for the page: what came from outside is shown and not obeyed, numbers are written for people."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from markupsafe import escape

LIMITS = (20_000, 8_000, 4_000, 2_000, 1_000, 500, 250, 120)
"""How many characters of a text are shown, from generous to mean; the first that keeps the page small."""


def shown(text: str) -> str:
    """Control, bidi and other invisible characters as `\\x1b`, `\\u202e`; line ends and tabs stay."""
    if text.isprintable():
        return text
    return "".join(c if _visible(c) else c.encode("unicode_escape").decode() for c in text)


def _visible(c: str) -> bool:
    return c.isprintable() or c in "\n\t" or unicodedata.category(c) == "Zs"


@dataclass(frozen=True)
class Passage:
    """A text from the run, and the file of the run folder that has the whole of it."""

    text: str
    where: str

    def cut(self, limit: int) -> str:
        return shown(self.text[:limit])

    def note(self, limit: int) -> str:
        """What to say where it was cut, else nothing."""
        if len(self.text) <= limit:
            return ""
        return f"{limit:,} of {len(self.text):,} characters are shown; the whole is in {shown(self.where)}"


def choose_limit(passages: Iterable[Passage], budget_bytes: int) -> int:
    """The most characters a text may have on the page, so that all together stay below the budget."""
    kept = list(passages)
    for limit in LIMITS:
        if sum(len(escape(p.cut(limit)).encode()) for p in kept) <= budget_bytes:
            return limit
    return LIMITS[-1]


def one_line(text: str, width: int = 140) -> str:
    """The beginning of a text, on one line."""
    flat = " ".join(shown(text[: width * 4]).split())
    return flat if len(flat) <= width else flat[: width - 1] + "…"


def duration(seconds: float | None) -> str:
    """`85 ms`, `4.2 s`, `3 min 5 s`, `2 h 10 min`, `39.2 days`."""
    if seconds is None:
        return "–"
    if seconds < 0.9995:
        return f"{seconds * 1e3:.0f} ms"
    if seconds < 60:
        return f"{seconds:.0f} s" if float(seconds).is_integer() else f"{seconds:.1f} s"
    if seconds < 3600:
        return _two(int(seconds // 60), "min", int(seconds % 60), "s")
    if seconds < 48 * 3600:
        return _two(int(seconds // 3600), "h", int(seconds % 3600 // 60), "min")
    return f"{seconds / 86_400:.1f} days"


def _two(large: int, unit: str, small: int, subunit: str) -> str:
    return f"{large} {unit} {small} {subunit}" if small else f"{large} {unit}"


def number(value: float | None) -> str:
    """A figure; a missing one is said to be missing and is not 0."""
    if value is None:
        return "missing"
    if float(value).is_integer() and abs(value) < 1e15:
        return f"{int(value):,}"
    return f"{value:.4f}" if abs(value) < 100 else f"{value:,.1f}"


def zone_of(name: str) -> ZoneInfo:
    """A zone by its IANA name; UTC where there is none of that name."""
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return ZoneInfo("UTC")


def local(sim_ns: int, zone: ZoneInfo) -> datetime:
    """A simulated instant in the scenario's zone, to the microsecond."""
    return datetime.fromtimestamp(sim_ns / 1e9, zone)


def instant(sim_ns: int, zone: ZoneInfo) -> str:
    """A simulated instant as a person reads it."""
    return local(sim_ns, zone).strftime("%a %Y-%m-%d %H:%M:%S")
