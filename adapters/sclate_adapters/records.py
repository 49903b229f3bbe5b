"""What a life leaves behind: keys, deliveries, turns, sessions, calls, snapshots."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

from pydantic import Field

from sclate_adapters.base import DurationNs, JsonDict, Record, SimNs
from sclate_adapters.errors import FailureClass
from sclate_adapters.models import Dialect, Usage


class LifeKey(Record):
    """Names one life. Every durable record carries it, also where a run has one life."""

    scenario: str
    arm: str = Field(description="harness+memory, e.g. reference+native")
    sample: int = 0
    attempt: int = 1

    def slug(self) -> str:
        """A folder name: `scenario--arm--s0--a1` with path separators replaced."""
        return f"{self.scenario}--{self.arm}--s{self.sample}--a{self.attempt}".replace("/", "_")


class DeliveryKind(StrEnum):
    TURN = "turn"
    NOTICE = "notice"
    SYSTEM = "system"
    CRON = "cron"


class Delivery(Record):
    """Something handed to the agent. A `turn` expects an answer; a `notice` may come in mid-turn.

    `turn` is the key that judgments refer to, `session/turn`; a delivery that no grader asks about may
    leave it None. `id` is unique in the life.
    """

    id: str
    kind: DeliveryKind
    session: str
    text: str
    turn: str | None = None


class DeliveryState(StrEnum):
    """How a delivery ended. `uncertain`: the process died between the write and its consumption."""

    DELIVERED = "delivered"
    UNDELIVERED = "undelivered"
    UNCERTAIN = "uncertain"


class TurnRecord(Record):
    """One turn, from start to settling. It answers none, one or several deliveries."""

    key: str = Field(description="session/n; a turn that answers a delivery with a turn key has that key")
    session: str
    deliveries: tuple[Delivery, ...] = ()
    trigger: str = "user"
    text: str = ""
    stop: str = ""
    started_sim_ns: SimNs
    ended_sim_ns: SimNs
    real_ns: DurationNs = 0
    calls: int = 0
    usage: Usage = Usage()
    failure: FailureClass | None = None
    failure_message: str = ""


class Snapshot(Record):
    """The three states at a session boundary, by digest (`sha256:...`); addressable by `address()`."""

    world: str
    workspace: str
    harness: str
    memory: str

    def address(self) -> str:
        from hashlib import sha256

        return "sha256:" + sha256(self.model_dump_json().encode()).hexdigest()


class SessionRecord(Record):
    """One session. `before` and `after` are the states that it started from and left."""

    id: str
    wake: bool = False
    started_sim_ns: SimNs
    ended_sim_ns: SimNs
    real_ns: DurationNs
    overhead_real_ns: DurationNs = Field(0, description="real time that its start and its saving took")
    turns: int = 0
    before: Snapshot
    after: Snapshot
    failure: FailureClass | None = None
    failure_message: str = ""


class CallClass(StrEnum):
    """What a model call was for, by the harness's own markers."""

    MAIN = "main"
    SUBAGENT = "subagent"
    SIDE = "side"
    COMPACTION = "compaction"


class CallRecord(Record):
    """One model request and its response, as the proxy in the sandbox saw it.

    Token ids and log-probs are those of the engine or None, never re-tokenised and never guessed; a call
    that lacks any has the reason in `unfaithful`. `prompt_token_ids`: shape (P,), `output_token_ids` and
    `output_logprobs`: shape (N,), N == completion tokens. Instants: `*_sim_ns` on the simulated clock,
    `*_real_ns` on the host's CLOCK_REALTIME.
    """

    seq: int
    session: str
    turn: str | None = None
    route: str
    call_class: CallClass | None = None
    dialect: Dialect | None = None
    method: str = "POST"
    path: str = ""
    model: str = ""
    streamed: bool = False
    status: int | None = None
    request: JsonDict | None = None
    response: JsonDict | None = Field(None, description="JSON body, or the message assembled from the stream")
    text: str = ""
    tool_calls: tuple[JsonDict, ...] = ()
    usage: Usage = Usage()
    raw_usage: tuple[JsonDict, ...] = Field((), description="usage objects as they came, in order")
    finish_reason: str | None = None
    sampling: JsonDict = Field(default_factory=dict)
    weight_version_first: str | None = None
    weight_version_last: str | None = None
    prompt_token_ids: tuple[int, ...] | None = None
    output_token_ids: tuple[int, ...] | None = None
    output_logprobs: tuple[float, ...] | None = None
    unfaithful: str | None = "token ids and log-probs were not returned by the endpoint"
    start_real_ns: int
    first_byte_real_ns: int | None = None
    end_real_ns: int
    start_sim_ns: SimNs | None = None
    first_byte_sim_ns: SimNs | None = None
    end_sim_ns: SimNs | None = None
    retries: int = 0
    truncated: bool = False
    redacted: int = Field(0, description="how many times what looks like a key was left out of the bodies")
    error: str | None = None


class WorldWrite(Record):
    """One entry of the world's append-only log of writes."""

    seq: int
    sim_ns: SimNs
    actor: Literal["agent", "benchmark", "service"]
    key: str
    value: JsonDict = Field(default_factory=dict)
