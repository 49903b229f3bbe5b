"""Lists of fields in a request's own words: names, what is said of each, and what nests in it."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

_SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[A-Z])|\n{2,}")
_START = re.compile(
    r":\s+|\b(?:includ(?:e|es|ing)|contain(?:s|ing)?|record(?:ing)?|with|fields?|columns|having|have|add)\b:?\s+",
    re.I,
)
_NAME = re.compile(r"(?:the |an? |its |each )?`?([a-z]\w*(?:\.[a-z_]\w*)*)`?")
_EACH = re.compile(
    r"\b(?:each|every)\s+((?:[a-z]+\s+){0,2}?[a-z]+)\s*(?=,|:|\b(?:should|needs?|must|has|to)\b|$)",
    re.I,
)
_TAIL = re.compile(
    r"\b(\w+)\s+(?:array|list)\b([^()]*?)\beach\b(?:[^,()]*?\b(?:with|has|have|having|contain\w*|includ\w+))?\s+(.*)$",
    re.S,
)
_NESTED = re.compile(
    r"^(?:an? )?(?:array|list|objects?|string array)?[\s,]*(?:of [^,{]*?,\s*)?"
    r"(?:where\s+)?(?:each\b(?:\s\w+){0,2}?\s+)?"
    r"(?:with|has|having|contain\w*|includ\w*)\s+(?:its |their )?(.+?)(?:\s+for each\b.*|\s+fields?)?:?$",
    re.S,
)
_INLINE_PAIR = re.compile(r"\b(\w+_\w+) with (\w+) and (\w+) timestamps")
_INLINE_OBJECT = re.compile(r"\b(\w+_\w+) object with ([^()]+?)\.?$")
_PAIR = re.compile(r"^(?:with )?(\w+) and (\w+) (?:timestamps?|times|dates)$")
_BULLET = re.compile(r"^(\s*)(?:[-*]|\d+\.)\s+(.+)$", re.M)
_LISTLIKE = re.compile(r"\b(?:array|list|each)\b", re.I)


@dataclass(frozen=True)
class Field:
    """`note` is what the request says of the field; `many` tells a list."""

    name: str
    note: str = ""
    many: bool = False
    children: tuple[Field, ...] = ()


@dataclass
class Asked:
    """Fields of the whole file, and of the things it lists (`noun` is what each is called)."""

    fields: list[Field] = field(default_factory=list)
    each: list[Field] = field(default_factory=list)
    noun: str = ""


def sentences(text: str) -> list[str]:
    """Sentences of a request; points inside parentheses and versions do not end one."""
    out: list[str] = []
    for piece in _SENTENCE.split(text):
        if out and out[-1].count("(") > out[-1].count(")"):
            out[-1] += " " + piece
        else:
            out.append(piece)
    return [s.strip() for s in out if s.strip()]


def split_items(text: str) -> list[str]:
    """Parts of an enumeration: at commas and `and`, outside of brackets and quotes."""
    parts, depth, start, i = [], 0, 0, 0
    while i < len(text):
        c = text[i]
        if c in "([{":
            depth += 1
        elif c in ")]}":
            depth = max(0, depth - 1)
        elif depth == 0 and c in ",;":
            parts.append(text[start:i])
            start = i + 1
        elif depth == 0 and text.startswith(" and ", i):
            parts.append(text[start:i])
            start = i + 5
            i += 4
        i += 1
    parts.append(text[start:])
    return [re.sub(r"^(?:and|as well as|plus)\s+", "", p.strip(" .\n")) for p in parts if p.strip(" .\n")]


def slug(text: str) -> str:
    """Words joined to an identifier."""
    return "_".join(re.findall(r"[a-z0-9]+", text.lower()))


def parse_field(item: str, *, phrases: bool = False) -> Field | None:
    """One item of an enumeration as a field; with `phrases`, several plain words make a name too."""
    m = _NAME.match(item)
    if not m:
        return None
    name, rest = m[1], item[m.end() :].strip()
    listed = re.match(r"(array|list|objects?|fields?)\b\s*", rest)
    if listed:
        rest = rest[listed.end() :]
    note = rest
    if p := re.match(r"\((.*)\)\s*(\w*)", rest, re.S):
        note = p[1]
    elif rest.startswith(":"):
        if "_" not in name:
            return None
        note = rest[1:].strip()
    elif rest and not listed and "_" not in name:
        if not phrases:
            return None
        words = re.sub(r"^(?:the|an?|its|each|their)\s+", "", re.sub(r"\(.*", "", item)).strip()
        p = re.search(r"\((.*)\)", item)
        return Field(slug(words), p[1] if p else "")
    children = nested(note)
    many = bool(listed and listed[1] in ("array", "list")) or bool(
        re.match(r"(?:an? )?(?:[\w-]+ )?(?:array|list)\b|each\b", note)
    )
    many = many or bool(children and re.search(r"\bfor each\b", note))
    return Field(name, note.strip(), many, tuple(children))


def nested(note: str) -> list[Field]:
    """Fields that a note says lie inside."""
    if m := re.search(r"\{([^{}]*)\}", note):
        return [f for i in split_items(m[1]) if (f := parse_field(i))]
    if m := _PAIR.match(note.strip()):
        return [Field(m[1], "timestamp"), Field(m[2], "timestamp")]
    if m := _NESTED.match(note.strip()):
        inner = [f for i in split_items(m[1]) if (f := parse_field(i, phrases=True))]
        if inner and (_LISTLIKE.search(note) or all("_" in f.name or len(f.name) > 1 for f in inner)):
            return inner
        return []
    parts = split_items(note)
    if len(parts) > 1 and all(re.fullmatch(r"[a-z]\w*", p) for p in parts):
        return [Field(p) for p in parts]
    return []


def _enumeration(text: str) -> list[Field]:
    """Fields of the enumeration that starts at a text's beginning."""
    fields: list[Field] = []
    text = _INLINE_PAIR.sub(r"\1 (\2 and \3 timestamps)", _INLINE_OBJECT.sub(r"\1 (with \2)", text))
    if m := _TAIL.search(text):
        before = text[: m.start()].rstrip(" ,")
        fields = (
            _enumeration(re.sub(r"(?:,?\s*and)?\s*(?:an?|the)?$", "", before))
            if before.strip(" ,and")
            else []
        )
        inner = tuple(
            f for i in split_items(m[3]) if (f := parse_field(re.sub(r" fields?$", "", i), phrases=True))
        )
        return [*fields, Field(m[1], m[2].strip(), True, inner)]
    for item in split_items(re.sub(r"\s+fields?(?: for each.*)?$", "", text.strip(" .:"))):
        f = parse_field(item)
        if f is None:
            if not fields:
                return []
            continue
        fields.append(f)
    return fields


