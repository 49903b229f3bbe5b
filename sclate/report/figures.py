"""A benchmark's figures, whatever their names: headline ones, and families of `figure/group`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

NUMBERED = re.compile(r"(.*?)(\d+)")
FEWEST_NUMBERED = 3


@dataclass(frozen=True)
class Family:
    """Groups that belong together (`day01` ... `day30`, or all others), and the figures that have them.

    `rows`: a value or None (missing) per label and figure, shape (labels, figures).
    """

    name: str
    labels: tuple[str, ...]
    figures: tuple[str, ...]
    rows: tuple[tuple[float | None, ...], ...]
    numbered: bool


def headline(figures: Mapping[str, float | None]) -> dict[str, float | None]:
    """Those without a group."""
    return {name: value for name, value in figures.items() if "/" not in name}


def families(figures: Mapping[str, float | None]) -> list[Family]:
    """Groups with a common stem and a number are one family, in the order of their numbers; so are groups
    with a common prefix (`accuracy/rule/P1`); the rest is one family."""
    cells: dict[str, dict[str, float | None]] = {}
    for name, value in figures.items():
        figure, slash, label = name.partition("/")
        if slash:
            cells.setdefault(label, {})[figure] = value
    stems: dict[str, list[str]] = {}
    for label in cells:
        stems.setdefault(_stem(label), []).append(label)
    named: dict[str, list[str]] = {}
    numbered = set()
    for stem, labels in stems.items():
        prefix, slash, _ = labels[0].rpartition("/")
        if len(labels) >= FEWEST_NUMBERED and NUMBERED.fullmatch(labels[0]):
            labels.sort(key=lambda label: int(label[len(stem) :]))
            name = stem.strip("/-_ .:") or "number"
            numbered.add(name)
        else:
            name = prefix if slash else "group"
        named.setdefault(name, []).extend(labels)
    made = [_family(name, labels, cells, name in numbered) for name, labels in named.items()]
    return sorted(made, key=lambda family: not family.numbered)


def _family(
    name: str, labels: list[str], cells: Mapping[str, Mapping[str, float | None]], numbered: bool
) -> Family:
    columns = tuple(dict.fromkeys(figure for label in labels for figure in cells[label]))
    rows = tuple(tuple(cells[label].get(figure) for figure in columns) for label in labels)
    return Family(name, tuple(labels), columns, rows, numbered)


def _stem(label: str) -> str:
    match = NUMBERED.fullmatch(label)
    return match[1] if match else label
