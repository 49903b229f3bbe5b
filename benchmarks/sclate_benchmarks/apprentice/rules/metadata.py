"""The header of facts about a file that is to stand in it: which facts, with which values, in which form."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from sclate_benchmarks.apprentice.moment import Moment
from sclate_benchmarks.apprentice.rules.evidence import Statement
from sclate_benchmarks.apprentice.rules.times import TimeStyle, instants, style_of

FORMS = {"md": "front", "txt": "front", "json": "object", "py": "section", "csv": "comment"}
"""Which form a header takes in which kind of file: what each file format has room for."""

_ABOUT = r"front-?\s?matter|docstring|header|metadata|\bobject\b|\bsection\b|\bcomment\b"
_NAMES = {
    "front": re.compile(r"front-?\s?matter", re.I),
    "object": re.compile(r"[`\"']?(\w+)[`\"']?\s+(?:object|key)\b", re.I),
    "section": re.compile(r"[`\"']?\b([A-Z]\w+):?[`\"']?\s+section\b"),
    "comment": re.compile(r"\bfirst[- ]line\b|\bcomment\b", re.I),
}
_FRONT = re.compile(r"^(?P<fence>[^\w\s]{3,})\n(?P<body>(?:[^\n]*\w[^\n]*\n)+)(?P=fence)\s*$", re.M)
_OBJECT = re.compile(r"[\"']?(\w+)[\"']?:\s*\{([^{}]*)\}")
_SECTION = re.compile(r"^(?P<label>[A-Z]\w*):\s*\n(?P<body>(?:[ \t]+\w+\s*[:=][^\n]*\n?)+)", re.M)
_COMMENT = re.compile(r"(?:^|`)(?P<open>\S{1,3})\s*(?P<label>\w+):\s*(?P<body>\w+=[^`\n]+)", re.M)
_PAIR = re.compile(r"^[ \t]*(\w+)[ \t]*([:=])[ \t]*(\S.*?)[ \t]*$", re.M)
_LISTED = re.compile(
    r"(?:contain(?:s|ing)?|includ(?:es?|ing)|with|\()\s*:?\s*"
    r"((?:`?[a-z]\w*`?(?:\s*(?:\([^)]*\)|(?:in )?ISO [\d]+(?: [+:\d]+)?))?(?:,\s*(?:and\s+)?|\s+and\s+))+"
    r"`?[a-z]\w*`?)"
)
_ALLOWED = re.compile(
    r"\b(\w+)`? (?:field |value )?(?:[^.;()]{0,40}?)(?:one of|valid values?|allowed values?|must be|be)"
    r"[^.;()]{0,20}\(?`?(\w+(?:/\w+)+)`?"
)


@dataclass(frozen=True)
class Form:
    """One form of header: its label or fence, and what stands between a name and its value."""

    label: str
    between: str = ": "
    opening: str = ""


@dataclass(frozen=True)
class HeaderStyle:
    """Facts in order (a value of None was never shown) and the forms known by name."""

    facts: Mapping[str, str | None]
    forms: Mapping[str, Form]
    times: frozenset[str] = field(default_factory=frozenset)
    own_time: TimeStyle | None = None

    def form_for(self, ext: str) -> Form | None:
        """The form known for a kind of file."""
        return self.forms.get(FORMS.get(ext, ""))

    def values(self, moment: Moment, style: TimeStyle | None) -> dict[str, str]:
        """The facts of a file made at `moment`."""
        out: dict[str, str] = {}
        for name, value in self.facts.items():
            if name in self.times:
                style = style or self.own_time
                out[name] = style.write(moment) if style else moment.plain()
            else:
                out[name] = value or ("apprentice" if name.endswith(("or", "er", "by")) else "ready")
        return out

    def missing(self, facts: Mapping[str, str]) -> list[str]:
        """Which facts a header lacks."""
        return [n for n in self.facts if not facts.get(n)]


def render(form: Form, kind: str, values: Mapping[str, str]) -> str:
    """Header text for the kinds that are text; `object` headers are placed by the writer of the object."""
    if kind == "comment":
        pairs = " ".join(f"{k}{form.between}{v}" for k, v in values.items())
        return f"{form.opening} {form.label}: {pairs}\n"
    lines = "".join(f"{k}{form.between}{v}\n" for k, v in values.items())
    if kind == "front":
        return f"{form.label}\n{lines}{form.label}\n\n"
    indented = "".join(f"  {line}\n" for line in lines.splitlines())
    return f"{form.label}:\n{indented}"


def read_pairs(text: str) -> dict[str, str]:
    """Names and values written one a line or `name=value` in a row."""
    if "\n" not in text.strip() and "=" in text and not re.match(r"\s*\w+\s*:", text):
        return dict(p.split("=", 1) for p in text.split() if "=" in p)
    return {m[1]: m[3] for m in _PAIR.finditer(text)}


def _shown(text: str) -> Iterator[tuple[str, Form, dict[str, str]]]:
    """Headers shown as examples in a text: form's name, form, facts."""
    for m in _FRONT.finditer(text):
        first = _PAIR.search(m["body"])
        yield (
            "front",
            Form(m["fence"], ": " if first is None or first[2] == ":" else " = "),
            read_pairs(m["body"]),
        )
    for m in _SECTION.finditer(text):
        yield "section", Form(m["label"]), read_pairs(m["body"])
    for m in _OBJECT.finditer(text):
        pairs = dict(re.findall(r"[\"'](\w+)[\"']\s*:\s*[\"']([^\"']*)[\"']", m[2]))
        if pairs:
            yield "object", Form(m[1]), pairs
    for m in _COMMENT.finditer(text):
        yield "comment", Form(m["label"], "=", m["open"]), read_pairs(m["body"])


