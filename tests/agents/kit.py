"""The real reference harness as a process, a model on a port, and the adapter between them."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from sclate.models.serve import serve
from sclate_adapters.agent import AgentContext
from sclate_adapters.effects import SessionPlan
from sclate_adapters.memory import MemorySystem
from sclate_adapters.models import (
    Message,
    ModelBackend,
    ModelFault,
    ModelReply,
    ModelRequest,
    StopReason,
    TextPart,
    ToolCallPart,
    ToolResultPart,
)
from sclate_adapters.records import Delivery, DeliveryKind, LifeKey
from sclate_adapters.signals import Signal
from sclate_agents.harness.reference.adapter import ReferenceAgent
from sclate_agents.memory.native import NativeMemory

AGENT = ReferenceAgent()


def text(value: str) -> ModelReply:
    return ModelReply(parts=(TextPart(text=value),))


def call(*tools: tuple[str, dict[str, Any]]) -> ModelReply:
    parts = tuple(ToolCallPart(id=f"t{n}", name=name, input=args) for n, (name, args) in enumerate(tools))
    return ModelReply(parts=parts, stop_reason=StopReason.TOOL_USE)


def bash(command: str, **fields: Any) -> ModelReply:
    return call(("bash", {"command": command, **fields}))


def fault(status: int, **fields: Any) -> ModelReply:
    return ModelReply(parts=(TextPart(text="x"),), fault=ModelFault(status=status, message="no", **fields))


class Model(ModelBackend):
    """Answers in order and keeps what it was asked. `before` may hold an answer back."""

    name = "in-order"

    def __init__(self, *replies: ModelReply) -> None:
        self._replies = list(replies)
        self.requests: list[ModelRequest] = []
        self.before: Callable[[int], Awaitable[None]] | None = None

    async def respond(self, request: ModelRequest) -> ModelReply:
        self.requests.append(request)
        if self.before is not None:
            await self.before(len(self.requests))
        return self._replies.pop(0) if self._replies else text("no more")

    def results(self, request: int = -1) -> list[ToolResultPart]:
        """The tool results in the last message of a request."""
        return [p for p in self.last(request).parts if isinstance(p, ToolResultPart)]

    def last(self, request: int = -1) -> Message:
        return self.requests[request].messages[-1]


def context(home: Path, base_url: str, memory: MemorySystem | None = None) -> AgentContext:
    (home / "work").mkdir(parents=True, exist_ok=True)
    return AgentContext(
        life=LifeKey(scenario="x", arm="reference+native"),
        session=SessionPlan(id="s1", start_ns=1_900_000_000_000_000_000),
        memory=memory or NativeMemory(),
        model="m-1",
        base_url=base_url,
        home=str(home),
        workdir=str(home / "work"),
        path=f"{Path(sys.executable).parent}:/usr/bin:/bin",
    )


class Running:
    """A harness under way. `lines` is all it said, `signals` what the adapter makes of it."""

    def __init__(self, process: asyncio.subprocess.Process, ctx: AgentContext) -> None:
        self.process = process
        self.lines: list[dict[str, Any]] = []
        self.signals: list[Signal] = []
        self._channel = AGENT.channel(ctx)

    async def send(self, text: str, id: str = "d1", kind: DeliveryKind = DeliveryKind.TURN) -> None:
        await self.raw(self._channel.encode(Delivery(id=id, kind=kind, session="s1", text=text)))

    async def raw(self, data: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(data)
        await self.process.stdin.drain()

    async def until(self, type_: str, within_s: float = 30.0) -> dict[str, Any]:
        """The next line of this type; all lines before it are read too."""
        assert self.process.stdout is not None
        async with asyncio.timeout(within_s):
            while True:
                raw = await self.process.stdout.readline()
                assert raw, f"the harness ended: {self.lines[-5:]}"
                self.lines.append(json.loads(raw))
                self.signals += self._channel.decode("stdout", raw.rstrip(b"\n"))
                if self.lines[-1]["type"] == type_:
                    return self.lines[-1]

    async def turn(self, text: str, id: str = "d1", kind: DeliveryKind = DeliveryKind.TURN) -> dict[str, Any]:
        """One turn to its end, and idle after it."""
        await self.send(text, id, kind)
        finished = await self.until("turn_finished")
        await self.until("idle")
        return finished

    async def stop(self) -> int:
        """As its adapter asks it to."""
        assert self._channel.stop().how == "close_stdin"
        assert self.process.stdin is not None
        self.process.stdin.close()
        async with asyncio.timeout(20):
            return await self.process.wait()

    def types(self) -> list[str]:
        return [line["type"] for line in self.lines]


@asynccontextmanager
async def harness(ctx: AgentContext) -> AsyncIterator[Running]:
    """Provisioned, launched and idle, as the engine does it."""
    provision, launch = AGENT.provision(ctx), AGENT.launch(ctx)
    for path, data in provision.files.items():
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).write_bytes(data)
    process = await asyncio.create_subprocess_exec(
        *launch.argv,
        cwd=launch.cwd,
        env={"LANG": "C", **launch.env, **provision.env},
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        limit=1 << 24,
    )
    running = Running(process, ctx)
    try:
        await running.until("idle")
        yield running
    finally:
        if process.returncode is None:
            os.kill(process.pid, 9)
        await process.communicate()


@asynccontextmanager
async def agent(
    model: ModelBackend, home: Path, memory: MemorySystem | None = None
) -> AsyncIterator[Running]:
    """A harness with its model."""
    async with serve(model) as url, harness(context(home, url, memory)) as running:
        yield running
