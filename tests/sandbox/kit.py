"""A sandbox under test, driven from plain functions."""

from __future__ import annotations

import asyncio
import textwrap
from collections.abc import Coroutine, Mapping
from typing import Any, Literal, TypeVar

import docker
import pytest

from sclate.sandbox.build import Built
from sclate.sandbox.docker import DockerSandbox
from sclate.sandbox.protocol import UIDS, Limits, Output, RunResult, SandboxSpec, User

T = TypeVar("T")
SOON_S = 10.0
"""Deadline of every wait: far above what anything here takes."""


def spec(
    built: Built, *, limits: Limits | None = None, labels: Mapping[str, str] | None = None, image: str = ""
) -> SandboxSpec:
    return SandboxSpec(
        image=image or built.image,
        runtime=built.runtime,
        role="agent",
        limits=limits or Limits(),
        labels={"sclate.test": "sandbox", **(labels or {})},
    )


class Lines:
    """Collects a process's output and lets a test wait for a line."""

    def __init__(self) -> None:
        self.stdout: list[bytes] = []
        self.stderr: list[bytes] = []
        self._news = asyncio.Event()

    def __call__(self, stream: Literal["stdout", "stderr"], lines: list[bytes], _at_ns: int) -> None:
        (self.stdout if stream == "stdout" else self.stderr).extend(lines)
        self._news.set()

    async def more_than(self, count: int) -> list[bytes]:
        """Stdout, once it has more than `count` lines."""
        try:
            async with asyncio.timeout(SOON_S):
                while len(self.stdout) <= count:
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError:
            pytest.fail(f"no line {count + 1}; stdout {self.stdout[-3:]}, stderr {self.stderr[-10:]}")
        return self.stdout


class Box:
    """A started sandbox and the event loop it lives on."""

    def __init__(self, sandbox_spec: SandboxSpec, client: docker.DockerClient) -> None:
        self.sandbox = DockerSandbox(sandbox_spec, client)
        self._runner = asyncio.Runner()
        try:
            self.do(self.sandbox.start())
        except BaseException:
            self.close()
            raise

    def do(self, work: Coroutine[Any, Any, T], timeout_s: float = 60.0) -> T:
        return self._runner.run(asyncio.wait_for(work, timeout_s))

    def close(self) -> None:
        self.do(self.sandbox.close())
        self._runner.close()

    def run(self, *argv: str, user: User = "agent", timeout_s: float = SOON_S, **more: Any) -> RunResult:
        return self.do(self.sandbox.run(argv, user=user, timeout_s=timeout_s, **more), timeout_s + SOON_S)

    def out(self, *argv: str, user: User = "agent", **more: Any) -> str:
        """Stdout of a command that must succeed, without white space at its ends."""
        result = self.run(*argv, user=user, **more)
        assert result.rc == 0, (argv, result)
        return result.stdout.decode().strip()

    def python(self, script: str, *argv: str, user: User = "agent", **more: Any) -> str:
        """Stdout of a program under the image's Python."""
        return self.out("python3", "-c", textwrap.dedent(script), *argv, user=user, **more)

    async def spawn_python(
        self, key: str, script: str, on_output: Output, *, user: User = "agent", stdin: bool = True
    ) -> Any:
        argv = ["python3", "-uc", textwrap.dedent(script)]
        return await self.sandbox.spawn(key, argv, user=user, on_output=on_output, stdin=stdin)

    def alive(self, user: User) -> list[str]:
        """Command names of a user's live processes, as the host sees them: by credentials, not by owner."""
        assert self.sandbox.container_id is not None
        answer = self.do(self.sandbox.channel.ask("ps", "ps", timeout_s=SOON_S))
        return [
            row["comm"]
            for row in answer["table"].values()
            if row["uid"] == UIDS[user] and row["state"] not in "ZX"
        ]
