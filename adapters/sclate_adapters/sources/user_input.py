"""User turns: the next one when earlier ones are settled and, where the policy gates, judged."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from pydantic import Field

from sclate_adapters.base import DurationNs, JsonDict, Record, SimNs
from sclate_adapters.effects import Deliver
from sclate_adapters.events import (
    EventSource,
    Origin,
    Phase,
    SourceContext,
    Steps,
    Topic,
)
from sclate_adapters.judgments import Judgment
from sclate_adapters.records import Delivery, DeliveryKind


class Interjection(Record):
    """A message that arrives `delay_ns` after its turn started: in mid-turn if the agent is still at it."""

    id: str
    delay_ns: DurationNs
    text: str


class TurnPlan(Record):
    """One user turn. `key` is `session/name`; `not_before_ns` is its earliest instant, if any."""

    key: str
    session: str
    text: str = ""
    not_before_ns: SimNs | None = None
    interjections: tuple[Interjection, ...] = ()
    data: JsonDict = Field(default_factory=dict, repr=False)


Compose = Callable[[TurnPlan, Mapping[str, Judgment | None]], str]
"""The text of a turn, from its plan and the judgments of the session's earlier turns by key."""


def plain_text(turn: TurnPlan, judgments: Mapping[str, Judgment | None]) -> str:
    """Compose a turn as planned."""
    return turn.text


class UserInputSource(EventSource):
    """Plays the user: session by session, turn by turn.

    Args:
        turns: all turns of the life, grouped by session in order.
        compose: makes the text of a turn at the moment it is sent.
        gates: wait for a turn's judgment before the next.
        finishes_session: publish SESSION_WORK_DONE after a session's last turn.
    """

    origin = Origin.BENCHMARK

    def __init__(
        self,
        turns: Sequence[TurnPlan],
        *,
        compose: Compose = plain_text,
        gates: bool = True,
        finishes_session: bool = True,
        name: str = "user_input",
    ) -> None:
        self.name = name
        self.compose = compose
        self.gates = gates
        self.finishes_session = finishes_session
        self.by_session: dict[str, list[TurnPlan]] = {}
        for turn in turns:
            self.by_session.setdefault(turn.session, []).append(turn)

    def run(self, ctx: SourceContext) -> Steps:
        for session, turns in self.by_session.items():
            opened = ctx.fact(Topic.SESSION_OPEN, session)
            finished = ctx.fact(Topic.SESSION_WORK_DONE, session)
            yield ctx.any_of([opened, finished])
            if not ctx.known(Topic.SESSION_OPEN, session):
                continue
            yield from self._session(ctx, session, turns)
            if self.finishes_session and not ctx.known(Topic.SESSION_WORK_DONE, session):
                ctx.publish(Topic.SESSION_WORK_DONE, session)

    def _session(self, ctx: SourceContext, session: str, turns: list[TurnPlan]) -> Steps:
        judgments: dict[str, Judgment | None] = {}
        for turn in turns:
            if turn.not_before_ns is not None:
                yield ctx.until(turn.not_before_ns)
            if ctx.known(Topic.SESSION_CLOSED, session):
                return
            text = self.compose(turn, judgments)
            for extra in turn.interjections:
                ctx.after(
                    [ctx.fact(Topic.TURN_STARTED, turn.key)],
                    extra.delay_ns,
                    Phase.USER,
                    Deliver(
                        delivery=Delivery(
                            id=extra.id, kind=DeliveryKind.NOTICE, session=session, text=extra.text
                        )
                    ),
                    kind="user.interjection",
                )
            sent = ctx.at(
                ctx.now if turn.not_before_ns is None else max(ctx.now, turn.not_before_ns),
                Phase.USER,
                Deliver(
                    delivery=Delivery(
                        id=turn.key, kind=DeliveryKind.TURN, session=session, text=text, turn=turn.key
                    )
                ),
                kind="user.turn",
            )
            yield ctx.all_of([sent.ended, ctx.fact(Topic.TURN_SETTLED, turn.key)])
            if self.gates:
                judgments[turn.key] = yield ctx.fact(Topic.JUDGMENT, turn.key)
