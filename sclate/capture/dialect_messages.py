"""Anthropic Messages, both ways: wire request -> `ModelRequest`, `ModelReply` -> wire response, and what a
recorded wire response says. Format: the Messages API, version header 2023-06-01.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from sclate.capture.heard import Heard, last_values
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
SAMPLING: tuple[str, ...] = (
    *("temperature", "top_p", "top_k", "max_tokens"),
    *("stop_sequences", "thinking", "output_config"),
)
END = re.compile(rb'event: ?message_stop|data: ?\{"type": ?"message_stop"')
ERROR_KINDS = {
    400: "invalid_request_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    529: "overloaded_error",
}


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
    if not messages:
        raise ValueError("messages: at least one is required")
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
        reasoning_effort=(body.get("output_config") or {}).get("effort"),
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
    if not data.isascii():
        try:
            data.encode()
        except UnicodeEncodeError:  # half of a surrogate pair, as programs that cut strings make them
            data = json.dumps({"type": type_, **fields})
    return f"event: {type_}\ndata: {data}\n\n".encode()


def stream(reply: ModelReply, request: ModelRequest, message_id: str) -> Iterator[bytes]:
    """The event stream, a part at a time; the last item ends it."""
    start = render(reply, request, message_id) | {"content": [], "stop_reason": None}
    if "output_tokens" in start["usage"]:
        start["usage"]["output_tokens"] = 1  # a running total; what is unknown stays unsaid
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
    kind = ERROR_KINDS.get(status, "api_error")
    return {"type": "error", "error": {"type": kind, "message": message}}


def error_event(status: int, message: str) -> bytes:
    return _event("error", error=error_body(status, message)["error"])


# --- what a response said -----------------------------------------------------------------------------------


def hear_json(body: dict[str, Any]) -> Heard:
    """A whole response, or an error."""
    if "error" in body:
        return Heard(error=_error_text(body["error"]), complete=True)
    usage = body.get("usage")
    heard = _Hearing()
    heard.blocks = {i: b for i, b in enumerate(body.get("content") or ()) if isinstance(b, dict)}
    heard.stop_reason = body.get("stop_reason")
    heard.raw_usage = [usage] if isinstance(usage, dict) else []
    heard.model = body.get("model")
    heard.complete = body.get("type") == "message"
    return heard.result()


def hear_stream(data: bytes) -> Heard:
    """Assemble a recorded stream; what is not known or does not fit is passed over."""
    heard, parser = _Hearing(), EventStream()
    for event in [*parser.feed(data), *parser.end()]:
        try:
            heard.take(json.loads(event.data))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            continue  # the record of the bytes is whole all the same
    return heard.result()


def _error_text(error: Any) -> str:
    return str(error.get("message", error) if isinstance(error, dict) else error)


class _Hearing:
    """A response as it is put together."""

    def __init__(self) -> None:
        self.blocks: dict[int, dict[str, Any]] = {}
        self.stop_reason: str | None = None
        self.raw_usage: list[dict[str, Any]] = []
        self.model: str | None = None
        self.error: str | None = None
        self.complete = False
        self._pieces: dict[tuple[int, str], list[str]] = {}

    def take(self, body: dict[str, Any]) -> None:
        match body["type"]:
            case "message_start":
                self.model = body["message"].get("model")
                self._usage(body["message"])
            case "content_block_start":
                self.blocks[body["index"]] = dict(body["content_block"])
            case "content_block_delta":
                self._delta(body["index"], body["delta"])
            case "message_delta":
                self.stop_reason = body["delta"].get("stop_reason") or self.stop_reason
                self._usage(body)
            case "message_stop":
                self.complete = True
            case "error":
                self.error = _error_text(body["error"])

    def _usage(self, holder: dict[str, Any]) -> None:
        if isinstance(holder.get("usage"), dict):
            self.raw_usage.append(holder["usage"])

    def _delta(self, index: int, delta: dict[str, Any]) -> None:
        match delta["type"]:
            case "text_delta":
                key, piece = "text", delta["text"]
            case "thinking_delta":
                key, piece = "thinking", delta["thinking"]
            case "signature_delta":
                key, piece = "signature", delta["signature"]
            case "input_json_delta":
                key, piece = "input", delta["partial_json"]
            case _:
                return
        self._pieces.setdefault((index, key), []).append(piece)

    def result(self) -> Heard:
        for (index, key), pieces in self._pieces.items():
            block, text = self.blocks.setdefault(index, {}), "".join(pieces)
            if key != "input":
                block[key] = block.get(key, "") + text
                continue
            try:
                block[key] = json.loads(text or "{}")
            except (ValueError, RecursionError):
                block[key] = {"_unparsed": text}
        content = [block for _, block in sorted(self.blocks.items())]
        return Heard(
            content=content,
            text="\n".join(b.get("text", "") for b in content if b.get("type") == "text"),
            tool_calls=tuple(b for b in content if b.get("type") == "tool_use"),
            stop_reason=self.stop_reason,
            usage=last_values(self.raw_usage, USAGE_FIELDS) if self.complete else Usage(),
            raw_usage=self.raw_usage,
            model=self.model,
            error=self.error,
            complete=self.complete,
        )
