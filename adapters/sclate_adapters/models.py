"""Models: the neutral request and reply, the backend that answers, and the profile that names an endpoint.

The three wire dialects (Anthropic `messages`, OpenAI `responses` and `chat`) are the engine's business:
a `ModelBackend` sees one neutral form and is served in every dialect.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field

from sclate_adapters.base import JsonDict, Record


class Dialect(StrEnum):
    """Wire formats that harnesses speak."""

    MESSAGES = "messages"
    RESPONSES = "responses"
    CHAT = "chat"


class TextPart(Record):
    type: Literal["text"] = "text"
    text: str


class ThinkingPart(Record):
    type: Literal["thinking"] = "thinking"
    text: str
    signature: str | None = None


class ToolCallPart(Record):
    """The model asks for a tool. `input` is the parsed JSON object of arguments."""

    type: Literal["tool_call"] = "tool_call"
    id: str
    name: str
    input: JsonDict


class ToolResultPart(Record):
    type: Literal["tool_result"] = "tool_result"
    call_id: str
    text: str
    is_error: bool = False


Part = Annotated[TextPart | ThinkingPart | ToolCallPart | ToolResultPart, Field(discriminator="type")]


class Message(Record):
    """One entry of a conversation; tool results are parts of a `user` message, as in `messages`. `system`:
    what the harness says in the middle of a conversation; the system prompt itself is apart."""

    role: Literal["user", "assistant", "system"]
    parts: tuple[Part, ...]

    @property
    def text(self) -> str:
        """All text parts joined by newlines."""
        return "\n".join(p.text for p in self.parts if isinstance(p, TextPart))


class ToolSpec(Record):
    """A tool offered to the model; `schema_` is its JSON schema."""

    name: str
    description: str = ""
    schema_: JsonDict = Field(default_factory=dict)


class ModelRequest(Record):
    """One model call as any dialect expresses it. `raw` is the wire body it was parsed from."""

    model: str
    system: str = ""
    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...] = ()
    max_tokens: int | None = None
    temperature: float | None = None
    stream: bool = False
    reasoning_effort: str | None = None
    raw: JsonDict = Field(default_factory=dict, repr=False)

    def all_text(self) -> str:
        """System prompt and every text and tool-result part, in order: all that a model could read."""
        out = [self.system]
        for m in self.messages:
            for p in m.parts:
                if isinstance(p, TextPart | ToolResultPart):
                    out.append(p.text)
        return "\n".join(out)


class Usage(Record):
    """Tokens of a call; None is unknown, never 0. `input_tokens` counts the fresh part of the prompt."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_read_tokens: int | None = None
    cache_write_tokens: int | None = None


class StopReason(StrEnum):
    END_TURN = "end_turn"
    TOOL_USE = "tool_use"
    MAX_TOKENS = "max_tokens"
    REFUSAL = "refusal"


class ModelFault(Record):
    """An error that the backend wants the wire to show.

    `status` is an HTTP status, or 0 for a connection closed without an answer; with `after_parts` the
    stream breaks after that many parts were sent.
    """

    status: int = Field(ge=0, le=599)
    message: str = ""
    retry_after_s: float | None = None
    after_parts: int | None = None


class ModelReply(Record):
    """What the model answers. Token ids and log-probs are None unless they come from a real engine."""

    parts: tuple[Part, ...] = ()
    stop_reason: StopReason = StopReason.END_TURN
    usage: Usage = Usage()
    output_token_ids: tuple[int, ...] | None = None
    output_logprobs: tuple[float, ...] | None = None
    prompt_token_ids: tuple[int, ...] | None = None
    weight_version: str | None = None
    delay_s: float = Field(default=0.0, ge=0, description="real seconds before the first byte")
    fault: ModelFault | None = None


class ModelBackend(ABC):
    """Answers model calls without a provider (entry-point group `sclate.models`).

    `respond` must be a function of the request, of the constructor's arguments and of what it was asked
    before, so that a run repeats. It runs on the host, outside of every sandbox.
    """

    name: str = "model"

    @abstractmethod
    async def respond(self, request: ModelRequest) -> ModelReply:
        """Answer one call. An exception here is a bug of the backend: the call fails as class `model`."""


class ModelProfile(Record):
    """A named model endpoint. `backend` names a keyless backend, or None for `base_url`."""

    name: str
    backend: str | None = None
    provider: str = ""
    model: str = ""
    dialect: Dialect = Dialect.MESSAGES
    base_url: str | None = None
    key_env: str | None = Field(default=None, description="environment variable that holds the API key")
    options: JsonDict = Field(default_factory=dict)
    price_input_per_mtok: float | None = None
    price_output_per_mtok: float | None = None
    temperature: float | None = None
    reasoning_effort: str | None = None
