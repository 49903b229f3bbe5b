"""The way of a model call, whole: harness, proxy, gateway, model, and back, in a real sandbox on its clock."""

from __future__ import annotations

import asyncio
import json
import time
from datetime import UTC, datetime
from typing import Any

import pytest

from sclate.models.scripted import ScriptedModel
from sclate_adapters.agent import AgentContext
from sclate_adapters.effects import SessionPlan
from sclate_adapters.records import Delivery, DeliveryKind, LifeKey
from sclate_adapters.signals import Consumed, Signal, TurnFinished
from sclate_agents.memory.native import NativeMemory
from tests.agents.kit import AGENT
from tests.capture.box import PROXY, box

pytestmark = pytest.mark.docker

MONDAY = int(datetime(2031, 3, 3, 9, tzinfo=UTC).timestamp()) * 10**9


def test_a_turn_in_the_sandbox() -> None:
    script: list[dict[str, Any]] = [
        {"status": 529},
        {"tool": "bash", "input": {"command": "date -u +%F; id -u; pwd; echo kept >> ~/memory/notes.md"}},
        {"text": "8€"},
    ]
    ctx = AgentContext(
        life=LifeKey(scenario="x", arm="reference+native"),
        session=SessionPlan(id="s1", start_ns=MONDAY),
        memory=NativeMemory(),
        model="m-1",
        base_url=f"{PROXY}/agent",
    )
    signals: list[Signal] = []
    done = asyncio.Event()
    channel = AGENT.channel(ctx)

    def output(stream: str, lines: list[bytes], _: int) -> None:
        for line in lines:
            signals.extend(channel.decode("stdout" if stream == "stdout" else "stderr", line))
        if any(isinstance(s, TurnFinished) for s in signals):
            done.set()

    async def main() -> None:
        async with box(ScriptedModel(script), offset_ns=MONDAY - time.time_ns()) as sandbox:
            provision, launch = AGENT.provision(ctx), AGENT.launch(ctx)
            await sandbox.sandbox.put_files(provision.files, "agent")
            harness = await sandbox.sandbox.spawn(
                "harness",
                launch.argv,
                user="agent",
                cwd=launch.cwd,
                env={**launch.env, **provision.env},
                on_output=output,
            )
            delivery = Delivery(id="d1", kind=DeliveryKind.TURN, session="s1", text="what day is it?")
            await harness.write(channel.encode(delivery))
            async with asyncio.timeout(30):
                await done.wait()
                await harness.close_stdin()
                assert await harness.wait() == 0
            first, second = await sandbox.records(2)
            notes = await sandbox.sandbox.read_file("/home/agent/memory/notes.md", "agent")
        assert Consumed(ids=("d1",)) in signals
        assert TurnFinished(text="8€", stop="end_turn") in signals
        assert (first.retries, second.retries, second.text) == (1, 0, "8€")
        assert second.request is not None
        (result,) = second.request["messages"][-1]["content"]
        assert result["content"] == "2031-03-03\n64001\n/work\n"
        assert "Current date: Monday 2031-03-03T" in second.request["system"]
        assert notes == b"kept\n"
        assert json.dumps(first.request).count("what day") == 1

    asyncio.run(main())
