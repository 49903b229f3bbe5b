"""What went wrong in a life, counted by place and class, each with an example."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Literal

from sclate.errors import FailureClass
from sclate_adapters.base import Record
from sclate_adapters.judgments import Judgment
from sclate_adapters.records import SessionRecord, TurnRecord

Where = Literal["judgment", "turn", "session"]


class FailureCount(Record):
    """So many at one place failed as one class. `judgment`: those that are missing. `example`: the first."""

    where: Where
    failure: FailureClass
    count: int
    example: str


def count_failures(
    judgments: Iterable[Judgment], turns: Iterable[TurnRecord], sessions: Iterable[SessionRecord]
) -> tuple[FailureCount, ...]:
    """Missing judgments, failed turns and failed sessions, in order of their first."""
    found: dict[tuple[Where, FailureClass], FailureCount] = {}
    for where, failure, example in _all(judgments, turns, sessions):
        first = found.get((where, failure))
        counted = first.count + 1 if first else 1
        found[where, failure] = FailureCount(
            where=where, failure=failure, count=counted, example=first.example if first else example
        )
    return tuple(found.values())


def _all(
    judgments: Iterable[Judgment], turns: Iterable[TurnRecord], sessions: Iterable[SessionRecord]
) -> Iterator[tuple[Where, FailureClass, str]]:
    for judgment in judgments:
        if judgment.score is None:
            said = judgment.evidence.get("message", "")
            # A grader that gives no score and no reason has failed itself.
            yield "judgment", judgment.failure or FailureClass.GRADER, f"{judgment.subject.key}: {said}"
    for turn in turns:
        if turn.failure is not None:
            yield "turn", turn.failure, f"{turn.key}: {turn.failure_message}"
    for session in sessions:
        if session.failure is not None:
            yield "session", session.failure, f"{session.id}: {session.failure_message}"
