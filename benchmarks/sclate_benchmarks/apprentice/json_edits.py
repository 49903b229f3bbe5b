"""Changes to structured data: settings, additions and marks that a request spells out."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from sclate_benchmarks.apprentice.fields import listed_things, sentences, split_items
from sclate_benchmarks.apprentice.moment import find_clock, find_day, parse_moment
from sclate_benchmarks.apprentice.values import Context, each_thing, is_time, literal, value

_STOP = r"(?=,?\s+and\s+(?:(?:set|update|change|add|upgrade|the)\b|[\w.]+_\w+)|,\s|;|\.\s|\.?$|\)|\n)"
_FOR_FROM = r"(?:\s+(?:for|to) (?:each |all |the )?[\w/. -]{1,40}?)?(?:\s+from\s+(?:its [\w ]+|\S+))?"
_IDENT = re.compile(r"\b[A-Za-z]{1,5}-?\d{2,4}\b|\b[a-z]+-\d{2,4}\b")
_NUMBERED = re.compile(r"\b([a-z]+) (\d{1,3})\b", re.I)
_SWITCH_ON = re.compile(r"\b(?:enable|set both|set) (?:the )?(.+?) (?:feature )?flags?\b", re.I)
_MARK = re.compile(r"\bmark (?:all (?:remaining )?)?(.+?) as [\"']?(\w+)[\"']?", re.I)


@dataclass
class Setting:
    """`name` is to get the value that `words` tell, in the records that `clause` speaks of."""

    name: str
    words: str
    clause: str


class JsonEdit:
    """One change to one JSON value."""

    def __init__(self, ctx: Context, data: Any) -> None:
        self.ctx = ctx
        self.question = ctx.task.question
        self.before = copy.deepcopy(data)
        self.data = data

    def apply(self) -> Any:
        """The data as asked for."""
        asked = self.ctx.task.asked
        if (
            isinstance(self.data, dict)
            and asked.each
            and (lists := [f for f in asked.fields if f.many and not f.children])
        ):
            things = listed_things(self.ctx.task.question)
            self.data[lists[-1].name] = each_thing(self.ctx, asked.each, things, lists[-1].note)
            return self.data
        names = self._names()
        settings = list(self._settings(names))
        if self._appends() and (rows := self._rows()) is not None:
            self._append(rows, settings)
        else:
            for s in settings:
                self._set(s)
        self._mark()
        self._switch()
        self._fill_times()
        if self.data == self.before and (rows := self._rows()) is not None:
            self._append(rows, [])
        elif self.data == self.before and isinstance(self.data, dict):
            self.data["note"] = " ".join(self.ctx.task.topic)
        if self.ctx.rules.time:
            self._normalise(self.data)
        return self.data

    def _names(self) -> list[str]:
        keys = {k for d in _dicts(self.data) for k in d}
        idents = re.findall(
            r"\b[a-z]\w*_\w+(?:\.\w+)?\b|\b[a-z]+_\w+\.\w+\b|\b[a-z]\w+\.[a-z]\w+\b", self.question
        )
        plain = re.sub(r"\b[\w/.-]+\.(?:json|md|py)\b", " ", self.question)
        idents = [i for i in idents if re.search(rf"(?<![\w/.]){re.escape(i)}(?!\w|\.json)", plain)]
        values = {v for d in _dicts(self.data) for k, v in d.items() if k == "name" and isinstance(v, str)}
        mentioned = [k for k in (*keys, *values) if re.search(rf"(?<![\w/.]){re.escape(k)}(?![\w.])", plain)]
        return sorted({*idents, *mentioned}, key=lambda n: (-len(n), n))

    def _settings(self, names: list[str]) -> Iterator[Setting]:
        taken: set[tuple[str, str]] = set()
        for clause in _clauses(self.question):
            for name in names:
                n = rf"(?<![\w.])`?{re.escape(name)}`?"
                kinds = r"(?:\s+(?:fields?|parameter|flag|count|value|timestamp|array))?"
                patterns = (
                    rf"{n}{kinds}\s*\((?P<v>[^()]*(?:\([^()]*\)[^()]*)*)\)",
                    rf"{n}{kinds}{_FOR_FROM}\s+(?:to|as|=|corresponds to|should be|is|with)"
                    rf"\s+(?P<v>[^(),]+?(?:\s*\([^)]*\))?){_STOP}",
                    rf"{n}:\s*(?P<v>[^,\n]+?)(?=,\s|\.\s|\.?$|\sand\s|\sfield)",
                )
                for p in patterns:
                    if (m := re.search(p, clause)) and (name, str(m["v"])) not in taken:
                        taken.add((name, str(m["v"])))
                        yield Setting(name, m["v"].strip(), clause)
                        break

    def _value(self, name: str, words: str, old: Any) -> Any:
        words = words.strip()
        if (
            is_time(name)
            or (isinstance(old, str) and find_day(old, self.ctx.now.day))
            or re.search(r"current time|\bnow\b", words)
        ):
            written = self.ctx.spoken(re.sub(r"\bpoints?\b", "", words))
            if written:
                return written
            if is_time(name):
                return self.ctx.instant(self.ctx.now)
        got = literal(words)
        if (
            isinstance(got, str)
            and isinstance(old, int | float)
            and (m := re.search(r"-?\d+(?:\.\d+)?", words))
        ):
            return literal(m[0])
        if isinstance(got, str) and (m := re.search(r"[\"']([^\"']+)[\"']", words)):
            return m[1]
        return got

    def _set(self, s: Setting) -> None:
        if isinstance(self.data, dict) and "." in s.name and self._set_path(s):
            return
        for ident, words in _per_ident(s.words):
            for d in self._of(ident):
                d[s.name] = self._value(s.name, words, d.get(s.name))
            if ident:
                return
        scope = self._scope(s)
        for d in scope:
            d[s.name] = self._value(s.name, s.words, d.get(s.name))
        if not scope:
            for d in _dicts(self.data):
                slot = next((k for k in ("example", "value", "default") if k in d), None)
                if d.get("name") == s.name and slot:
                    d[slot] = self._value(s.name + "_at" if find_clock(s.words) else s.name, s.words, d[slot])

    def _set_path(self, s: Setting) -> bool:
        *parents, last = s.name.split(".")
        here: Any = self.data
        for p in parents:
            here = here.get(p) if isinstance(here, dict) else None
        if not isinstance(here, dict):
            return False
        here[last] = self._value(last, s.words, here.get(last))
        return True

    def _scope(self, s: Setting) -> list[dict[str, Any]]:
        """The objects that a clause speaks of."""
        at = s.clause.find(s.name)
        idents = list(_IDENT.findall(s.clause[:at])) or _IDENT.findall(s.clause)
        if found := [d for i in idents for d in self._of(i)]:
            return [d for i in idents[-2:] for d in self._of(i)] if len(idents) > 2 else found
        for m in _NUMBERED.finditer(s.clause):
            if found := self._numbered(m[1].lower(), m[2]):
                return found
        holders = [d for d in _dicts(self.data) if s.name in d and not isinstance(d[s.name], dict | list)]
        if re.search(r"\beach\b|\ball\b|\bevery\b", s.clause):
            return holders or [r for rows in _lists(self.data) for r in rows]
        if holders:
            return holders[:1] if isinstance(self.data, dict) and s.name in self.data else holders
        if re.search(r"\badd\b", s.clause, re.I) or s.name in {f.name for f in self.ctx.task.asked.fields}:
            return [self.data] if isinstance(self.data, dict) else []
        return []

    def _of(self, ident: str) -> list[dict[str, Any]]:
        return [
            d
            for d in _dicts(self.data)
            if ident and any(v == ident for k, v in d.items() if k == "id" or k.endswith("_id"))
        ]

    def _numbered(self, kind: str, n: str) -> list[dict[str, Any]]:
        for d in _dicts(self.data):
            for key, rows in d.items():
                if (key.startswith(kind) and isinstance(rows, list)) or (
                    key.endswith("data") and isinstance(rows, list)
                ):
                    by_id = [
                        r
                        for r in rows
                        if isinstance(r, dict)
                        and (r.get(kind) == int(n) or re.fullmatch(rf"\D*0*{n}", str(r.get("id", ""))))
                    ]
                    if by_id:
                        return by_id[:1]
        return []

    def _appends(self) -> bool:
        return bool(
            re.search(
                r"\b(?:append|allocate|add (?:\w+ )*?(?:new|more|milestones|entry|task))\b",
                self.question,
                re.I,
            )
        ) and not re.search(r"\badd (?:an? |the )?\w+ (?:field|array)\b", self.question)

    def _rows(self) -> list[Any] | None:
        """The list that things are added to: the one that the request names, else the longest."""
        lists = {
            k: v
            for d in _dicts(self.data)
            for k, v in d.items()
            if isinstance(v, list) and (not v or isinstance(v[0], dict))
        }
        if not lists:
            return None
        named = [
            k
            for k in lists
            if re.search(rf"\b{re.escape(k.rstrip('s'))}", self.question.replace("_", " "), re.I)
        ]
        return lists[named[0] if named else max(lists, key=lambda k: len(lists[k]))]

    def _append(self, rows: list[Any], settings: list[Setting]) -> None:
        """Adds as many things as are named, each shaped like the last one."""
        idents = [i for i in dict.fromkeys(_IDENT.findall(self.question)) if not self._of(i)]
        dashes = re.search(r"—\s*(.+?)\s*—", self.question)
        names = (
            [re.sub(r"\(.*", "", p).strip() for p in split_items(dashes[1])] if dashes and not idents else []
        )
        count = re.search(r"\b(two|three|four)\b", self.question)
        n = max(len(idents), len(names), {"two": 2, "three": 3, "four": 4}[count[1]] if count else 1)
        model = rows[-1] if rows else {}
        outside = (
            {k for k in self.data if isinstance(self.data, dict)} if isinstance(self.data, dict) else set()
        )
        for i in range(n):
            new = {k: self._like(k, v, i) for k, v in model.items()}
            for s in settings:
                if s.name in model or (
                    s.name not in outside and re.search(r"[:=]|\binclude\b|\bfields?\b|\bset\b", s.clause)
                ):
                    new[s.name] = self._value(s.name, s.words, model.get(s.name))
            for f in (*self.ctx.task.asked.fields, *self.ctx.task.asked.each):
                if f.name not in outside and f.name not in new:
                    new[f.name] = value(self.ctx, f)
            if i < len(idents):
                new[next((k for k in new if k == "id" or k.endswith("_id")), "id")] = idents[i]
                tail = self.question.partition(idents[i])[2][:40]
                if m := re.match(r" with (\d+) (\w+)", tail):
                    new[next((k for k in new if m[2].rstrip("s") in k), m[2])] = int(m[1])
            if names:
                self._describe(
                    new,
                    split_items(dashes[1])[i] if dashes else "",
                    names[i] if i < len(names) else names[-1],
                )
            self._from_words(new)
            rows.append(new)
        for s in settings:
            if s.name in outside:
                self._set(s)

    def _like(self, key: str, old: Any, at: int) -> Any:
        """A value for a new thing after that of the last one."""
        if is_time(key) or (isinstance(old, str) and re.match(r"\d{4}-\d\d-\d\d", old)):
            return self.ctx.instant(self.ctx.now)
        if key == "id" or key.endswith("_id"):
            m = re.fullmatch(r"(\D*)(\d+)(.*)", str(old))
            return f"{m[1]}{int(m[2]) + at + 1:0{len(m[2])}d}{m[3]}" if m else f"{old}-{at + 1}"
        if isinstance(old, int) and not isinstance(old, bool) and key in ("week", "index", "number"):
            return old + at + 1
        return copy.deepcopy(old)

    def _describe(self, new: dict[str, Any], said: str, name: str) -> None:
        key = next((k for k in ("name", "title", "description") if k in new), None)
        if key:
            new[key] = name
        if moment := parse_moment(said, self.ctx.now, (18, 0)):
            for k in new:
                if is_time(k):
                    new[k] = self.ctx.instant(moment)

    def _from_words(self, new: dict[str, Any]) -> None:
        """An owner and a deadline named in plain words."""
        if m := re.search(r"\b(?:[Aa]ssign it to|assignee) [\"']?([A-Z]\w+)", self.question):
            new["assignee"] = m[1]
        if m := re.search(r"\bdeadline of (.+?)\.", self.question):
            for k in [*new, *(f.name for f in self.ctx.task.asked.fields)]:
                if k.startswith(("due", "deadline")):
                    new[k] = self.ctx.spoken(m[1])
        if (m := re.search(r"\bnew \w+[^:.]{0,40}: ([^.]+)\.", self.question)) and "title" in new:
            new["title"] = m[1]

    def _mark(self) -> None:
        for m in _MARK.finditer(self.question):
            idents = _IDENT.findall(m[1])
            old = re.search(r"\b(\w+_\w+|open|todo)\b", m[1])
            for d in _dicts(self.data):
                for k, v in list(d.items()):
                    chosen = any(d in self._of(i) for i in idents) if idents else bool(old and v == old[1])
                    if (
                        chosen
                        and isinstance(v, str)
                        and (v == (old[1] if old else v))
                        and re.fullmatch(r"stat\w+", k)
                    ):
                        d[k] = m[2]
                        for t in d:
                            if t != k and re.search(rf"\b{re.escape(t)}\b", self.question) and is_time(t):
                                d[t] = self.ctx.instant(self.ctx.now)

    def _switch(self) -> None:
        if m := _SWITCH_ON.search(self.question):
            for name in re.findall(r"\w+", m[1]):
                for d in _dicts(self.data):
                    if isinstance(d.get(name), bool):
                        d[name] = "to false" not in self.question

    def _fill_times(self) -> None:
        """Empty fields that the request speaks of get the one time of day that it gives."""
        names = [f for f in self._names() if is_time(f)]
        said = re.search(r"[^.]*\b\d{1,2}:\d\d\b[^.]*", self.question)
        for d in _dicts(self.data):
            for k, v in d.items():
                if v in ("", None) and k in names and said and "null" not in said[0]:
                    d[k] = self.ctx.spoken(said[0])

    def _normalise(self, node: Any, key: str = "") -> Any:
        """Every instant in the wanted style; words for a day are worked out."""
        style = self.ctx.rules.time
        assert style is not None
        if isinstance(node, dict):
            for k, v in node.items():
                node[k] = self._normalise(v, k)
        elif isinstance(node, list):
            node[:] = [self._normalise(v, key) for v in node]
        elif isinstance(node, str) and not style.matches(node) and node:
            figures = re.match(r"\d{2,4}[-/.]\d{1,2}([-/.]\d{1,2})?", node)
            if (is_time(key) and len(node) < 45) or (figures and len(node) < 32):
                hour = re.search(
                    r"\b(\d{1,2}):(\d\d)\b(?=[^.]*\b(?:deadline|convention)\b)", self.question
                ) or re.search(r"all with (\d{1,2}):(\d\d)", self.question)
                date_key = self._keeps(key)
                moment = (
                    None
                    if date_key
                    else parse_moment(node, self.ctx.now, (int(hour[1]), int(hour[2])) if hour else (9, 0))
                )
                if moment:
                    return style.write(moment)
        return node

    def _keeps(self, key: str) -> bool:
        return bool(re.search(rf"\bkeep\w* the (?:original )?{re.escape(key)}\b", self.question))


def _per_ident(words: str) -> list[tuple[str, str]]:
    """`X at 9:00, Y at 10:00` as pairs; empty where no identifiers stand in it."""
    return [(m[0], part) for part in split_items(words) if (m := _IDENT.search(part))]


def _clauses(question: str) -> list[str]:
    return [c for s in sentences(question) for c in re.split(r";\s|\n", s)]


def _dicts(node: Any) -> list[dict[str, Any]]:
    out: list[dict[str, Any]] = []
    if isinstance(node, dict):
        out.append(node)
        for v in node.values():
            out += _dicts(v)
    elif isinstance(node, list):
        for v in node:
            out += _dicts(v)
    return out


def _lists(node: Any) -> list[list[dict[str, Any]]]:
    return [
        v
        for d in _dicts(node)
        for v in d.values()
        if isinstance(v, list) and v and all(isinstance(x, dict) for x in v)
    ]
