"""Grading: subjects, judgments, the policy of a benchmark, and the grader that applies it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from enum import StrEnum

from pydantic import Field

from sclate_adapters.base import DurationNs, JsonDict, Record, SimNs
from sclate_adapters.errors import FailureClass
from sclate_adapters.records import LifeKey, TurnRecord


class SubjectKind(StrEnum):
    TURN = "turn"
    TURNS = "turns"
    SESSION = "session"
    LIFE = "life"


class Subject(Record):
    """What a judgment is about: a turn key, several turn keys, a session id, or the life."""

    kind: SubjectKind
    keys: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """The name under which the judgment is published."""
        return self.kind.value if self.kind is SubjectKind.LIFE else "+".join(self.keys)


class Judgment(Record):
    """A grader's verdict. No score is missing, never 0: then `failure` says whose fault that is."""

    subject: Subject
    score: float | None
    passed: bool | None
    feedback: str = ""
    evidence: JsonDict = Field(default_factory=dict)
    figures: dict[str, float] = Field(default_factory=dict, description="further named figures")
    grader: str = ""
    failure: FailureClass | None = None


class GradingPolicy(Record):
    """What is graded, when, and who waits.

    `selects`: the subjects that get a grader. `gates`: the next user turn waits for the judgment of the
    one before. `regrade`: whether an earlier subject may be judged again. A turn that is not selected is
    discharged at once: whoever waits for its judgment gets None.
    """

    selects: tuple[Subject, ...]
    gates: bool = True
    regrade: bool = False
    timeout_s: float = Field(120.0, gt=0, description="real seconds per judgment")


class CommandResult(Record):
    """A finished command. `rc` is None when it was killed at its time limit."""

    rc: int | None
    stdout: bytes = b""
    stderr: bytes = b""
    timed_out: bool = False
    truncated: bool = False
    real_ns: DurationNs = 0


class GradeContext(ABC):
    """What a grader may see and do. Commands run in the grader sandbox only, never on the host."""

    life: LifeKey
    subject: Subject
    turns: Sequence[TurnRecord]
    now_ns: SimNs
    workdir: str
    """The private copy of the workspace as it stood when the subject settled."""
    grader_dir: str
    """Holds `Grader.files`, owned by root, out of reach of the code under test."""

    @abstractmethod
    async def run(
        self,
        argv: Sequence[str],
        *,
        timeout_s: float = 30.0,
        env: Mapping[str, str] | None = None,
        max_output: int = 1 << 20,
    ) -> CommandResult:
        """Run in the grader sandbox as an unprivileged user, cwd `workdir`, at the subject's instant."""

    @abstractmethod
    async def put_files(self, files: Mapping[str, bytes]) -> None:
        """Add files to the private copy, by path relative to `workdir`."""

    @abstractmethod
    async def read_file(self, path: str, max_bytes: int = 1 << 20) -> bytes | None:
        """A file of the private copy, or None where there is none."""


class Grader(ABC):
    """Judges subjects; a function of its context."""

    name: str = "grader"

    @property
    def files(self) -> Mapping[str, bytes]:
        """Files placed under `GradeContext.grader_dir`, by relative path."""
        return {}

    @property
    def needs_sandbox(self) -> bool:
        """False for graders that judge from the records alone; then no private copy is made."""
        return True

    def needs_sandbox_for(self, subject: Subject) -> bool:
        """The same, subject by subject."""
        return self.needs_sandbox

    @abstractmethod
    async def evaluate(self, ctx: GradeContext) -> Judgment:
        """Judge `ctx.subject`. An exception is a failure of class `grader`: the result is missing."""