def _rank(found: list[Field]) -> int:
    return sum(3 if "_" in f.name or f.note else 1 for f in found)


def _best(sentence: str) -> tuple[list[Field], str]:
    """The richest enumeration of a sentence, and the words before it."""
    best: list[Field] = []
    lead = ""
    for m in _START.finditer(sentence):
        if sentence[: m.start()].count("(") > sentence[: m.start()].count(")"):
            continue
        found = _enumeration(sentence[m.end() :].split("\n")[0])
        if len(found) == 1 and "_" not in found[0].name and not found[0].note:
            continue
        if _rank(found) > _rank(best):
            best, lead = found, sentence[: m.start()]
    return best, lead


def parse_fields(question: str) -> Asked:
    """All fields that a request asks for."""
    asked = Asked()
    bullets = _bullet_fields(question)
    text = question
    if bullets:
        asked.fields += bullets
        text = _BULLET.sub("", question)
    for sentence in sentences(text):
        found, lead = _best(sentence)
        if not found:
            continue
        noun = _EACH.search(lead)
        inline = re.search(r"\b((?:\w+ )?\w+),? each$", lead.strip())
        if noun or inline:
            asked.noun = asked.noun or (noun[1] if noun else inline[1] if inline else "").strip()
            asked.each += [f for f in found if f.name not in {e.name for e in asked.each}]
        else:
            asked.fields += [f for f in found if f.name not in {e.name for e in asked.fields}]
    return asked


def _bullet_fields(question: str) -> list[Field]:
    """Fields given one a line as `- name: what`; bullets of other content are not fields."""
    lines = [(len(m[1]), m[2]) for m in _BULLET.finditer(question)]
    if not lines or not all(
        re.match(r"`?[a-z]\w*`?:", t) for ind, t in lines if ind == min(i for i, _ in lines)
    ):
        return []
    base = min(i for i, _ in lines)
    out: list[Field] = []
    for indent, text in lines:
        if indent == base:
            name, _, note = text.partition(":")
            note = note.strip()
            inner = tuple(
                nested(re.sub(r"^.*?,\s*(?=each\b)", "array, ", note)) if _LISTLIKE.search(note) else ()
            )
            out.append(Field(name.strip("` "), note, bool(re.search(r"\barray|\blist", note)), inner))
        elif out:
            last = out[-1]
            out[-1] = Field(last.name, f"{last.note}\n{text}", last.many, last.children)
    return out


def plural(noun: str) -> str:
    """The key under which things called `noun` are listed."""
    base = slug(noun)
    if base.endswith("y") and base[-2:-1] not in "aeiou":
        return base[:-1] + "ies"
    return base if base.endswith("s") else base + ("es" if base.endswith(("ch", "sh", "x")) else "s")


def listed_things(question: str) -> list[str]:
    """Things a request lists itself: bullets, numbered lines, or `v1 (..), v2 (..)` after a colon."""
    lines = [m[2].strip() for m in _BULLET.finditer(question)]
    if lines:
        return lines
    for sentence in sentences(question):
        m = re.search(r":\s+(.+)$", sentence, re.S)
        if m:
            items = split_items(m[1])
            if len(items) > 1 and all(re.match(r"[\w.-]*\d[\w.-]*\b", i) for i in items):
                return items
    return []
