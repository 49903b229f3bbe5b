"""Requests that name one of the harness's own tools and its arguments, or quote a command to be run."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from sclate_adapters.models import ToolCallPart, ToolSpec

_NAMED = re.compile(r"\b(\w{4,}) tool\b", re.I)
_COMMAND = re.compile(r"\brun `([^`\n]+)`")
_CRON_TOOLS = {"schedul": ("CronCreate",), "unschedul": ("CronList", "CronDelete")}
"""What the same tools are called in harnesses with a tool for each step, in the order of use."""
_LOADER = "ToolSearch"
"""The tool that loads another whose name alone was told."""


def command(question: str, calls: Sequence[ToolCallPart]) -> str | None:
    """The first command that a request quotes to be run and that no call of this turn has run yet."""
    ran = [str(value) for call in calls for value in call.input.values()]
    return next((c for c in _COMMAND.findall(question) if c not in ran), None)


def asked(
    question: str,
    tools: Sequence[ToolSpec],
    calls: Sequence[ToolCallPart],
    results: Mapping[str, str],
    told: Sequence[str],
) -> ToolCallPart | bool:
    """The next call that a request spells out: "the scheduling tool: cron `...`, zone `...`".

    True when all of it was called in this turn, False when nothing of the kind is asked for. `told`: what the
    harness says of its tools. Arguments are those properties of the tool's schema whose names stand before a
    quoted value.
    """
    stems = [word.lower().removesuffix("ing") for word in _NAMED.findall(question)]
    for stem in stems:
        steps = _CRON_TOOLS.get(stem, ())
        if steps and all(_offered(name, tools) or any(name in text for text in told) for name in steps):
            return _cron_step(question, steps, tools, calls, results)
        for tool in tools:
            if len(stem) < 4 or not tool.name.lower().startswith(stem):
                continue
            arguments = _said(question, tool)
            if all(name in arguments for name in tool.schema_.get("required", ())):
                return _once(tool.name, arguments, calls)
    return False


def _cron_step(
    question: str,
    steps: Sequence[str],
    tools: Sequence[ToolSpec],
    calls: Sequence[ToolCallPart],
    results: Mapping[str, str],
) -> ToolCallPart | bool:
    missing = [name for name in steps if not _offered(name, tools)]
    if missing:
        return _once(_LOADER, {"query": f"select:{','.join(missing)}"}, calls)
    for name in steps:
        if any(call.name == name for call in calls):
            continue
        tool = next(tool for tool in tools if tool.name == name)
        arguments = _said(question, tool)
        if name == "CronCreate":
            arguments |= {"recurring": True, "durable": True}
        elif name == "CronDelete":
            listed = next((results.get(call.id, "") for call in calls if call.name == "CronList"), "")
            arguments["id"] = _job(listed, str(arguments.get("id", "")))
        return _once(name, arguments, calls)
    return True


def _job(listed: str, about: str) -> str:
    """The harness's own id of the job whose line speaks of what a request calls `night-watch`."""
    words = re.findall(r"\w+", about.lower())
    for line in listed.splitlines():
        found = re.search(r"\b[0-9a-f]{8}\b", line)
        if found and all(word in line.lower() for word in words):
            return found.group()
    return about


def _said(question: str, tool: ToolSpec) -> dict[str, Any]:
    arguments: dict[str, Any] = {}
    for name in tool.schema_.get("properties", {}):
        if said := re.search(rf"\b{re.escape(name)}\s+`([^`]+)`", question):
            arguments[name] = said.group(1)
    return arguments


def _offered(name: str, tools: Sequence[ToolSpec]) -> bool:
    return any(tool.name == name for tool in tools)


def _once(name: str, arguments: dict[str, Any], calls: Sequence[ToolCallPart]) -> ToolCallPart | bool:
    """A call, or True when it was made in this turn already."""
    if any(call.name == name for call in calls):
        return True
    return ToolCallPart(id=f"toolu_direct_{len(calls)}", name=name, input=arguments)
