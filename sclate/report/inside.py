"""What time it was inside: simulated time as prompts, tools and records of a session said it, side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

from sclate.report.moments import meanings
from sclate.report.reading import SessionFiles
from sclate.report.times import Span

AGREES, DIFFERS, LEAK, UNSEEN = "agrees", "differs", "leak", "unseen"
DAY_NS = 86_400_000_000_000
"""What zones can put between two readings of one instant's date."""


@dataclass(frozen=True)
class Cell:
    """A time as it was seen; where several were, the last, or the last that is wrong."""

    text: str
    word: str
    seen: int = 1


NOTHING = Cell("–", UNSEEN, 0)


@dataclass(frozen=True)
class Window:
    """A session in simulated and in real time, ns. `real` is None where the trace does not have it."""

    from_ns: int
    to_ns: int
    real: tuple[int, int] | None

    def word(self, text: str, zone: ZoneInfo) -> str:
        """Whether a time lies within the session; one that can be read and does not may be the host's."""
        found = meanings(text, zone)
        if any(a <= self.to_ns and b > self.from_ns for a, b in found):
            return AGREES
        if self.real is not None:
            first, last = self.real[0] - DAY_NS, self.real[1] + DAY_NS
            if any(a <= last and b > first for a, b in found):
                return LEAK
        return DIFFERS


@dataclass(frozen=True)
class Inside:
    """A session's row."""

    told: Cell
    tools: Cell
    record: Cell
    host: str

    @property
    def word(self) -> str:
        """The worst of what was seen."""
        words = {cell.word for cell in (self.told, self.tools, self.record)}
        return next((word for word in (LEAK, DIFFERS, AGREES) if word in words), UNSEEN)


def inside(files: SessionFiles, span: Span | None, real_start_ns: int | None, zone: ZoneInfo) -> Inside:
    """The row of a session. `real_start_ns`: the host's clock at the trace's first line."""
    window = _window(files, span, real_start_ns)
    host = "–"
    if window is not None and window.real is not None:
        host = datetime.fromtimestamp(window.real[0] / 1e9, UTC).strftime("%Y-%m-%d")
    if window is None:
        return Inside(NOTHING, NOTHING, NOTHING, host)
    return Inside(
        told=_cell(files.clock.told, window, zone),
        tools=_cell(files.clock.tools, window, zone),
        record=_last(files.recorded, window, zone),
        host=host,
    )


def _window(files: SessionFiles, span: Span | None, real_start_ns: int | None) -> Window | None:
    real = None
    if span is not None and real_start_ns is not None:
        real = real_start_ns + round(span.from_s * 1e9), real_start_ns + round(span.to_s * 1e9)
    record = files.record
    if record is not None:
        ended = max(record.ended_sim_ns, span.to_ns if span else 0)
        return Window(record.started_sim_ns, ended, real)
    return Window(span.from_ns, span.to_ns, real) if span is not None else None


def _cell(seen: Sequence[str], window: Window, zone: ZoneInfo) -> Cell:
    """All that was seen has to agree. Times in a zone that is not known are left out."""
    known = [(text, window.word(text, zone)) for text in seen if meanings(text, zone)]
    if not known:
        return NOTHING
    shown = known[-1]
    for word in (DIFFERS, LEAK):
        shown = next((one for one in reversed(known) if one[1] == word), shown)
    return Cell(*shown, len(known))


def _last(recorded: Sequence[str], window: Window, zone: ZoneInfo) -> Cell:
    """The latest of a record, for it may have older ones from before; but the host's date has no place in it."""
    known = [(meanings(text, zone)[0], text) for text in recorded if meanings(text, zone)]
    if not known:
        return NOTHING
    leaks = [text for _, text in known if window.word(text, zone) == LEAK]
    text = leaks[-1] if leaks else max(known)[1]
    return Cell(text, window.word(text, zone), len(known))
