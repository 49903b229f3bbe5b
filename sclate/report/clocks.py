"""What a session saw of the time: in what its harness told the model, and in what its tools said.

By the shapes of requests alone, whatever harness wrote them. Requests are hostile: nothing in them has to be
of the type that it should be, and what is not understood is not there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from sclate.report.moments import ISO, has_clock, has_zone, is_time
from sclate.report.shell import command_of
from sclate_adapters.records import CallClass, CallRecord

MOST_SEEN = 50
"""Different values of one session and kind; a life has a few."""
MOST_OUTPUT = 4_000
TOLD = re.compile(
    rf"(?i:today['\u2019]?s date|current date|current time|date is now|today is)\b[^\n]{{0,40}}?({ISO})"
)
REMINDER = re.compile(r"<system-reminder>(.*?)</system-reminder>", re.DOTALL)
RUNS_DATE = re.compile(
    r"(?:^|[;&|(`])[ \t]*(?:/usr)?(?:/bin/)?date(?=$|[ \t;&|)`])([^;&|)`\n]*)", re.MULTILINE
)
OTHER_TIME = re.compile(r"(?<!\S)(?:-[uIR]*[dfrs]|--(?:date|file|reference|set))")
"""Options that make `date` say another time than now."""
IN_UTC = re.compile(r"(?<!\S)(?:-[IR]*u|--(?:utc|universal))")
ASKS_NOW = re.compile(
    r"now\b|now_|clock|current_?(?:date|time)|get_?(?:date|time)|strftime|timedatectl|time\.time"
)


@dataclass
class ClockSeen:
    """Texts that are times, each once, in the order in which they were seen last."""

    told: list[str] = field(default_factory=list)
    tools: list[str] = field(default_factory=list)

    def hear(self, call: CallRecord) -> None:
        """Take from a call what it shows; nothing of its bodies is kept."""
        request = call.request or {}
        messages = [m for m in _items(request.get("messages")) if isinstance(m, dict)]
        if call.call_class in (CallClass.MAIN, None):
            last = None
            for text in _told_texts(request.get("system"), messages):
                last = _last_told(text) or last
            if last is not None:
                _note(self.told, last)
        for said in _answers(messages):
            _note(self.tools, said)


@lru_cache(maxsize=16)  # every request of a session has the same long texts again
def _last_told(text: str) -> str | None:
    return next((match[1] for match in reversed(list(TOLD.finditer(text)))), None)


def _told_texts(system: Any, messages: list[dict[str, Any]]) -> Iterator[str]:
    """What comes from the harness and not from the user, a tool or the model."""
    yield from _texts(system)
    for message in messages:
        if message.get("role") == "system":
            yield from _texts(message.get("content"))
        elif message.get("role") == "user":
            for text in _texts(message.get("content")):
                yield from REMINDER.findall(text)


def _answers(messages: list[dict[str, Any]]) -> Iterator[str]:
    """Times that tools gave for calls that asked for the time, in order."""
    asked: dict[str, tuple[str, dict[str, Any]]] = {}
    for block in (block for message in messages for block in _items(message.get("content"))):
        if not isinstance(block, dict):
            continue
        if block.get("type") == "tool_use":
            arguments = block.get("input")
            asked[str(block.get("id"))] = (
                str(block.get("name")),
                arguments if isinstance(arguments, dict) else {},
            )
        elif block.get("type") == "tool_result" and not block.get("is_error"):
            call = asked.pop(str(block.get("tool_use_id")), None)
            if call is not None:
                yield from times_said(*call, "\n".join(_texts(block.get("content")))[:MOST_OUTPUT])


def times_said(name: str, arguments: dict[str, Any], output: str) -> list[str]:
    """The present time in a tool's output, where its call asked for it.

    A shell's `date` answers with lines that are nothing but a time; where there are more of them than calls
    of `date`, it is not known which are its own. Any other call has to speak of the present, and its whole
    output has to be a time.
    """
    command = command_of(arguments)
    runs = RUNS_DATE.findall(command)
    if runs:
        found = [line.strip() for line in output.splitlines() if is_time(line)]
        known = not any(OTHER_TIME.search(options) for options in runs) and len(found) <= len(runs)
        elsewhere = "TZ=" in command or any(IN_UTC.search(options) for options in runs)
        return [one for one in found if known and (has_zone(one) or not elsewhere)]
    whole = output.strip()
    asks = ASKS_NOW.search(name) or ASKS_NOW.search(command)
    return [whole] if asks and has_clock(whole) and is_time(whole) else []


def _note(seen: list[str], value: str) -> None:
    if value in seen:
        seen.remove(value)
    seen.append(value)
    del seen[:-MOST_SEEN]


def _items(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _texts(content: Any) -> Iterator[str]:
    """The texts of a content: a text, or blocks of which some are texts."""
    if isinstance(content, str):
        yield content
    for block in _items(content):
        if isinstance(block, dict) and block.get("type") == "text" and isinstance(block.get("text"), str):
            yield block["text"]
