"""How a run shows itself: a live line on a terminal, plain lines elsewhere, nothing when quiet."""

from __future__ import annotations

import time
from datetime import datetime
from typing import TYPE_CHECKING, Protocol
from zoneinfo import ZoneInfo

from rich.console import Console
from rich.live import Live
from rich.text import Text

from sclate_adapters.effects import SessionPlan
from sclate_adapters.judgments import Judgment
from sclate_adapters.records import SessionRecord

if TYPE_CHECKING:
    from sclate.life import Life
    from sclate.run import LifeSummary


def local_time(sim_ns: int, zone: str) -> str:
    """A simulated instant as a person reads it."""
    return datetime.fromtimestamp(sim_ns // 1_000_000_000, ZoneInfo(zone)).strftime("%a %Y-%m-%d %H:%M:%S")


def plain(text: str) -> str:
    """Text from outside, safe on a terminal: control and bidi characters are shown, not obeyed."""
    return "".join(c if c.isprintable() or c == "\n" else c.encode("unicode_escape").decode() for c in text)


class Progress(Protocol):
    """What a run tells. `session`: one opens; `session_ended`: it has closed."""

    def note(self, text: str) -> None: ...
    def life_started(self, life: Life) -> None: ...
    def session(self, plan: SessionPlan, life: Life) -> None: ...
    def session_ended(self, record: SessionRecord, life: Life) -> None: ...
    def judged(self, judgment: Judgment, life: Life) -> None: ...
    def life_ended(self, summary: LifeSummary) -> None: ...
    def close(self) -> None: ...


class Quiet:
    """Says nothing."""

    def note(self, text: str) -> None: ...
    def life_started(self, life: Life) -> None: ...
    def session(self, plan: SessionPlan, life: Life) -> None: ...
    def session_ended(self, record: SessionRecord, life: Life) -> None: ...
    def judged(self, judgment: Judgment, life: Life) -> None: ...
    def life_ended(self, summary: LifeSummary) -> None: ...
    def close(self) -> None: ...


class Lines:
    """One line a session, when it has ended, for logs and pipes."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._started = time.monotonic()

    def _say(self, text: str) -> None:
        self._console.print(Text(plain(text)), soft_wrap=True)

    def note(self, text: str) -> None:
        self._say(text)

    def life_started(self, life: Life) -> None:
        self._started = time.monotonic()
        self._say(f"life {life.key.slug()}")

    def session(self, plan: SessionPlan, life: Life) -> None: ...

    def session_ended(self, record: SessionRecord, life: Life) -> None:
        failed = f"  failed ({record.failure}): {record.failure_message}" if record.failure else ""
        self._say(f"  {self.status(record, life)}{failed}")

    def status(self, session: SessionPlan | SessionRecord, life: Life) -> str:
        """Where the life stands."""
        judged = [j for j in life.judgments if j.passed is not None]
        passed = sum(j.passed is True for j in judged)
        real_s = time.monotonic() - self._started
        simulated_s = (life.clock.now() - life.scenario.start_ns) / 1e9
        ratio = f", {simulated_s / real_s:,.0f}x" if real_s > 1 else ""
        wake = " (wake)" if session.wake else ""
        known = sum(life.usage.values())
        tokens = f"{known:,} tokens  " if known else ""
        return (
            f"{local_time(life.clock.now(), life.scenario.zone)}  {session.id}{wake}  "
            f"passed {passed}/{len(judged)}  {tokens}{real_s:.0f} s{ratio}"
        )

    def judged(self, judgment: Judgment, life: Life) -> None: ...

    def life_ended(self, summary: LifeSummary) -> None:
        if summary.failure is not None:
            self._say(f"  failed ({summary.failure}): {summary.failure_message}")

    def close(self) -> None: ...


class LiveLine(Lines):
    """On a terminal: a line that is rewritten, with what holds the clock."""

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self._life: Life | None = None
        self._plan: SessionPlan | None = None
        self._live = Live(get_renderable=self._render, console=console, refresh_per_second=8, transient=True)
        self._live.start()

    def _render(self) -> Text:
        if self._life is None or self._plan is None:
            return Text("")
        holders = ", ".join(h.reason for h in self._life.clock.holders()) or "nobody"
        return Text(plain(f"{self.status(self._plan, self._life)}  time held by: {holders}"))

    def life_started(self, life: Life) -> None:
        super().life_started(life)
        self._life = life

    def session(self, plan: SessionPlan, life: Life) -> None:
        self._plan = plan

    def life_ended(self, summary: LifeSummary) -> None:
        self._life = None
        super().life_ended(summary)

    def close(self) -> None:
        self._live.stop()


def make_progress(console: Console, quiet: bool) -> Progress:
    """The one that fits where output goes."""
    if quiet:
        return Quiet()
    return LiveLine(console) if console.is_terminal else Lines(console)
