"""Server-sent events, as the HTML standard has them: any line end, any cut, comments, no final blank line."""

from __future__ import annotations

import codecs
from typing import NamedTuple


class ServerEvent(NamedTuple):
    event: str
    data: str


class EventStream:
    """Parses a stream piece by piece. A cut inside a character or between CR and LF does no harm."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._text = ""
        self._event = ""
        self._data: list[str] = []

    def feed(self, data: bytes) -> list[ServerEvent]:
        """Events that are complete with this piece."""
        self._text += self._decoder.decode(data)
        events = []
        while (line := self._line()) is not None:
            if (event := self._take(line)) is not None:
                events.append(event)
        return events

    def end(self) -> list[ServerEvent]:
        """At the end of the stream: an event without its blank line counts all the same."""
        rest = self._text + self._decoder.decode(b"", final=True)
        self._text = ""
        events = [e for e in (self._take(line) for line in rest.splitlines()) if e is not None]
        last = self._take("")
        return [*events, last] if last is not None else events

    def _line(self) -> str | None:
        for at, char in enumerate(self._text):
            if char == "\n":
                line, self._text = self._text[:at], self._text[at + 1 :]
                return line
            if char == "\r":
                if at + 1 == len(self._text):
                    return None  # a LF may follow
                skip = 2 if self._text[at + 1] == "\n" else 1
                line, self._text = self._text[:at], self._text[at + skip :]
                return line
        return None

    def _take(self, line: str) -> ServerEvent | None:
        if line == "":
            if not self._data:
                self._event = ""
                return None
            event = ServerEvent(self._event or "message", "\n".join(self._data))
            self._event, self._data = "", []
            return event
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if field == "data":
            self._data.append(value)
        elif field == "event":
            self._event = value
        return None
