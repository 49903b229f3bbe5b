"""Protects which rules a round counts under: what its command checks, what its texts speak of, what is in force."""

from __future__ import annotations

from collections import Counter

import pytest

from sclate_benchmarks.metaclaw.data import Choice, Feedback, FileCheck, Round, load
from sclate_benchmarks.metaclaw.rules import rules_of

from .test_data import PUBLISHED

ALL = ("output_format", "file_naming", "field_completeness", "workflow", "completion_log")


def file_round(command: str) -> Round:
    return Round(
        id="r1", type="file_check", question="?", feedback=Feedback(), check=FileCheck(command=command)
    )


def choice_round(question: str, about: str = "") -> Round:
    return Round(
        id="r1",
        type="multi_choice",
        question=question,
        feedback=Feedback(options={"A": about}),
        choice=Choice(options={"A": "this", "B": "that"}, answer=frozenset("A")),
    )


COMMANDS = [
    ("python scripts/check_iso8601.py a.json at", "P1", "instants"),
    ("python scripts/check_filename.py --dir d --ext md", "P2", "names"),
    ("python scripts/check_metadata.py a.json", "P1 P3", "metadata has an instant"),
    ("python scripts/check_backup.py a.json", "P4", "backups"),
    ("python scripts/check_done_log.py done.log", "P1 P5", "a log line starts with an instant"),
    (r'python -c "import re; re.match(r\'.*\+08:00$\', x)"', "P1", "a pattern of its own for instants"),
    ("python -c \"import glob; glob.glob('d/20310303_*.md')\"", "P2", "a glob of its own for names"),
    ("python -c \"import glob; glob.glob('d/[0-9]*_*plan*.json')\"", "P2", "a glob for any date"),
    ("python scripts/check_backup.py a && python scripts/check_done_log.py l", "P1 P4 P5", "several checks"),
    ("test -f note.txt", "", "no rule at all"),
    ("python scripts/check_colour.py a", "", "a check that is not known"),
]


@pytest.mark.parametrize(("command", "rules", "why"), COMMANDS, ids=[case[2] for case in COMMANDS])
def test_a_file_rounds_rules_follow_from_its_command(command: str, rules: str, why: str) -> None:
    assert rules_of(file_round(command), ALL) == set(rules.split())


TEXTS = [
    ("Which values have the right time format?", "", "P1"),
    ("Which file names are right?", "", "P2"),
    ("Which headers are right?", "The front matter lacks the author.", "P3"),
    ("What comes before a change?", "A .bak beside the file.", "P4"),
    ("Where does the entry go?", "Into done.log.", "P5"),
    ("Which keep P2-P4?", "", "P2 P3 P4"),
    ("Which files comply?", "B: a P1 violation.", "P1"),
    ("Which of these are right?", "", ""),
]


@pytest.mark.parametrize(("question", "about", "rules"), TEXTS)
def test_a_choice_rounds_rules_are_those_its_texts_speak_of(question: str, about: str, rules: str) -> None:
    assert rules_of(choice_round(question, about), ALL) == set(rules.split())


def test_only_rules_in_force_on_the_day_count() -> None:
    asked = choice_round("Which created_at has the right time format?")
    assert rules_of(asked, ALL) == {"P1", "P3"}
    assert rules_of(asked, ("output_format",)) == {"P1"}
    assert rules_of(asked, ()) == {"P1", "P3"}, "a day without tags tells nothing"
    assert rules_of(asked, ("colours",)) == {"P1", "P3"}, "nor do tags that are not known"


@pytest.mark.data
@pytest.mark.parametrize(
    ("folder", "file_rounds"),
    [
        ("metaclaw-bench", {"P1": 148, "P2": 149, "P3": 79, "P4": 40, "P5": 75}),
        ("metaclaw-bench-small", {"P1": 25, "P2": 27, "P3": 13, "P4": 3, "P5": 13}),
    ],
)
def test_every_published_round_depends_on_a_rule(folder: str, file_rounds: dict[str, int]) -> None:
    counts: Counter[str] = Counter()
    for day in load(PUBLISHED / folder).days:
        for one in day.rounds:
            rules = rules_of(one, day.tags)
            assert rules, f"{day.id}/{one.id}"
            if one.check is not None:
                counts.update(rules)
    assert counts == file_rounds
