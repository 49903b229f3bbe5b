"""Requests that name one of the harness's own tools and its arguments, or quote a command to be run."""

from __future__ import annotations

import re
from collections.abc import Sequence

from sclate_adapters.models import ToolCallPart, ToolSpec

_NAMED = re.compile(r"\b(\w{4,}) tool\b", re.I)


_COMMAND = re.compile(r"\brun `([^`\n]+)`")


def command(question: str, calls: Sequence[ToolCallPart]) -> str | None:
    """The first command that a request quotes to be run and that no call of this turn has run yet."""
    ran = [str(value) for call in calls for value in call.input.values()]
    return next((c for c in _COMMAND.findall(question) if c not in ran), None)


def asked(question: str, tools: Sequence[ToolSpec], call_id: str) -> ToolCallPart | None:
    """The call that a request spells out: "the scheduling tool: cron `...`, zone `...`" for a tool `schedule`.

    Arguments are those properties of the tool's schema whose names stand before a quoted value; None when a
    required one is not said.
    """
    stems = [word.lower().removesuffix("ing") for word in _NAMED.findall(question)]
    for tool in tools:
        if not any(len(stem) >= 4 and tool.name.lower().startswith(stem) for stem in stems):
            continue
        arguments = {}
        for name in tool.schema_.get("properties", {}):
            said = re.search(rf"\b{re.escape(name)}\s+`([^`]+)`", question)
            if said:
                arguments[name] = said.group(1)
        if all(name in arguments for name in tool.schema_.get("required", ())):
            return ToolCallPart(id=call_id, name=tool.name, input=arguments)
    return None
