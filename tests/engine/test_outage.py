"""Protects: a model that does not answer is told once until it may answer, and a life gives up on one that never
has, on no other."""

from __future__ import annotations

import pytest

from sclate.errors import FailureClass
from sclate.outage import GIVE_UP_AFTER, Outage, Patience
from sclate_adapters.records import TurnRecord

MODEL, AGENT = FailureClass.MODEL, FailureClass.AGENT


def test_one_line_until_the_last_try_and_one_when_it_answers() -> None:
    said: list[str] = []
    outage = Outage(said.append)
    outage.answered()
    assert said == [], "that a model answers is no news"
    for tries in (3, 2, 1):
        outage.waiting(f"HTTP 503 {tries}", 60.0 * tries)
    assert len(said) == 1
    assert said[0].startswith("  the model does not answer (since ")
    assert said[0].endswith("simulated time stands still): HTTP 503 3")
    outage.answered()
    outage.answered()
    assert len(said) == 2
    assert said[1] == "  the model answers again, after 0 s"
    outage.waiting("HTTP 500", 60.0)
    assert said[2].endswith("HTTP 500"), "the next outage is another"


def test_the_line_comes_again_when_what_it_promised_is_over() -> None:
    said: list[str] = []
    outage = Outage(said.append)
    outage.waiting("first", -1.0)
    outage.waiting("second", 60.0)
    outage.waiting("third", 60.0)
    assert [line.rpartition(": ")[2] for line in said] == ["first", "second"]
    since = {line.partition("since ")[2].partition(",")[0] for line in said}
    assert len(since) == 1, "it is one outage"


@pytest.mark.parametrize(
    ("failures", "given_up"),
    [
        ([MODEL] * GIVE_UP_AFTER, True),
        ([MODEL] * (GIVE_UP_AFTER - 1), False),
        ([None, *[MODEL] * 9], False),
        ([MODEL, None, *[MODEL] * 9], False),
        ([MODEL, AGENT, *[MODEL] * (GIVE_UP_AFTER - 1)], False),
        ([MODEL, AGENT, *[MODEL] * GIVE_UP_AFTER], True),
        ([AGENT] * 9, False),
    ],
)
def test_a_life_gives_up_on_a_model_that_never_answered(
    failures: list[FailureClass | None], given_up: bool
) -> None:
    told: list[tuple[FailureClass, str]] = []
    patience = Patience(lambda failure, message: told.append((failure, message)))
    for n, failure in enumerate(failures):
        patience.turn(
            TurnRecord(
                key=f"d1/{n}",
                session="d1",
                started_sim_ns=0,
                ended_sim_ns=0,
                failure=failure,
                failure_message="no route" if failure else "",
            )
        )
    assert len(told) == given_up
    assert all(failure is MODEL and message.endswith(": no route") for failure, message in told)
