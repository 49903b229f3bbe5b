"""A wall-clock instant as people write it, and the parser of such writing.

The apprentice never asks a clock: `today` and `now` come from the request.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from datetime import date, timedelta

MONTHS = [
    "january",
    "february",
    "march",
    "april",
    "may",
    "june",
    "july",
    "august",
    "september",
    "october",
    "november",
    "december",
]
WEEKDAYS = ["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"]
_NUMBERS = [
    "zero",
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "eleven",
    "twelve",
]
_MONTH = r"(?P<mon>" + "|".join(f"{m[:3]}(?:{m[3:]})?" for m in MONTHS) + r")\.?"
_WEEKDAY = "(?P<wd>" + "|".join(WEEKDAYS) + ")"

_ISO_DATE = re.compile(r"\b(?P<y>\d{4})[-/.](?P<m>\d{1,2})[-/.](?P<d>\d{1,2})(?!\d)")
_DAY_FIRST = re.compile(r"\b(?P<d>\d{1,2})[-/. ]" + _MONTH + r"[-/. ,]+(?P<y>\d{4})", re.I)
_MONTH_FIRST = re.compile(
    r"\b" + _MONTH + r"\s+(?P<d>\d{1,2})(?:st|nd|rd|th)?\b(?!:)(?:,?\s+(?P<y>\d{4}))?", re.I
)
_NEXT_WEEKDAY = re.compile(r"\b(?:(?P<rel>this|next|last|coming)\s+)?" + _WEEKDAY + r"\b", re.I)
_AGO = re.compile(r"\b(?P<n>\d+|" + "|".join(_NUMBERS) + r") (?P<unit>day|week)s? ago\b", re.I)
_CLOCK = re.compile(
    r"(?:(?<=\dT)|(?<![\w:.]))(?P<h>\d{1,2}):(?P<mi>\d{2})(?::(?P<s>\d{2}))?(?:\.\d+)?\s*(?P<ap>[ap]\.?m\b)?"
    r"(?P<off>\s?(?:Z\b|[+-]\d{2}:?\d{2}\b))?",
    re.I,
)
_HOUR = re.compile(r"\b(?P<h>\d{1,2})\s*(?P<ap>am|pm)\b", re.I)
_WORDS = re.compile(
    r"\b(?P<h>"
    + "|".join(_NUMBERS[1:])
    + r")(?: (?P<mi>fifteen|thirty|forty-five))?\b(?= in the| this|\s*$|[.,;)\n])",
    re.I,
)
_PARTS = (
    (re.compile(r"\bmidnight\b", re.I), (0, 0)),
    (re.compile(r"\bnoon\b", re.I), (12, 0)),
    (re.compile(r"\b(?:eod|end of (?:the )?(?:day|business)|close of business)\b", re.I), (18, 0)),
    (re.compile(r"\bmorning\b", re.I), (9, 0)),
    (re.compile(r"\bafternoon\b", re.I), (14, 0)),
    (re.compile(r"\b(?:evening|night|tonight)\b", re.I), (18, 0)),
)
_WORD_MINUTES = {"fifteen": 15, "thirty": 30, "forty-five": 45}


@dataclass(frozen=True)
class Moment:
    """A day and a time of day; `offset_min` only where the writing itself gave an offset from UTC."""

    day: date
    hour: int = 0
    minute: int = 0
    second: int = 0
    offset_min: int | None = None

    def shifted(self, minutes: int) -> Moment:
        """The same instant `minutes` later on the wall clock."""
        total = self.hour * 60 + self.minute + minutes
        return replace(
            self,
            day=self.day + timedelta(days=total // 1440),
            hour=total % 1440 // 60,
            minute=total % 60,
        )

    def plain(self) -> str:
        """The apprentice's own habit, where no rule says otherwise."""
        return f"{self.day.isoformat()} {self.hour:02d}:{self.minute:02d}"


def month_number(name: str) -> int:
    """1..12 for a month's name or its first three letters."""
    return next(i for i, m in enumerate(MONTHS, 1) if m[:3] == name[:3].lower())


