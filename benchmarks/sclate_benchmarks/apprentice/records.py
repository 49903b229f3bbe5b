"""Records found in a file, whatever its format: a list of names and values for each thing it tells of."""

from __future__ import annotations

import csv
import io
import json
import re
from typing import Any

from sclate_benchmarks.apprentice.fields import Field, slug

Found = dict[str, str]
"""One thing: identifier-like names to values; `title` is what its heading says, `text` is all of it."""

_HEAD = re.compile(
    r"^\s*(?:#{1,4}\s+)?(?:[A-Z][a-z]+ (?P<n>\d+):|\[(?P<box>\d+)\]|(?P<num>\d+)\."
    r"|(?P<id>[A-Z]+-\d+)\s*(?:\((?P<paren>[^)]*)\))?:?)\s*(?P<rest>.*)$"
)
_PAIR = re.compile(r"^\s*(?:[-*]\s+)?(?:\*\*)?(?P<k>[A-Z][\w /]{1,30}?):(?:\*\*)?\s+(?P<v>\S.*)$")
_INLINE = re.compile(r"\s+-\s+(?P<k>[A-Z][\w ]{1,20}):\s*(?P<v>.*?)(?=\s+-\s+[A-Z][\w ]{1,20}:|$)")
_ALIKE = (
    {"title", "name", "task", "description", "summary", "item", "issue", "event", "type", "message"},
    {"owner", "assignee", "reporter", "handler", "assigned", "person", "member", "by"},
    {"due", "deadline", "completion", "resolution", "resolved", "expected", "target", "estimated"},
)


def find_records(path: str, text: str) -> list[Found]:
    """Things that a file lists; empty where it lists none."""
    if path.endswith(".json"):
        return _from_json(text)
    if path.endswith(".csv"):
        rows = csv.DictReader(
            io.StringIO("\n".join(line for line in text.splitlines() if not line.startswith("#")))
        )
        return [{slug(k): v or "" for k, v in row.items() if isinstance(k, str)} for row in rows]
    return _from_text(text)


def _from_json(text: str) -> list[Found]:
    try:
        data: Any = json.loads(text)
    except ValueError:
        return []
    queue = [data]
    while queue:
        here = queue.pop(0)
        if isinstance(here, list) and here and all(isinstance(x, dict) for x in here):
            return [{str(k): v if isinstance(v, str) else json.dumps(v) for k, v in x.items()} for x in here]
        queue += list(here.values()) if isinstance(here, dict) else here if isinstance(here, list) else []
    return []


def _from_text(text: str) -> list[Found]:
    out: list[Found] = []
    for line in text.splitlines():
        if m := _HEAD.match(line):
            title = m["paren"] or m["rest"]
            found = {"title": re.split(r"\s+-\s+[A-Z]", title)[0].strip(" :"), "text": line.strip()}
            if ident := m["id"] or m["n"] or m["box"] or m["num"]:
                found["id"] = ident
            if m["num"] and (who := re.match(r"([A-Z][a-z]+) to (.+)", m["rest"])):
                found |= {"assignee": who[1], "title": who[2]}
            found |= {slug(p["k"]): p["v"].strip() for p in _INLINE.finditer(line)}
            out.append(found)
        elif out:
            out[-1]["text"] += "\n" + line.strip()
            if m := _PAIR.match(line):
                out[-1][slug(m["k"])] = m["v"].strip()
    return out


def value_for(found: Found, field: Field) -> str | None:
    """The value of a record that a field asks for: same name, shared words, or words that mean the same."""
    if field.name in found:
        return found[field.name]
    words = set(field.name.split("_"))
    if "id" in words and "id" in found:
        return found["id"]
    best = max(found, key=lambda k: (len(words & set(k.split("_"))), k != "text"), default=None)
    if best is not None and words & set(best.split("_")) - {"at", "id", "of"}:
        return found[best]
    for group in _ALIKE:
        if words & group:
            for key in found:
                if set(key.split("_")) & group:
                    return found[key]
    return None


def key_values(text: str) -> Found:
    """`Key: value` pairs anywhere in a text."""
    return {slug(m["k"]): m["v"].strip() for line in text.splitlines() if (m := _PAIR.match(line))}
