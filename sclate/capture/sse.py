"""Server-sent events, as the HTML standard has them: any line end, any cut, comments, no final blank line."""

from __future__ import annotations

import codecs
import re
from typing import NamedTuple

LINE_END = re.compile(r"\r\n|\r|\n")


class ServerEvent(NamedTuple):
    event: str
    data: str


class EventStream:
    """Parses a stream piece by piece. A cut inside a character or between CR and LF does no harm, and no
    event waits for a later one."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._rest = ""
        self._first = True
        self._skip_lf = False
        self._event = ""
        self._data: list[str] = []

    def feed(self, data: bytes) -> list[ServerEvent]:
        """Events that are complete with this piece."""
        text = self._decoder.decode(data)
        if self._first and text:
            text, self._first = text.removeprefix("\ufeff"), False
        if self._skip_lf and text:  # the other half of a line end that was taken for a bare CR
            text, self._skip_lf = text.removeprefix("\n"), False
        self._skip_lf = self._skip_lf or text.endswith("\r")
        *lines, self._rest = LINE_END.split(self._rest + text)
        return [event for event in map(self._take, lines) if event is not None]

    def end(self) -> list[ServerEvent]:
        """At the end of the stream: an event without its blank line counts all the same."""
        rest, self._rest = self._rest + self._decoder.decode(b"", final=True), ""
        return [event for event in (self._take(rest), self._take("")) if event is not None]

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


class EndHolder:
    """Passes a stream on line by line and keeps what comes from the line on that ends the answer.

    Args:
        last: matches the beginning of that line, e.g. `event: message_stop`.
    """

    def __init__(self, last: re.Pattern[bytes]) -> None:
        self._last = last
        self._rest = b""
        self._found = False

    def feed(self, data: bytes) -> bytes:
        """What may be sent now. A line that is not complete waits for its end, an event never does."""
        self._rest += data
        if self._found:
            return b""
        at = max(self._rest.rfind(b"\n"), self._rest.rfind(b"\r")) + 1
        whole, rest = self._rest[:at], self._rest[at:]
        start = 0
        for line in re.finditer(rb"[^\r\n]*[\r\n]", whole):
            if self._last.match(line.group()):
                self._found = True
                break
            start = line.end()
        self._rest = whole[start:] + rest
        return whole[:start]

    def held(self) -> bytes:
        """The end, to be sent once it may."""
        rest, self._rest = self._rest, b""
        return rest
