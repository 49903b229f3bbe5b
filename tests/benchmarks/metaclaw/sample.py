"""A two-day folder of our own in MetaClaw-Bench's layout."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

INTROS = {"day01": "Good morning, it is Monday.", "day02": "Tuesday now."}
DATES = {"day01": "2026-03-16", "day02": "2026-03-17"}


def file_round(name: str, command: str, **check: Any) -> dict[str, Any]:
    return {
        "id": name,
        "type": "file_check",
        "question": f"Do {name}.",
        "feedback": {"correct": f"{name} is right.", "incorrect": f"{name} lacks the stamp."},
        "eval": {"command": command, "expect_exit": 0, **check},
        "update": [],
    }


def choice_round(name: str, answer: list[str]) -> dict[str, Any]:
    options = {o: f"statement {o}" for o in "ABCD"}
    return {
        "id": name,
        "type": "multi_choice",
        "question": f"Which for {name}?",
        "feedback": {"correct": "All found.", "options": {o: f"about {o}" for o in "ABC"}},
        "eval": {"options": options, "answer": answer},
        "update": [],
    }


ROUNDS = {
    "day01": [
        file_round("r1", "python scripts/check_iso8601.py day01/out.json at"),
        choice_round("r2", ["A", "C"]),
    ],
    "day02": [
        file_round("r1", "test -f note.txt && python scripts/check_filename.py --dir day02 --ext md"),
        choice_round("r2", ["B"]),
    ],
}


def write_sample(root: Path) -> Path:
    """Write the folder and return it."""
    days = []
    for day, rounds in ROUNDS.items():
        start = f"{DATES[day]}T01:00:00.000Z"
        days.append({"id": day, "desc": f"About {day}", "agent": "ag", "session": f"{day}_x", "eval": day})
        lines: list[dict[str, Any]] = [{"type": "session", "id": f"{day}_x", "timestamp": start}]
        for role, said, at in (("user", INTROS[day], "01:02:00"), ("assistant", "Hello.", "01:02:30")):
            message = {"role": role, "content": [{"type": "text", "text": said}]}
            lines.append({"type": "message", "timestamp": f"{DATES[day]}T{at}.000Z", "message": message})
        _put(
            root / f"openclaw_state/agents/ag/sessions/{day}_x.jsonl",
            "".join(json.dumps(line) + "\n" for line in lines),
        )
        _put(root / f"eval/{day}/questions.json", json.dumps({"id": day, "rounds": rounds}))
        _put(root / f"workspaces/shared/{day}/input.txt", f"input of {day}\n")
    _put(root / "workspaces/shared/USER.md", "The user.\n")
    _put(root / "workspaces/shared/refs/terms.md", "Terms.\n")
    _put(root / "all_tests.json", json.dumps({"name": "sample", "test": days}))
    return root


def _put(path: Path, content: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content, encoding="utf-8")
