"""Which of the five rules a round depends on: what it cannot pass, or not be answered, without.

The data names the rules P1 to P5 in its texts and tags each day with those in force. A file round's follow
from its command, a choice round's from what its texts speak of; in both only rules in force on the day count.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from sclate_benchmarks.metaclaw.data import Choice, FileCheck, Round

TAGS = {
    "output_format": "P1",
    "file_naming": "P2",
    "field_completeness": "P3",
    "workflow": "P4",
    "completion_log": "P5",
}
"""The data's `preference_tags`. P1 instants, P2 file names, P3 metadata, P4 backups, P5 the work log."""

CHECKED = {
    "iso8601": ("P1",),
    "filename": ("P2",),
    "metadata": ("P1", "P3"),  # `created_at` is an instant
    "backup": ("P4",),
    "done_log": ("P1", "P5"),  # and so is what a log line starts with
}
"""The rules that a check's verdict hangs on."""

INLINE = {"P1": r"\+08:00", "P2": r"(?:20\d{6}|\[0-9\]\*)_"}
"""What commands look for by themselves: a pattern of instants, a glob for names that start with a date."""

SPOKEN = {
    "P1": r"\+08:00|ISO ?8601|timestamp|\btime (?:field|format|zone|string|value)",
    "P2": r"file ?nam|naming|snake_case|prefix|YYYYMMDD",
    "P3": r"\bmeta\b|metadata|front ?matter|created_at",
    "P4": r"\.bak\b|\bback(?:ed)?[ -]?ups?\b",
    "P5": r"done\.log",
}
"""The subjects of choice rounds, in any case."""


def rules_of(one: Round, tags: Sequence[str]) -> frozenset[str]:
    """The rules that a round depends on, of those in force; without a tag that is known, all are."""
    found: set[str] = set()
    if one.check is not None:
        found |= _of_command(one.check)
    if one.choice is not None:
        found |= _of_texts(one, one.choice)
    in_force = {TAGS[tag] for tag in tags if tag in TAGS}
    return frozenset(found & in_force if in_force else found)


def _of_command(check: FileCheck) -> set[str]:
    called = re.findall(r"check_(\w+)\.py", check.command)
    found = {rule for kind in called for rule in CHECKED.get(kind, ())}
    return found | {rule for rule, pattern in INLINE.items() if re.search(pattern, check.command)}


def _of_texts(one: Round, choice: Choice) -> set[str]:
    told = one.feedback
    text = "\n".join([one.question, *choice.options.values(), told.correct, *told.options.values()])
    found = {rule for rule, pattern in SPOKEN.items() if re.search(pattern, text, re.IGNORECASE)}
    found |= {f"P{n}" for n in re.findall(r"\bP([1-5])\b", text)}
    for first, last in re.findall(r"\bP([1-5]) ?[-\u2013\u2014] ?P([1-5])\b", text):
        found |= {f"P{n}" for n in range(int(first), int(last) + 1)}
    return found
