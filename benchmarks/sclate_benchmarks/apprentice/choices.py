"""Multiple choice: options are judged by the rules in view; where those are silent, by how they are put."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import date

from sclate_benchmarks.apprentice.fields import sentences
from sclate_benchmarks.apprentice.moment import Moment
from sclate_benchmarks.apprentice.rules import Rules
from sclate_benchmarks.apprentice.rules.metadata import read_pairs
from sclate_benchmarks.apprentice.values import is_time

_OPTION = re.compile(
    r"^(?:Group )?([A-H])[.):](?:[ \t]+|\n)(.*?)(?=^(?:Group )?[A-H][.):][ \t\n]|\n\n(?=[^\n]*bbox)|\Z)",
    re.M | re.S,
)
_BOX = re.compile(r"\\b(?:box|oxed)\b")
_FAULT = re.compile(
    r"\b(?:need\w* (?:to be )?(?:correct(?:ed|ion)|converted|modified|renam\w+|fixed|changed)"
    r"|violat\w+|non-?compliant|incorrect)\b",
    re.I,
)
_FILE = re.compile(r"(?<![\w/.])[\w-]+\.(?:json|md|py|csv|txt|log)\b")
_PAIR = re.compile(r"[\"'*]*\b([A-Za-z_][\w.]*)[\"'*]*\s*[:=]\s*[\"'*]*([^\"'\n,}]+)")
_FIGURES = re.compile(r"[\"']?(?:\d{2,4}[-/.]\d{1,2}\b|\d{8}(?:T|$))")
_CONVERTED = re.compile(r"(?:→|->)\s*[\"']?([^\"'\n(]+?)[\"']?\s*(?:\(|$)")
_LAX = re.compile(
    r"\b(?:not (?:required|needed|necessary)|no need|acceptable|interchangeabl\w+|can be (?:omitted|left|skipped)"
    r"|skip\w*|only needed|is sufficient|as long as|regardless of|missing|forgot)\b",
    re.I,
)
"""Words by which exceptions are claimed: where nothing else is known, an option that claims one is doubted."""


@dataclass(frozen=True)
class Choice:
    """A question with lettered options."""

    stem: str
    options: dict[str, str]


def parse_choice(question: str) -> Choice | None:
    """The options of a question that asks for a boxed answer; None for any other question."""
    if not _BOX.search(question):
        return None
    options = {m[1]: m[2].strip() for m in _OPTION.finditer(question)}
    first = _OPTION.search(question)
    return Choice(question[: first.start()] if first else question, options) if len(options) > 1 else None


def answer(question: str, rules: Rules, now: Moment) -> str | None:
    """The boxed answer, or None where the question is not a choice."""
    choice = parse_choice(question)
    if choice is None:
        return None
    ask = (
        " ".join(s for s in sentences(choice.stem) if "?" in s or re.search(r"\bwhich\b|\bselect\b", s, re.I))
        or choice.stem
    )
    wants_faults = bool(_FAULT.search(ask)) and not re.search(r"\bneed correction\?.*correct ones", ask)
    day = now.day if re.search(r"\btoday\b", choice.stem, re.I) else None
    verdicts = {letter: judge(text, rules, day) for letter, text in choice.options.items()}
    picked = []
    for letter, text in choice.options.items():
        good = verdicts[letter]
        if good is None:
            good = not _LAX.search(text) if not wants_faults else bool(_LAX.search(text))
            if good:
                picked.append(letter)
        elif good != wants_faults:
            picked.append(letter)
    return "\\bbox{" + ",".join(picked or list(choice.options)[:1]) + "}"


def judge(text: str, rules: Rules, day: date | None = None) -> bool | None:
    """Whether what an option shows keeps the rules (names: of `day`, where given); None where they are silent."""
    found: list[bool] = []
    found += _times(text, rules)
    found += _files(text, rules, day)
    found += _header(text, rules)
    found += _log(text, rules)
    return all(found) if found else None


def _times(text: str, rules: Rules) -> list[bool]:
    style = rules.time
    if style is None:
        return []
    out = []
    if m := _CONVERTED.search(text):
        return [style.matches(m[1])]
    for m in _PAIR.finditer(text):
        shown = m[2].strip().rstrip(".")
        if not is_time(m[1].lower()) and not _FIGURES.match(shown):
            continue
        first = shown.split(" ")[0]
        out.append(style.matches(shown) or style.matches(first))
    bare = re.sub(r"\s*\([^)]*\)", "", text).strip("\"' ")
    if not out and len(bare) < 40 and _FIGURES.match(bare) and not _FILE.search(bare):
        out.append(style.matches(bare))
    return out


def _files(text: str, rules: Rules, day: date | None) -> list[bool]:
    if rules.name is None:
        return []
    names = [m[0] for m in _FILE.finditer(text) if not (rules.log and m[0] == rules.log.file)]
    if not names or re.search(r"\bexist|\bmodif|\bupdat|\bback", text, re.I):
        return []
    return [rules.name.matches(n, day) for n in names]


def _header(text: str, rules: Rules) -> list[bool]:
    style = rules.header
    if style is None:
        return []
    pairs = read_pairs(text)
    pairs |= dict(re.findall(r"[\"'](\w+)[\"']\s*:\s*[\"']([^\"']*)[\"']", text))
    shown = [n for n in style.facts if n in pairs]
    if len(shown) < 2:
        return []
    form = style.forms.get("object")
    wrapped = form is None or not text.startswith('{"') or f'"{form.label}":' in text
    return [not style.missing(pairs), wrapped]


def _log(text: str, rules: Rules) -> list[bool]:
    if rules.log is None:
        return []
    mark = rules.log.layout.partition("{time}")[0].strip()
    found = re.search(r"\"([^\"]+ \S+ [^\"]+)\"\s*$", text)
    line = found[1] if found else text.split("\n")[0]
    return (
        [rules.log.matches(line, rules.time)]
        if mark.strip("[]").lower() in line[: len(mark) + 2].lower() and mark
        else []
    )
