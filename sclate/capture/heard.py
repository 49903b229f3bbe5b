"""What a recorded response said, whatever its dialect."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from sclate_adapters.models import Usage


@dataclass
class Heard:
    """A recorded response.

    `content` is the answer's parts in the dialect's own form. `complete` is False for a stream that ended
    early; `raw_usage` has the usage objects as they came, in order, so that the rule can be applied again.
    """

    content: list[dict[str, Any]] = field(default_factory=list)
    text: str = ""
    tool_calls: tuple[dict[str, Any], ...] = ()
    stop_reason: str | None = None
    usage: Usage = field(default_factory=Usage)
    raw_usage: list[dict[str, Any]] = field(default_factory=list)
    model: str | None = None
    error: str | None = None
    complete: bool = False


def last_values(raw: list[dict[str, Any]], fields: dict[str, str]) -> Usage:
    """Usage by the rule that per field the last value that is not null wins.

    Start and end of a stream both carry running totals, and some vendors correct the first by the second:
    adding counts twice, and the larger one may be the wrong one.

    Args:
        fields: name in `Usage` -> name on the wire.
    """
    found = {
        name: next((u[wire] for u in reversed(raw) if isinstance(u.get(wire), int)), None)
        for name, wire in fields.items()
    }
    return Usage(**found)