def _named(text: str) -> Iterator[tuple[str, Form]]:
    """Forms spoken of without an example; only the front matter's fence is common knowledge (YAML)."""
    for kind, regex in _NAMES.items():
        for m in regex.finditer(text):
            if kind == "front":
                yield kind, Form("---")
            elif kind == "comment":
                if c := re.search(r"#\s*(\w+):", text):
                    yield kind, Form(c[1], "=", "#")
            elif m[1].lower() not in ("json", "a", "the", "this", "level", "docstring", "each", "any", "top"):
                yield kind, Form(m[1])


def _listed(text: str) -> list[str]:
    m = _LISTED.search(text)
    if not m:
        return []
    plain = re.sub(r"\([^)]*\)|(?:in )?ISO \d+(?: [+:\d]+)?", "", m[1])
    return re.findall(r"[a-z]\w*", re.sub(r"\band\b", ",", plain))


@dataclass
class _Told:
    """What one statement tells of headers."""

    shown: list[tuple[str, Form, dict[str, str]]] = field(default_factory=list)
    named: list[tuple[str, Form]] = field(default_factory=list)
    listed: list[str] = field(default_factory=list)
    allowed: list[tuple[str, str]] = field(default_factory=list)


@lru_cache(maxsize=4096)
def _told(s: Statement) -> _Told:
    told = _Told()
    if not (s.blocks or re.search(_ABOUT, s.text, re.I)):
        return told
    for text in (s.text, *s.blocks):
        told.shown += [found for found in _shown(text) if len(found[2]) > 1]
    if s.obliges:
        told.named = list(_named(s.text))
        told.listed = _listed(s.text) if told.named else []
    told.allowed = [(m[1], m[2].rpartition("/")[2]) for m in _ALLOWED.finditer(s.text)]
    return told


def learn_header(said: Sequence[Statement]) -> HeaderStyle | None:
    """The header that the statements ask for; what is said later wins."""
    facts: list[str] = []
    values: dict[str, str] = {}
    forms: dict[str, Form] = {}
    named: dict[str, Form] = {}
    times: set[str] = set()
    own_time: TimeStyle | None = None
    for told in map(_told, said):
        for kind, form, pairs in told.shown:
            forms[kind], facts = form, list(pairs)
            for name, value in pairs.items():
                if at := next(instants(value), None):
                    times.add(name)
                    own_time = style_of(at)
                else:
                    values[name] = value
        named.update(told.named)
        if len(told.listed) > 1:
            facts = told.listed
            times.update(n for n in facts if n.endswith(("_at", "_on", "time", "date")))
        for name, value in told.allowed:
            values.setdefault(name, value)
    if not facts or not (forms or named):
        return None
    known = tuple((n, values.get(n)) for n in facts)
    return HeaderStyle(dict(known), {**named, **forms}, frozenset(times), own_time)