def weekday_of(today: date, rel: str, name: str) -> date:
    """The day meant by `this|next|last WEEKDAY`; a bare or `this` weekday is that of the current week."""
    monday = today - timedelta(days=today.weekday())
    day = monday + timedelta(days=WEEKDAYS.index(name.lower()))
    if rel == "next":
        return day + timedelta(days=7)
    if rel == "last":
        return day - timedelta(days=7) if day >= today or today.weekday() < 5 else day
    return day


def _safe(y: int, m: int, d: int) -> date | None:
    try:
        return date(y, m, d)
    except ValueError:
        return None


def find_day(text: str, today: date) -> date | None:
    """The first day that `text` names, written out or relative to `today`."""
    for regex in (_ISO_DATE, _DAY_FIRST, _MONTH_FIRST):
        if m := regex.search(text):
            month = int(m["m"]) if "m" in m.re.groupindex else month_number(m["mon"])
            if day := _safe(int(m["y"] or today.year), month, int(m["d"])):
                return day
    low = text.lower()
    if m := _AGO.search(low):
        n = int(m["n"]) if m["n"].isdigit() else _NUMBERS.index(m["n"])
        return today - timedelta(days=n * (7 if m["unit"] == "week" else 1))
    if "yesterday" in low or "last night" in low:
        return today - timedelta(days=1)
    if "tomorrow" in low:
        return today + timedelta(days=1)
    if m := _NEXT_WEEKDAY.search(low):
        return weekday_of(today, m["rel"] or "", m["wd"])
    friday = today + timedelta(days=4 - today.weekday())
    if re.search(r"\bnext week\b", low):
        return friday + timedelta(days=7)
    if re.search(r"\bend of (?:this |the )?week\b|\bthis week\b", low):
        return friday
    if re.search(r"\btoday\b|\bnow\b|\bcurrent\b|\bthis (?:morning|afternoon|evening)\b", low):
        return today
    return None


def find_clock(text: str) -> tuple[int, int, int, int | None] | None:
    """The first time of day in `text`: hour, minute, second, offset from UTC in minutes if written."""
    if m := _CLOCK.search(text):
        hour = _twelve(int(m["h"]), m["ap"])
        if hour < 24 and int(m["mi"]) < 60:
            return hour, int(m["mi"]), int(m["s"] or 0), parse_offset(m["off"]) if m["off"] else None
    if m := _HOUR.search(text):
        return _twelve(int(m["h"]), m["ap"]), 0, 0, None
    for regex, (h, mi) in _PARTS[:3]:
        if regex.search(text):
            return h, mi, 0, None
    if m := _WORDS.search(text):
        hour = _NUMBERS.index(m["h"].lower())
        late = re.search(r"afternoon|evening", text, re.I) and hour < 12
        return hour + (12 if late else 0), _WORD_MINUTES.get((m["mi"] or "").lower(), 0), 0, None
    for regex, (h, mi) in _PARTS[3:]:
        if regex.search(text):
            return h, mi, 0, None
    return None


def _twelve(hour: int, half: str | None) -> int:
    if not half:
        return hour
    return hour % 12 + (12 if half[0].lower() == "p" else 0)


def parse_offset(text: str) -> int | None:
    """Minutes east of UTC for `Z`, `UTC`, `+hh:mm`, `+hhmm`, `+hh`; None for any other zone name."""
    text = text.strip()
    if text.upper() in ("Z", "UTC", "GMT"):
        return 0
    m = re.fullmatch(r"([+-])(\d{2}):?(\d{2})?", text)
    if not m:
        return None
    minutes = int(m[2]) * 60 + int(m[3] or 0)
    return -minutes if m[1] == "-" else minutes


def parse_moment(
    text: str, now: Moment, default: tuple[int, int] | None = None, *, loose: bool = False
) -> Moment | None:
    """The instant that `text` describes, or None.

    A time alone is today's; a day alone takes `default` (hour, minute), else midnight, unless `loose`
    is off and nothing at all was found. "Current" and "now" without a time are `now`.
    """
    day, clock = find_day(text, now.day), find_clock(text)
    if day is None and clock is None:
        return now if loose else None
    if clock is None and day == now.day and re.search(r"\bnow\b|\bcurrent\b", text, re.I):
        return now
    if clock is None:
        h, mi = default or (0, 0)
        return Moment(day or now.day, h, mi)
    return Moment(day or now.day, clock[0], clock[1], clock[2], clock[3])
