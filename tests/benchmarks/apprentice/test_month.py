"""Protects what the apprentice is for: over the month, memory has a measurable effect, and only by what it holds."""

from __future__ import annotations

import shutil
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from .sim import Day, Life, Outcome, load_days

pytestmark = pytest.mark.data
FIRST_MEETINGS = (1, 6, 11, 16, 21)
"""Days on which a rule is stated for the first time."""


def fork(life: Life, root: Path, *, memory: bool) -> Life:
    """A life that goes on from another's workspace, with its memory or with none."""
    new = Life(root, memory)
    shutil.copytree(life.workspace, new.workspace, dirs_exist_ok=True)
    if memory:
        shutil.copytree(life.memory_dir, new.memory_dir, dirs_exist_ok=True)
    return new


def unearned(shown: list[Outcome], hidden: list[Outcome]) -> list[str]:
    """Rounds that pass with memory, need a rule that the day had not stated, and pass without memory all the same."""
    pairs = zip(shown, hidden, strict=True)
    return [f"{s.day} {s.round} {s.needs - h.known}" for s, h in pairs if s.passed and h.depends and h.passed]


def hides(days: list[Day], life: Life, root: Path) -> tuple[list[Outcome], list[Outcome]]:
    """Lives through days; before each, a twin without memory lives the same day from the same workspace."""
    shown: list[Outcome] = []
    hidden: list[Outcome] = []
    for day in days:
        hidden += fork(life, root / day.id, memory=False).live(day)
        shown += life.live(day)
    return shown, hidden


def test_without_memory_every_round_that_needs_a_remembered_rule_fails(tmp_path: Path) -> None:
    days = load_days()
    life = Life(tmp_path / "life", memory=True)
    for i in FIRST_MEETINGS:
        life.live(days[i - 1])
    shown, hidden = hides([days[i - 1] for i in (14, 23, 29)], life, tmp_path)
    dependent = [h for s, h in zip(shown, hidden, strict=True) if s.passed and h.depends]
    assert len(dependent) >= 6
    assert not unearned(shown, hidden)


def test_a_day_is_learnt_from_its_own_feedback(tmp_path: Path) -> None:
    life = Life(tmp_path / "life", memory=False)
    rounds = [o for o in life.live(load_days()[1]) if o.needs == {"time"}]
    assert not rounds[0].passed
    assert sum(o.passed for o in rounds[1:]) >= 4


def test_no_notes_without_a_memory_directory(tmp_path: Path) -> None:
    life = Life(tmp_path / "life", memory=False)
    day = load_days()[0]
    before = {p.relative_to(life.workspace) for p in life.workspace.rglob("*")}
    life.live(day)
    made = {p.relative_to(life.workspace) for p in life.workspace.rglob("*") if p.is_file()} - before
    inputs = {p.name for p in made if "README" in p.name}
    assert all(str(p).startswith(day.id) for p in made), made
    assert not [p for p in made if p.suffix == ".md" and p.name not in inputs]


@dataclass
class Month:
    """Both arms and, day by day, the twin whose memory is hidden."""

    with_memory: list[Outcome]
    without: list[Outcome]
    hidden: list[Outcome]
    memory: str


@pytest.fixture(scope="module")
def month(tmp_path_factory: pytest.TempPathFactory) -> Month:
    days, root = load_days(), tmp_path_factory.mktemp("month")

    def remembering() -> tuple[Life, list[Outcome]]:
        life = Life(root / "memory", memory=True)
        _, hidden = hides(days, life, root / "hidden")
        return life, hidden

    def forgetting() -> Life:
        life = Life(root / "none", memory=False)
        for day in days:
            life.live(day)
        return life

    with ThreadPoolExecutor(2) as pool:
        first, second = pool.submit(remembering), pool.submit(forgetting)
        (life, hidden), none = first.result(), second.result()
    return Month(life.log, none.log, hidden, (life.memory_dir / "MEMORY.md").read_text())


def passes(log: list[Outcome], kind: str = "") -> int:
    return sum(o.passed for o in log if kind in o.kind)


@pytest.mark.timeout(420)
def test_memory_leads_over_the_month(month: Month) -> None:
    lead = (passes(month.with_memory) - passes(month.without)) / len(month.with_memory)
    assert len(month.with_memory) == len(month.without) == 346
    assert lead >= 0.15
    assert passes(month.with_memory, "file_check") >= 112, "half of the file rounds"
    a, b = (Counter(o.day for o in log if o.passed) for log in (month.with_memory, month.without))
    assert sum(a[day] > b[day] for day in a) >= 20


@pytest.mark.timeout(420)
def test_all_month_no_dependent_round_passes_with_memory_hidden(month: Month) -> None:
    assert not unearned(month.with_memory, month.hidden)


@pytest.mark.timeout(420)
def test_few_calls_and_a_small_memory(month: Month) -> None:
    assert sum(o.calls for o in month.with_memory) <= 2.2 * len(month.with_memory)
    assert len(month.memory) < 25_000
    lines = [line for line in month.memory.splitlines() if line.startswith("- ")]
    assert len(lines) == len(set(lines))
