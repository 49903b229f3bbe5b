"""What the apprentice can see: everything is read from the request, nothing is remembered between calls."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import date
from functools import cached_property
from itertools import product

from sclate_adapters.models import Message, ModelRequest, ToolCallPart, ToolResultPart
from sclate_benchmarks.apprentice import shell
from sclate_benchmarks.apprentice.moment import Moment, find_clock, find_day

FEEDBACK_TAG = "[Previous Feedback]"
_REMINDER = re.compile(r"<system-reminder>.*?</system-reminder>", re.S)
_MEMORY_BLOCK = re.compile(r"<memory\b[^>]*>(.*?)</memory>", re.S)
_MEMORY_CONTENTS = re.compile(
    r"Contents of \S*MEMORY\.md[^\n]*:\n(.*?)(?=\nContents of |</system-reminder>|\Z)", re.S
)
_MEMORY_DIR = re.compile(r"(?:memory directory|file-based memory)\b[^\n/]{0,40}?`?(/[^\s`'\"<>]+)", re.I)
_WORK_DIR = re.compile(r"working directory:\s*`?(/[^\s`]+)", re.I)
_CURRENT = (
    re.compile(r"(?:current date|today'?s date)\b(?:[^\n:]*:| is(?: now)?)\s*([^\n]{4,40})", re.I),
    re.compile(r"\bdate\b[^\n:]*:\s*([^\n]+)", re.I),
)
"""What the harness says of the date: in so many words first, else any line that begins so."""
_TODAY_IS = re.compile(r"\btoday is\s+([^.\n—]{4,60})", re.I)
_PROSE = (".md", ".txt", ".rst")


def split_feedback(text: str) -> tuple[str, str]:
    """Feedback and question of one user message; the blank line between them is the first outside a fence."""
    if not text.startswith(FEEDBACK_TAG):
        return "", text
    body = text[len(FEEDBACK_TAG) :].strip()
    at = 0
    while (cut := body.find("\n\n", at)) >= 0:
        if body[:cut].count("```") % 2 == 0:
            return body[:cut], body[cut:].strip()
        at = cut + 2
    return body, ""


@dataclass(frozen=True)
class View:
    """One request, read."""

    request: ModelRequest

    @cached_property
    def _turn_start(self) -> int:
        """Index of the last user message that a person wrote (not only tool results)."""
        for i in range(len(self.request.messages) - 1, -1, -1):
            m = self.request.messages[i]
            if m.role == "user" and not any(isinstance(p, ToolResultPart) for p in m.parts) and _words(m):
                return i
        return -1

    @cached_property
    def _said(self) -> tuple[str, str]:
        return (
            split_feedback(_words(self.request.messages[self._turn_start]))
            if self._turn_start >= 0
            else ("", "")
        )

    @property
    def feedback(self) -> str:
        """Feedback that came with the current message; empty if none."""
        return self._said[0]

    @property
    def question(self) -> str:
        """What is asked now; empty after a stand-alone feedback message."""
        return self._said[1]

    @cached_property
    def earlier_feedback(self) -> tuple[str, ...]:
        """Feedback of the earlier messages of this conversation, oldest first."""
        earlier = (
            split_feedback(_words(m))[0]
            for m in self.request.messages[: max(self._turn_start, 0)]
            if m.role == "user"
        )
        return tuple(f for f in earlier if f)

    @cached_property
    def calls(self) -> tuple[ToolCallPart, ...]:
        """Tool calls since the current message, oldest first."""
        later = self.request.messages[self._turn_start + 1 :]
        return tuple(p for m in later for p in m.parts if isinstance(p, ToolCallPart))

    @cached_property
    def results(self) -> dict[str, str]:
        """What those calls gave, by call id."""
        later = self.request.messages[self._turn_start + 1 :]
        return {p.call_id: p.text for m in later for p in m.parts if isinstance(p, ToolResultPart)}

    @cached_property
    def _done(self) -> tuple[dict[str, str], frozenset[str]]:
        return shell.read_and_written(self.calls, self.results)

    @property
    def seen(self) -> dict[str, str]:
        """Files (and listings, ending in `/`) read since the current message."""
        return self._done[0]

    @property
    def wrote(self) -> bool:
        """Whether the deliverables of the current message have been written."""
        return bool(self._done[1] - {self.notebook})

    @property
    def noted(self) -> bool:
        """Whether a call of the current message wrote to memory."""
        reading = ("read", "read_file")
        return any(self.notebook in str(c.input) for c in self.calls if c.name.lower() not in reading)

    @property
    def notebook(self) -> str:
        """The file for notes; its folder is the memory directory."""
        return f"{self.memory_dir}/MEMORY.md"

    @cached_property
    def memory_dir(self) -> str | None:
        """Where the harness keeps memory, if it names such a place."""
        for text in self.told:
            if m := _MEMORY_DIR.search(text):
                return m[1].rstrip("/.,;:")
        return None

    @cached_property
    def memory_text(self) -> str:
        """The memory that the harness loaded into the prompt."""
        parts = [*_MEMORY_BLOCK.findall(self.request.system)]
        for text in self.told:
            parts += _MEMORY_CONTENTS.findall(text)
        return "\n".join(parts)

    @cached_property
    def prose_read(self) -> tuple[str, ...]:
        """Prose files that tool calls of this conversation printed."""
        out: list[str] = []
        for text in _results(self.request.messages):
            out += [body for path, body in shell.sections(text).items() if path.lower().endswith(_PROSE)]
        return tuple(out)

    @cached_property
    def work_dir(self) -> str | None:
        """The harness's working directory, if stated."""
        found = (_WORK_DIR.search(text) for text in self.told)
        return next((m[1] for m in found if m), None)

    @cached_property
    def now(self) -> Moment:
        """Wall-clock time: the stated current date, else the day that the conversation's first words name."""
        base = date(1970, 1, 1)
        for pattern, text in product(_CURRENT, reversed(self.told)):
            for stated in pattern.findall(text):
                if day := find_day(stated, base):
                    h, mi, s, _ = find_clock(stated) or (9, 0, 0, None)
                    return Moment(day, h, mi, s)
        for message in self.request.messages:
            m = _TODAY_IS.search(_words(message))
            if m and (day := find_day(m[1], base)):
                return Moment(day, 9, 0)
        return Moment(base, 9, 0)

    @cached_property
    def told(self) -> tuple[str, ...]:
        """What the harness itself says: the system prompt, system messages and reminders, oldest first."""
        told = [self.request.system]
        for m in self.request.messages:
            told += [m.text] if m.role == "system" else _REMINDER.findall(m.text) if m.role == "user" else []
        return tuple(told)


def _words(message: Message) -> str:
    return _REMINDER.sub("", message.text).strip()


def _results(messages: tuple[Message, ...]) -> list[str]:
    return [p.text for m in messages for p in m.parts if isinstance(p, ToolResultPart)]
