"""Anthropic Messages, both ways: wire request -> `ModelRequest`, `ModelReply` -> wire response, and what a
recorded wire response says. Format: the Messages API, version header 2023-06-01.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from sclate.capture.sse import EventStream
from sclate_adapters.models import (
    Message,
    ModelReply,
    ModelRequest,
    Part,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolResultPart,
    ToolSpec,
    Usage,
)

USAGE_FIELDS = {
    "input_tokens": "input_tokens",
    "output_tokens": "output_tokens",
    "cache_read_tokens": "cache_read_input_tokens",
    "cache_write_tokens": "cache_creation_input_tokens",
}
SAMPLING = ("temperature", "top_p", "top_k", "max_tokens", "stop_sequences", "thinking")


# --- requests -----------------------------------------------------------------------------------------------


def _blocks(content: Any) -> list[dict[str, Any]]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else list(content or ())


def _text(content: Any) -> str:
    return "\n".join(b.get("text", "") for b in _blocks(content) if b.get("type") == "text")


def _part(block: dict[str, Any]) -> Part | None:
    match block.get("type"):
        case "text":
            return TextPart(text=block["text"])
        case "thinking":
            return ThinkingPart(text=block.get("thinking", ""), signature=block.get("signature"))
        case "tool_use":
            return ToolCallPart(id=block["id"], name=block["name"], input=block.get("input") or {})
        case "tool_result":
            return ToolResultPart(
                call_id=block["tool_use_id"],
                text=_text(block.get("content")),
                is_error=bool(block.get("is_error")),
            )
    return None


def parse_request(body: dict[str, Any]) -> ModelRequest:
    """Raises KeyError, TypeError or ValueError for what is no Messages request."""
    messages = []
    for message in body["messages"]:
        parts = tuple(p for p in map(_part, _blocks(message["content"])) if p is not None)
        messages.append(Message(role=message["role"], parts=parts))
    return ModelRequest(
        model=body["model"],
        system=_text(body.get("system")),
        messages=tuple(messages),
        tools=tuple(
            ToolSpec(
                name=t["name"], description=t.get("description", ""), schema_=t.get("input_schema") or {}
            )
            for t in body.get("tools") or ()
        ),
        max_tokens=body.get("max_tokens"),
        temperature=body.get("temperature"),
        stream=bool(body.get("stream")),
        raw=body,
    )


# --- replies ------------------------------------------------------------------------------------------------


def _usage(usage: Usage) -> dict[str, int]:
    pairs = ((wire, getattr(usage, name)) for name, wire in USAGE_FIELDS.items())
    return {wire: value for wire, value in pairs if value is not None}


def _block(part: Part) -> dict[str, Any]:
    match part:
        case TextPart():
            return {"type": "text", "text": part.text}
        case ThinkingPart():
            return {"type": "thinking", "thinking": part.text, "signature": part.signature or ""}
        case ToolCallPart():
            return {"type": "tool_use", "id": part.id, "name": part.name, "input": part.input}
    raise ValueError(f"a model does not answer with {part.type}")


def render(reply: ModelReply, request: ModelRequest, message_id: str) -> dict[str, Any]:
    """The JSON body of a response that is not streamed."""
    return {
        "id": message_id,
        "type": "message",
        "role": "assistant",
        "model": request.model,
        "content": [_block(p) for p in reply.parts],
        "stop_reason": reply.stop_reason.value,
        "stop_sequence": None,
        "usage": _usage(reply.usage),
    }


def _event(type_: str, **fields: Any) -> bytes:
    data = json.dumps({"type": type_, **fields}, ensure_ascii=False)
    return f"event: {type_}\ndata: {data}\n\n".encode()


def stream(reply: ModelReply, request: ModelRequest, message_id: str) -> Iterator[bytes]:
    """The event stream, a part at a time; the last item ends it."""
    start = render(reply, request, message_id) | {"content": [], "stop_reason": None}
    start["usage"] = start["usage"] | {"output_tokens": 1}
    yield _event("message_start", message=start)
    for index, part in enumerate(reply.parts):
        block = _block(part)
        empty: dict[str, Any]
        delta: dict[str, Any]
        match part:
            case TextPart():
                empty, delta = {"text": ""}, {"type": "text_delta", "text": part.text}
            case ThinkingPart():
                empty, delta = {"thinking": ""}, {"type": "thinking_delta", "thinking": part.text}
            case _:
                arguments = json.dumps(block["input"], ensure_ascii=False)
                empty, delta = {"input": {}}, {"type": "input_json_delta", "partial_json": arguments}
        yield (
            _event("content_block_start", index=index, content_block=block | empty)
            + _event("content_block_delta", index=index, delta=delta)
            + _event("content_block_stop", index=index)
        )
    end = {"stop_reason": reply.stop_reason.value, "stop_sequence": None}
    yield _event("message_delta", delta=end, usage=_usage(reply.usage)) + _event("message_stop")


def error_body(status: int, message: str) -> dict[str, Any]:
    kinds = {400: "invalid_request_error", 403: "permission_error", 404: "not_found_error"}
    kinds |= {429: "rate_limit_error", 529: "overloaded_error"}
    return {"type": "error", "error": {"type": kinds.get(status, "api_error"), "message": message}}


# --- what a response said -----------------------------------------------------------------------------------


@dataclass
class Heard:
    """A recorded response. `complete` is False for a stream that ended early."""

    content: list[dict[str, Any]] = field(default_factory=list)
    stop_reason: str | None = None
    raw_usage: list[dict[str, Any]] = field(default_factory=list)
    model: str | None = None
    error: str | None = None
    complete: bool = False

    @property
    def usage(self) -> Usage:
        """Per field the last value that is not null; running totals are never added up."""
        last = {
            name: next((u[wire] for u in reversed(self.raw_usage) if u.get(wire) is not None), None)
            for name, wire in USAGE_FIELDS.items()
        }
        if not self.complete:
            last = dict.fromkeys(last)
        return Usage(**last)

    @property
    def text(self) -> str:
        return "\n".join(b.get("text", "") for b in self.content if b.get("type") == "text")

    @property
    def tool_calls(self) -> tuple[dict[str, Any], ...]:
        return tuple(b for b in self.content if b.get("type") == "tool_use")


def hear_json(body: dict[str, Any]) -> Heard:
    if body.get("type") == "error":
        return Heard(error=str(body["error"].get("message")), complete=True)
    return Heard(
        content=list(body.get("content") or ()),
        stop_reason=body.get("stop_reason"),
        raw_usage=[body["usage"]] if body.get("usage") else [],
        model=body.get("model"),
        complete=True,
    )


def hear_stream(data: bytes) -> Heard:
    """Assemble a recorded stream; events of types that are not known are passed over."""
    heard, parser = Heard(), EventStream()
    arguments: dict[int, str] = {}
    for event in [*parser.feed(data), *parser.end()]:
        try:
            body = json.loads(event.data)
        except ValueError:
            continue
        match body.get("type"):
            case "message_start":
                heard.model = body["message"].get("model")
                if body["message"].get("usage"):
                    heard.raw_usage.append(body["message"]["usage"])
            case "content_block_start":
                heard.content.append(dict(body["content_block"]))
            case "content_block_delta":
                _hear_delta(heard, arguments, body["index"], body["delta"])
            case "message_delta":
                heard.stop_reason = body["delta"].get("stop_reason") or heard.stop_reason
                if body.get("usage"):
                    heard.raw_usage.append(body["usage"])
            case "message_stop":
                heard.complete = True
            case "error":
                heard.error = str(body["error"].get("message"))
    for index, text in arguments.items():
        try:
            heard.content[index]["input"] = json.loads(text or "{}")
        except ValueError:
            heard.content[index]["input"] = {"_unparsed": text}
    return heard


def _hear_delta(heard: Heard, arguments: dict[int, str], index: int, delta: dict[str, Any]) -> None:
    block = heard.content[index]
    match delta.get("type"):
        case "text_delta":
            block["text"] = block.get("text", "") + delta["text"]
        case "thinking_delta":
            block["thinking"] = block.get("thinking", "") + delta["thinking"]
        case "signature_delta":
            block["signature"] = delta["signature"]
        case "input_json_delta":
            arguments[index] = arguments.get(index, "") + delta["partial_json"]
