"""What is worth keeping of a feedback: the sentences that tell how things are to be done, word for word."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache

from sclate_benchmarks.apprentice.rules import Rules, learn_from
from sclate_benchmarks.apprentice.rules.evidence import Statement, statements

_LIMIT = 24_000
"""Characters of memory after which nothing more is noted: a prompt is no place for a diary."""


def lessons(feedback: str, known: Iterable[str]) -> list[Statement]:
    """Statements of a feedback that teach something and are not yet among the `known` texts."""
    known = list(known)
    if sum(map(len, known)) > _LIMIT:
        return []
    seen = {_shape(s) for text in known for s in statements(text)}
    out = []
    for s in statements(feedback):
        if _teaches(s) and _shape(s) not in seen:
            seen.add(_shape(s))
            out.append(s)
    return out


def as_text(said: Iterable[Statement]) -> str:
    """Lessons as lines of a memory file."""
    return "".join(f"- {s.verbatim()}\n" for s in said)


@lru_cache(maxsize=4096)
def _teaches(s: Statement) -> bool:
    return learn_from([s]) != Rules()


@lru_cache(maxsize=4096)
def _shape(s: Statement) -> str:
    """A statement without its figures, names and file names."""
    text = re.sub(r"[\w/<>*.-]*\.[A-Za-z]{2,5}\b", "F", s.verbatim())
    text = re.sub(r"\d+", "#", text)
    return " ".join(re.findall(r"[a-z#]+|F", re.sub(r"`[a-z_]+`", "N", text)))[:90]
