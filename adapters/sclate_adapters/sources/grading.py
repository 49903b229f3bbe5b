"""Grading on the timeline: each selected subject is judged once it settled."""

from __future__ import annotations

from collections.abc import Sequence

from sclate_adapters.effects import Owner, Place, RunHook
from sclate_adapters.events import EventSource, Origin, Phase, SourceContext, Steps, Topic
from sclate_adapters.judgments import GradingPolicy, Subject, SubjectKind

GRADE_HOOK = "grade"
"""Reserved hook name: the engine calls the benchmark's grader and publishes its judgment."""


class GradingSource(EventSource):
    """Grades what the policy selects and discharges every other turn.

    Args:
        policy: the benchmark's.
        turns: keys of all turns that somebody may wait for.
        sessions: ids of all sessions, for subjects of kind `session` and `life`.
    """

    origin = Origin.BENCHMARK

    def __init__(
        self,
        policy: GradingPolicy,
        turns: Sequence[str],
        sessions: Sequence[str] = (),
        name: str = "grading",
    ) -> None:
        self.name = name
        self.policy = policy
        self.turns = tuple(turns)
        self.sessions = tuple(sessions)

    def run(self, ctx: SourceContext) -> Steps:
        graded = {k for s in self.policy.selects if s.kind is SubjectKind.TURN for k in s.keys}
        waits = [ctx.process(self._judge(ctx, subject)) for subject in self.policy.selects]
        waits += [ctx.process(self._discharge(ctx, key)) for key in self.turns if key not in graded]
        yield ctx.all_of(waits)

    def _discharge(self, ctx: SourceContext, key: str) -> Steps:
        yield ctx.fact(Topic.TURN_SETTLED, key)
        ctx.publish(Topic.JUDGMENT, key, None)

    def _judge(self, ctx: SourceContext, subject: Subject) -> Steps:
        if subject.kind in (SubjectKind.TURN, SubjectKind.TURNS):
            yield ctx.all_of([ctx.fact(Topic.TURN_SETTLED, key) for key in subject.keys])
        else:
            sessions = subject.keys if subject.kind is SubjectKind.SESSION else self.sessions
            yield ctx.all_of([ctx.fact(Topic.SESSION_CLOSED, s) for s in sessions])
        graded = ctx.at(
            ctx.now,
            Phase.GRADING,
            RunHook(
                owner=Owner.BENCHMARK,
                hook=GRADE_HOOK,
                args={"subject": subject.model_dump(mode="json")},
                place=Place.GRADER,
                timeout_s=self.policy.timeout_s,
            ),
            kind="grade",
        )
        yield graded.ended
