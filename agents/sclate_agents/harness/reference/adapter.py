"""The reference harness in the words of the contract."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from hashlib import sha256
from importlib.resources import files
from typing import ClassVar, Literal

from sclate_adapters.agent import (
    AgentAdapter,
    AgentCapabilities,
    AgentChannel,
    AgentContext,
    ProcessSpec,
    Provision,
    StateSpec,
    StopRequest,
)
from sclate_adapters.base import JsonDict, whole_text
from sclate_adapters.errors import FailureClass
from sclate_adapters.events import EventSource
from sclate_adapters.memory import MemorySystem
from sclate_adapters.models import Dialect
from sclate_adapters.records import CallClass, CallRecord, Delivery, DeliveryKind
from sclate_adapters.signals import (
    Alive,
    BackgroundTask,
    Consumed,
    CronCleared,
    CronSet,
    Failed,
    Idle,
    Signal,
    TurnFinished,
    TurnStarted,
)
from sclate_adapters.sources import CronSource

PROGRAM = files(__package__).joinpath("harness.py").read_bytes()
LINE_TYPES = {
    DeliveryKind.TURN: "user",
    DeliveryKind.NOTICE: "notice",
    DeliveryKind.SYSTEM: "notice",
    DeliveryKind.CRON: "cron",
}


class ReferenceChannel(AgentChannel):
    """JSON lines both ways; lines that are none of ours are ignored."""

    def encode(self, delivery: Delivery) -> bytes:
        line = {"type": LINE_TYPES[delivery.kind], "id": delivery.id, "text": delivery.text}
        return json.dumps(line).encode() + b"\n"

    def decode(self, stream: Literal["stdout", "stderr"], line: bytes) -> Iterable[Signal]:
        if stream != "stdout":
            return ()
        try:
            event = json.loads(line)
            signal = _signal({k: whole_text(v) if isinstance(v, str) else v for k, v in event.items()})
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return ()  # the agent's own processes can write here too
        return () if signal is None else (signal,)

    def stop(self) -> StopRequest:
        return StopRequest(how="close_stdin", grace_s=10.0)


def _signal(event: JsonDict) -> Signal | None:
    match event.get("type"):
        case "alive":
            return Alive()
        case "turn_started":
            return TurnStarted(trigger=event["trigger"])
        case "consumed":
            return Consumed(ids=tuple(event["ids"]))
        case "turn_finished":
            return TurnFinished(text=event["text"], stop=event["stop"])
        case "idle":
            return Idle()
        case "background_started" | "background_ended" as kind:
            return BackgroundTask(id=event["id"], running=kind == "background_started")
        case "cron_set":
            return CronSet(id=event["id"], cron=event["cron"], zone=event["zone"], prompt=event["prompt"])
        case "cron_cleared":
            return CronCleared(id=event["id"])
        case "error":
            return Failed(failure=FailureClass.MODEL, message=event["message"])
    return None


class ReferenceAgent(AgentAdapter):
    """Our own small harness: the embedded default, and what the tests run on."""

    name: ClassVar[str] = "reference"
    version: ClassVar[str] = "1+" + sha256(PROGRAM).hexdigest()[:12]
    capabilities: ClassVar[AgentCapabilities] = AgentCapabilities(
        delivery="mid_turn",
        crons=True,
        dialects=(Dialect.MESSAGES,),
        signals=("alive", "turn_started", "consumed", "turn_finished", "idle", "cron_set", "cron_cleared"),
        request_timeout_ns=600_000_000_000,
    )

    def provision(self, ctx: AgentContext) -> Provision:
        env = {
            "ANTHROPIC_BASE_URL": ctx.base_url,
            "REFERENCE_HOME": f"{ctx.home}/.reference",
            "REFERENCE_MODEL": ctx.model,
        }
        if ctx.memory.mode != "none":
            env["REFERENCE_MEMORY_DIR"] = f"{ctx.home}/memory"
        return Provision(files={f"{ctx.home}/.reference/harness.py": PROGRAM}, env=env)

    def launch(self, ctx: AgentContext) -> ProcessSpec:
        argv = ("python3", "-u", f"{ctx.home}/.reference/harness.py")
        return ProcessSpec(argv=argv, env={"HOME": ctx.home, "PATH": ctx.path}, cwd=ctx.workdir)

    def channel(self, ctx: AgentContext) -> AgentChannel:
        return ReferenceChannel()

    def durable_state(self, ctx: AgentContext) -> StateSpec:
        home = ctx.home
        return StateSpec(
            harness=(f"{home}/.reference/crons.json", f"{home}/.reference/transcripts"),
            memory=(f"{home}/memory",) if ctx.memory.mode != "none" else (),
        )

    def classify_call(self, record: CallRecord) -> CallClass:
        return CallClass.MAIN

    def event_sources(self, memory: MemorySystem) -> Sequence[EventSource]:
        return (CronSource(name="reference_cron"),)
