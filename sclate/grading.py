"""Judging subjects: the grader's own sandbox over a private copy of the workspace.

The copy is refreshed for every judgment, at the subject's simulated instant, by moving a tar from the
agent's sandbox to the grader's; the host never unpacks it. The grader's files belong to root there, and
everything that a command leaves running or writes into home and temporary folders is gone before the next
judgment.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import structlog

from sclate.clock import Charge
from sclate.errors import FailureClass, LifeFailure, SclateError
from sclate.hooks import EngineGradeContext
from sclate_adapters.judgments import Grader, Judgment, Subject, SubjectKind
from sclate_adapters.records import TurnRecord

if TYPE_CHECKING:
    from sclate.life import Life
    from sclate.sandbox.protocol import Sandbox

log = structlog.get_logger()

GRADER_DIR = "/run/grader"
GRADER_ENV = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": "/home/agent", "LANG": "C.UTF-8"}


class Grading:
    """Grades for one life, in a sandbox of its own that lives as long."""

    def __init__(self, life: Life, grader: Grader) -> None:
        self._life = life
        self._grader = grader
        self._sandbox: Sandbox | None = None
        self._starting = asyncio.Lock()

    async def judge(self, subject: Subject, timeout_s: float) -> Judgment:
        """A judgment; without a score and with a failure class when grading itself failed, or when the
        turn failed by a fault that is not the agent's."""
        turns = self._life.turns_of(subject)
        blameless = next((t for t in turns if t.failure not in (None, FailureClass.AGENT)), None)
        if blameless is not None:
            return self._missing(subject, blameless.failure, blameless.failure_message)
        try:
            async with asyncio.timeout(timeout_s):
                return await self._judge(subject, turns)
        except TimeoutError:
            await self.close()  # whatever hangs in it goes with it
            return self._missing(subject, FailureClass.GRADER, f"no judgment within {timeout_s:g} s")
        except LifeFailure as error:
            if error.failure is FailureClass.AGENT:  # e.g. a workspace that cannot be kept: its own doing
                return self._missing(subject, error.failure, error.message).model_copy(
                    update={"score": 0.0, "passed": False}
                )
            return self._missing(subject, error.failure, error.message)
        except Exception as error:
            boundary = FailureClass.SANDBOX if isinstance(error, SclateError) else FailureClass.GRADER
            log.exception("grading failed", subject=subject.key)
            return self._missing(subject, boundary, f"{type(error).__name__}: {error}")

    def _missing(self, subject: Subject, failure: FailureClass | None, message: str) -> Judgment:
        return Judgment(
            subject=subject,
            score=None,
            passed=None,
            failure=failure,
            evidence={"message": message},
            grader=self._grader.name,
        )

    async def _judge(self, subject: Subject, turns: list[TurnRecord]) -> Judgment:
        sandbox = None
        if self._grader.needs_sandbox_for(subject):
            sandbox = await self._fresh_copy(subject)
        context = EngineGradeContext(
            life=self._life.key,
            subject=subject,
            turns=turns,
            now_ns=self._life.clock.now(),
            workdir=self._life.workspace.workdir,
            grader_dir=GRADER_DIR,
            sandbox=sandbox,
            env={**GRADER_ENV, "TZ": self._life.scenario.zone},
        )
        judgment = await self._grader.evaluate(context)
        of_turns = subject.kind in (SubjectKind.TURN, SubjectKind.TURNS)
        if of_turns and judgment.failure is None and any(t.failure is FailureClass.AGENT for t in turns):
            # Judged as it stands, and it is said that the agent did not end its turn.
            return judgment.model_copy(update={"failure": FailureClass.AGENT})
        return judgment

    async def _fresh_copy(self, subject: Subject) -> Sandbox:
        with self._life.clock.freeze(f"copy for grading {subject.key}", Charge.ENGINE):
            return await self._copy(subject)

    async def _copy(self, subject: Subject) -> Sandbox:
        workspace = self._life.workspace
        sandbox = await self.sandbox()
        live = self._life.live_sandbox
        await sandbox.kill_user("agent")
        sandbox.set_offset(self._life.clock.offset_ns())
        wipe = [workspace.workdir, "/home/agent", "/tmp", "/dev/shm"]
        if live is not None and subject.kind in (SubjectKind.TURN, SubjectKind.TURNS):
            saved = await workspace.save(live)
            try:
                await sandbox.restore(saved.path, saved.digest, "agent", wipe=wipe)
            finally:
                saved.path.unlink()
        elif workspace.base is not None:
            tar = self._life.store.path(workspace.base)
            await sandbox.restore(tar, workspace.base, "agent", wipe=wipe)
        return sandbox

    async def sandbox(self) -> Sandbox:
        """The grader sandbox, started when first needed and kept: every copy finds its places wiped. One that
        does not come up, in time or at all, is gone before anybody hears of it."""
        async with self._starting:  # a hook and a judgment may need it at the same time
            if self._sandbox is None:
                with self._life.clock.freeze("start of the grader sandbox", Charge.SESSIONS):
                    self._sandbox = await self._started()
            return self._sandbox

    async def _started(self) -> Sandbox:
        files = {f"{GRADER_DIR}/{path}": data for path, data in self._grader.files.items()}
        sandbox = self._life.make_sandbox("grader")
        try:
            sandbox.set_offset(self._life.clock.offset_ns())
            await sandbox.start()
            if files:
                await sandbox.put_files(files, "root")
        except BaseException:
            await sandbox.close()
            raise
        return sandbox

    async def close(self) -> None:
        """At the life's end, and whenever something may hang in it."""
        if self._sandbox is not None:
            sandbox, self._sandbox = self._sandbox, None
            await sandbox.close()
