"""Messages streams as providers send them, for the tests."""

from __future__ import annotations

import json
from typing import Any

TEXT = "価格は8€🙂"
USAGE_START = {
    "input_tokens": 37,
    "cache_creation_input_tokens": 210,
    "cache_read_input_tokens": 5120,
    "output_tokens": 1,
}


def event(type_: str, **fields: Any) -> bytes:
    data = json.dumps({"type": type_, **fields}, ensure_ascii=False)
    return f"event: {type_}\ndata: {data}\n\n".encode()


def start(usage: dict[str, Any] | None = None) -> bytes:
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m-1", "content": []}
    return event("message_start", message=message | {"usage": USAGE_START if usage is None else usage})


def text(value: str, index: int = 0) -> bytes:
    return (
        event("content_block_start", index=index, content_block={"type": "text", "text": ""})
        + event("content_block_delta", index=index, delta={"type": "text_delta", "text": value})
        + event("content_block_stop", index=index)
    )


def delta(usage: dict[str, Any], stop_reason: str | None = "end_turn") -> bytes:
    return event("message_delta", delta={"stop_reason": stop_reason, "stop_sequence": None}, usage=usage)


STOP = event("message_stop")


def whole(value: str = TEXT) -> bytes:
    return start() + text(value) + delta({"output_tokens": 188}) + STOP
