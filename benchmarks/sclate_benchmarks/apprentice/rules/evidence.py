"""Statements: rule text cut into pieces small enough to say one thing, with the examples that belong."""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TypeVar

T = TypeVar("T", bound=Hashable)

_FENCE = re.compile(r"```[a-z]*\n?(.*?)```", re.S)
_SPAN = re.compile(r"`[^`\n]*`")
_CUT = re.compile(r"(?<!e\.g\.)(?<!i\.e\.)(?<!vs\.)(?<=[.!?])\s+(?=[A-Z\0\"'(\[])|;\s+|\n+|(?=\(\d\)\s)")
OBLIGES = re.compile(
    r"\b(?:must|should|shall|needs? to|require[sd]?|format|convention|standard|always|never|before|e\.g\.|example|like"
    r"|append|create|add|use)\b",
    re.I,
)
_DENIES = re.compile(
    r"(?:\bnot\b|\binstead of\b|\brather than\b|\bavoid\b|\bnever\b|n't\b)[^.;,]{0,18}$", re.I
)
_DENIED_AFTER = re.compile(
    r"^[`\"')]*\s*,?\s*(?:\(?[^)]{0,20}\)?\s*)?(?:violat|is wrong|is incorrect|is not\b)", re.I
)


@dataclass(frozen=True)
class Statement:
    """One sentence and the fenced examples that follow it."""

    text: str
    blocks: tuple[str, ...] = ()

    @cached_property
    def obliges(self) -> bool:
        """Whether it tells how things are to be done, rather than that they are well."""
        return bool(OBLIGES.search(self.text))

    def verbatim(self) -> str:
        """Sentence and examples as they may be noted down and read again."""
        return "\n".join([self.text, *(f"```\n{b.rstrip()}\n```" for b in self.blocks)])


@lru_cache(maxsize=512)
def statements(text: str) -> tuple[Statement, ...]:
    """The statements of a text, in order."""
    text = text.replace("\\n", "\n")
    out: list[Statement] = []
    pieces = _FENCE.split(text)
    for i in range(0, len(pieces), 2):
        kept = iter(_SPAN.findall(pieces[i]))
        for cut in _CUT.split(_SPAN.sub("\0", pieces[i])):
            head, *tails = cut.split("\0")
            whole = (head + "".join(next(kept) + t for t in tails)).strip(" \t-*")
            if len(whole) > 3:
                out.append(Statement(whole))
        if i + 1 < len(pieces):
            block = pieces[i + 1].strip("\n")
            if out:
                last = out[-1]
                out[-1] = Statement(last.text, (*last.blocks, block))
            else:
                out.append(Statement("For example", (block,)))
    return tuple(out)


def denied(text: str, start: int, end: int) -> bool:
    """Whether what stands at text[start:end] is shown as what not to do."""
    return bool(_DENIES.search(text[:start]) or _DENIED_AFTER.search(text[end:]))


def majority(votes: Iterable[tuple[T, float]]) -> T | None:
    """The value with the most weight; of equals the one seen last, since people correct themselves."""
    total: dict[T, float] = {}
    last: dict[T, int] = {}
    for i, (value, weight) in enumerate(votes):
        total[value] = total.get(value, 0.0) + weight
        last[value] = i
    return max(total, key=lambda v: (total[v], last[v])) if total else None
