"""Texts that say a time, and which instants each of them can mean, to its own precision."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta, timezone, tzinfo
from zoneinfo import ZoneInfo

DATE = r"\d{4}-\d\d-\d\d"
CLOCK = r"\d\d:\d\d(?::\d\d(?:[.,]\d{1,9})?)?(?: ?[AP]M)?(?: ?(?:Z|[+-]\d\d:?\d\d|[A-Z]{3,5})\b)?"
ISO = rf"(?<![\d-]){DATE}(?:[T ]{CLOCK})?(?![\d-])"
"""A date, or a date and a time, as programs write it; also what is searched for within a text."""

_ZONE = r"(?P<zone>Z|[+-]\d\d:?\d\d|[A-Z]{3,5})"
_TIME = r"(?P<h>\d{1,2}):(?P<m>\d\d)(?::(?P<s>\d\d)(?:[.,](?P<frac>\d{1,9}))?)?(?: ?(?P<half>[AP]M))?"
_FORMS = (
    re.compile(rf"(?P<y>\d{{4}})-(?P<mo>\d\d)-(?P<d>\d\d)(?:[T ]{_TIME}(?: ?{_ZONE})?)?"),
    re.compile(
        rf"[A-Z][a-z]{{2}} +(?P<name>[A-Z][a-z]{{2}}) +(?P<d>\d{{1,2}}) +{_TIME}(?: +{_ZONE})? +(?P<y>\d{{4}})"
    ),
    re.compile(
        rf"[A-Z][a-z]{{2}},? +(?P<d>\d{{1,2}}) +(?P<name>[A-Z][a-z]{{2}}) +(?P<y>\d{{4}}) +{_TIME}(?: +{_ZONE})?"
    ),
)
"""ISO 8601; what `date` says by itself; RFC 2822 and `date` in an English locale."""
_EPOCH = re.compile(r"(\d{10})(?:\.(\d{1,9}))?")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_LONGEST = 64

Interval = tuple[int, int]
"""Instants from the first to before the second, ns UTC."""


def meanings(text: str, zone: ZoneInfo) -> tuple[Interval, ...]:
    """The instants that a text can mean that is nothing but a time; none where it is something else.

    Without a zone of its own it is in `zone`. An hour that the clocks repeat has two meanings. A zone's
    abbreviation is known where it is UTC's, or `zone` has it at that time.
    """
    found = _form(text)
    try:
        return tuple(dict.fromkeys(_intervals(found, zone))) if found else ()
    except (ValueError, OverflowError):
        return ()


def is_time(text: str) -> bool:
    """Whether a text is nothing but a time, in whatever zone."""
    return _form(text) is not None


def has_zone(text: str) -> bool:
    """Whether a time says its own zone, so that it means the same everywhere."""
    found = _form(text)
    return found is not None and bool(found.re is _EPOCH or found["zone"])


def has_clock(text: str) -> bool:
    """Whether it says an hour, and not a day alone."""
    return ":" in text


def _form(text: str) -> re.Match[str] | None:
    text = text.strip()
    if len(text) > _LONGEST:
        return None
    return next((match for form in (*_FORMS, _EPOCH) if (match := form.fullmatch(text))), None)


def _intervals(found: re.Match[str], zone: ZoneInfo) -> Iterator[Interval]:
    said = found.groupdict()
    if found.re is _EPOCH:
        frac = found[2] or ""
        start = int(found[1]) * 10**9 + int(frac.ljust(9, "0"))
        yield start, start + 10 ** (9 - len(frac))
        return
    month = _MONTHS.index(said["name"]) + 1 if said.get("name") else int(said["mo"])
    day = date(int(said["y"]), month, int(said["d"]))
    midnight = datetime(day.year, day.month, day.day, tzinfo=zone)
    if said["h"] is None:
        yield _ns(midnight), _ns(midnight + timedelta(days=1))
        return
    hour = int(said["h"])
    if said["half"]:
        hour = hour % 12 + (12 if said["half"] == "PM" else 0)
    at = midnight.replace(hour=hour, minute=int(said["m"]), second=int(said["s"] or 0))
    frac = said["frac"] or ""
    unit = 60 * 10**9 if said["s"] is None else 10 ** (9 - len(frac))
    for one in _zoned(at, said["zone"], zone):
        start = _ns(one) + int(frac.ljust(9, "0"))
        yield start, start + unit


def _zoned(at: datetime, said: str | None, zone: ZoneInfo) -> list[datetime]:
    """The same reading of a clock in the zone that was said."""
    both = [at.replace(fold=fold) for fold in (0, 1)]
    if said is None:
        return both
    known: tzinfo | None = UTC if said in ("Z", "UTC", "GMT") else None
    if said[0] in "+-":
        away = timedelta(hours=int(said[1:3]), minutes=int(said[-2:]))
        known = timezone(away if said[0] == "+" else -away)
    if known is not None:
        return [at.replace(tzinfo=known)]
    return [one for one in both if one.tzname() == said]


def _ns(at: datetime) -> int:
    return round(at.timestamp()) * 10**9
