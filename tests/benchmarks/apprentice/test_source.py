"""Protects the honesty of the apprentice: no value of a rule and no sentence of the data set stands in its code."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import sclate_benchmarks.apprentice as package

from .sim import load_days

SOURCES = sorted(Path(package.__file__).parent.rglob("*.py"))
RULE_VALUES = (
    "bak", "DONE", "+08:00", "+0800", "created_at", "author", "status", "in_progress", "pending", "YYYYMMDD",
    "snake_case", "metaclaw", "metaclaw_agent", "done.log", "meta", "Meta", "%Y%m%d", "T%H", "HH:MM:SS",
)  # fmt: skip


def literals(path: Path) -> Iterator[str]:
    """Every string constant of a module, docstrings and pieces of f-strings included."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


@pytest.mark.parametrize("value", RULE_VALUES)
def test_no_rule_value_is_a_literal(value: str) -> None:
    pattern = re.compile(rf"(?<!\w){re.escape(value)}(?!\w)")
    found = [f"{p.name}: {text!r}" for p in SOURCES for text in literals(p) if pattern.search(text)]
    assert not found


def words(text: str) -> list[str]:
    return re.findall(r"[a-z0-9]+", text.lower())


def runs(text: str, n: int = 6) -> set[tuple[str, ...]]:
    w = words(text)
    return {tuple(w[i : i + n]) for i in range(len(w) - n + 1)}


@pytest.mark.data
def test_no_sentence_of_the_data_set_is_in_the_code() -> None:
    source = set[tuple[str, ...]]().union(*(runs(p.read_text()) for p in SOURCES))
    for day in load_days():
        for item in day.rounds:
            told = item["feedback"]
            texts = [
                item["question"],
                told["correct"],
                str(told.get("incorrect", "")),
                *told.get("options", {}).values(),
            ]
            for text in texts:
                assert not source & runs(text), f"{day.id} {item['id']}"


def test_the_code_knows_no_day() -> None:
    for path in SOURCES:
        assert not re.search(r"day\d\d|\bsprint|\borion\b|2026", path.read_text().lower()), path.name
