"""What an adapter's hook may touch, on the host, in the agent's sandbox or in the grader's."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from sclate.sandbox.protocol import RunResult, Sandbox
from sclate.scheduler import Scheduler
from sclate.state import Workspace
from sclate_adapters.base import JsonDict
from sclate_adapters.benchmark import HookContext, Scenario
from sclate_adapters.judgments import CommandResult, GradeContext, Subject
from sclate_adapters.records import LifeKey, TurnRecord, WorldWrite


def command_result(run: RunResult) -> CommandResult:
    """A sandbox's result in the contract's words."""
    return CommandResult(
        rc=None if run.timed_out else run.rc,
        stdout=run.stdout,
        stderr=run.stderr,
        timed_out=run.timed_out,
        truncated=run.truncated,
    )


class EngineHookContext(HookContext):
    """The context of one hook call.

    Args:
        sandbox: where `run` runs, or None for a hook on the host.
        flowing: whether time may pass inside.
        record: appends to the world's log.
    """

    def __init__(
        self,
        life: LifeKey,
        scenario: Scenario,
        scheduler: Scheduler,
        state_dir: Path,
        workspace: Workspace,
        record: Callable[[str, JsonDict], WorldWrite],
        *,
        sandbox: Sandbox | None = None,
        flowing: bool = False,
    ) -> None:
        self.life = life
        self.scenario = scenario
        self.now_ns = scheduler.clock.now()
        self.state_dir = state_dir
        self.workspace: Workspace = workspace
        self._scheduler = scheduler
        self._record = record
        self._sandbox = sandbox
        self._flowing = flowing

    async def run(self, argv: Sequence[str], *, timeout_s: float = 60.0) -> CommandResult:
        if self._sandbox is None:
            raise RuntimeError("a hook on the host runs no commands; declare place=sandbox or grader")
        return command_result(
            await self._sandbox.run(list(argv), user="agent", cwd=self.workspace.workdir, timeout_s=timeout_s)
        )

    async def elapse(self, sim_ns: int) -> None:
        if not self._flowing:
            raise RuntimeError("time stands still in this hook; use AsyncReserve or flow=True")
        await self._scheduler.sleep_until(self._scheduler.clock.now() + sim_ns)

    def write_world(self, key: str, value: JsonDict) -> WorldWrite:
        return self._record(key, value)


class EngineGradeContext(GradeContext):
    """The context of one judgment, over a private copy of the workspace."""

    def __init__(
        self,
        life: LifeKey,
        subject: Subject,
        turns: Sequence[TurnRecord],
        now_ns: int,
        workdir: str,
        grader_dir: str,
        sandbox: Sandbox | None,
        env: Mapping[str, str],
    ) -> None:
        self.life = life
        self.subject = subject
        self.turns = turns
        self.now_ns = now_ns
        self.workdir = workdir
        self.grader_dir = grader_dir
        self._sandbox = sandbox
        self._env = env

    def _box(self) -> Sandbox:
        if self._sandbox is None:
            raise RuntimeError("this subject was declared to need no grader sandbox")
        return self._sandbox

    async def run(
        self,
        argv: Sequence[str],
        *,
        timeout_s: float = 30.0,
        env: Mapping[str, str] | None = None,
        max_output: int = 1 << 20,
    ) -> CommandResult:
        return command_result(
            await self._box().run(
                list(argv),
                user="agent",
                cwd=self.workdir,
                env={**self._env, **(env or {})},
                timeout_s=timeout_s,
                max_output=max_output,
            )
        )

    async def put_files(self, files: Mapping[str, bytes]) -> None:
        await self._box().put_files({f"{self.workdir}/{p}": d for p, d in files.items()}, "agent")

    async def read_file(self, path: str, max_bytes: int = 1 << 20) -> bytes | None:
        return await self._box().read_file(f"{self.workdir}/{path}", "agent", max_bytes)
