"""A benchmark's figures, whatever their names: headline ones, and families of `figure/group`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

NUMBERED = re.compile(r"(.*?)(\d+)")
FEWEST_DRAWN = 8
"""Labels of a numbered family that make a line; fewer are a table with bars."""

Values = Mapping[tuple[str, str], float | None]


@dataclass(frozen=True)
class Family:
    """Groups that belong together (`day01` ... `day30`; or all others that share a figure).

    `values` by label and figure: None is missing; a figure that has no such group has no entry.
    """

    name: str
    labels: tuple[str, ...]
    figures: tuple[str, ...]
    values: Values
    numbered: bool

    def is_share(self, figure: str) -> bool:
        """Whether all its values are between 0 and 1, so that a bar or a common axis means something."""
        known = [v for (_, name), v in self.values.items() if name == figure and v is not None]
        return bool(known) and all(0 <= v <= 1 for v in known)

    @property
    def drawn(self) -> tuple[str, ...]:
        """Figures for one chart: the shares, else all; none where a table says it better."""
        if not self.numbered or len(self.labels) < FEWEST_DRAWN:
            return ()
        return tuple(filter(self.is_share, self.figures)) or self.figures


def headline(figures: Mapping[str, float | None]) -> dict[str, float | None]:
    """Those without a group."""
    return {name: value for name, value in figures.items() if "/" not in name}


def families(figures: Mapping[str, float | None]) -> list[Family]:
    """Groups with a common stem and a number are a family, in the order of their numbers; so are groups
    with a common prefix (`accuracy/rule/P1`), and of the rest those that share a figure."""
    values: dict[tuple[str, str], float | None] = {}
    for name, value in figures.items():
        figure, slash, label = name.partition("/")
        if slash:
            values[label, figure] = value
    by_stem: dict[str, list[str]] = {}
    for label in dict.fromkeys(label for label, _ in values):
        by_stem.setdefault(_stem(label), []).append(label)
    found, rest = [], []
    for stem, labels in by_stem.items():
        if len(labels) > 1:
            labels.sort(key=lambda label: int(label[len(stem) :]))
            found.append(_family(re.split("[:/]", stem)[0].strip("-_ .") or "number", labels, values, True))
        else:
            rest += labels
    found.sort(key=lambda family: -len(family.labels))
    return found + [_family(name, labels, values, False) for name, labels in _kin(rest, values)]


def _kin(labels: Iterable[str], values: Values) -> list[tuple[str, list[str]]]:
    """Labels by prefix; those without one together where they have a figure in common."""
    prefixed: dict[str, list[str]] = {}
    kin: list[tuple[set[str], list[str]]] = []
    for label in labels:
        prefix, separator, _ = label.replace(":", "/").rpartition("/")
        if separator:
            prefixed.setdefault(prefix, []).append(label)
            continue
        named = {figure for one, figure in values if one == label}
        related = [one for one in kin if one[0] & named]
        kin = [one for one in kin if one not in related]
        kin.append((named.union(*(r[0] for r in related)), [x for r in related for x in r[1]] + [label]))
    together = [(next(iter(named)) if len(named) == 1 else "group", many) for named, many in kin]
    return [*together, *prefixed.items()]


def _family(name: str, labels: list[str], values: Values, numbered: bool) -> Family:
    here = {key: value for key, value in values.items() if key[0] in labels}
    return Family(name, tuple(labels), tuple(dict.fromkeys(figure for _, figure in here)), here, numbered)


def _stem(label: str) -> str:
    match = NUMBERED.fullmatch(label)
    return match[1] if match else label
