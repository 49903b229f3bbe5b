"""Which wire dialect a path speaks, and what every dialect module offers.

A dialect is one module beside this one. It is added by writing it and naming it in `DIALECTS`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

from sclate.capture import dialect_messages
from sclate.capture.heard import Heard
from sclate_adapters.models import Dialect, ModelReply, ModelRequest


class Wire(Protocol):
    """What a dialect's module has."""

    SAMPLING: tuple[str, ...]
    """Names of the request's fields that steer sampling."""
    END: re.Pattern[bytes]
    """The beginning of the line that ends a streamed answer."""

    def parse_request(self, body: dict[str, Any]) -> ModelRequest:
        """Raises KeyError, TypeError or ValueError for what is no request of this dialect."""

    def render(self, reply: ModelReply, request: ModelRequest, message_id: str) -> dict[str, Any]:
        """The JSON body of a response that is not streamed."""

    def stream(self, reply: ModelReply, request: ModelRequest, message_id: str) -> Iterator[bytes]:
        """The event stream: its opening, then one item a part; the last item ends it."""

    def error_body(self, status: int, message: str) -> dict[str, Any]: ...

    def error_event(self, status: int, message: str) -> bytes:
        """A fault in the middle of a stream."""

    def hear_json(self, body: dict[str, Any]) -> Heard: ...

    def hear_stream(self, data: bytes) -> Heard: ...


@dataclass(frozen=True)
class Endpoint:
    """A path that is let through. `generates` is False for questions about a request (token counts)."""

    dialect: Dialect
    wire: Wire = field(repr=False)
    generates: bool = True


DIALECTS: dict[str, Endpoint] = {
    "/v1/messages": Endpoint(Dialect.MESSAGES, dialect_messages),
    "/v1/messages/count_tokens": Endpoint(Dialect.MESSAGES, dialect_messages, generates=False),
}
"""Every path that a sandbox may ask for, without its route."""


def endpoint_of(path: str) -> Endpoint | None:
    """By a path with its route and perhaps a query (`/agent/v1/messages?beta=true`)."""
    _, _, tail = path.partition("?")[0].lstrip("/").partition("/")
    return DIALECTS.get("/" + tail)
