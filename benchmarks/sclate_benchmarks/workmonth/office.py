"""The office's world: mail, calendar and tickets that arrive at their own instants, and the night's reports."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from pydantic import ConfigDict, Field, ValidationError

from sclate_adapters.base import NS_PER_S, JsonDict, Record, SimNs
from sclate_adapters.benchmark import HookContext, WorldProvider
from sclate_adapters.errors import DataError
from sclate_adapters.records import WorldWrite

ZONE = ZoneInfo("Europe/Berlin")
CLOCK_FORMAT = "%d.%m.%Y %H:%M"
MAX_TICKET_BYTES = 64 * 1024


class Dated(Record):
    """Something that happens at a local time of the office, `YYYY-MM-DDTHH:MM`."""

    at: datetime

    @property
    def at_ns(self) -> SimNs:
        return round(self.at.replace(tzinfo=ZONE).timestamp()) * NS_PER_S

    @property
    def clock(self) -> str:
        return self.at.strftime(CLOCK_FORMAT)


class Mail(Dated):
    sender: str
    subject: str
    text: str


class Appointment(Dated):
    """`at` is when it is entered, `when` when it takes place."""

    title: str
    when: str


class Ticket(Dated):
    """Once the agent wrote a reply into the ticket's file, `follow_up` comes half an hour later."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    id: str
    sender: str = Field(alias="from")
    text: str
    follow_up: str

    @property
    def path(self) -> str:
        return f"tickets/{self.id}.json"

    @property
    def written(self) -> str:
        """Key of the world's write that says the agent replied."""
        return f"ticket.{self.id}.reply"


class Report(Dated):
    """A traffic report that is made at night while time flows."""

    name: str


class Office(Record):
    """Everything that ever arrives."""

    mail: tuple[Mail, ...]
    calendar: tuple[Appointment, ...]
    tickets: tuple[Ticket, ...]
    reports: tuple[Report, ...]

    def arrivals(self) -> list[SimNs]:
        """Instants at which mail, an appointment or a ticket arrives, in order."""
        return sorted({x.at_ns for x in (*self.mail, *self.calendar, *self.tickets)})

    def files(self, now_ns: SimNs) -> dict[str, bytes]:
        """What an arrival at `now_ns` puts into the workspace: both lists in full, a ticket once only."""
        mail = [
            {"at": m.clock, "from": m.sender, "subject": m.subject, "text": m.text}
            for m in self.mail
            if m.at_ns <= now_ns
        ]
        calendar = [{"title": a.title, "when": a.when} for a in self.calendar if a.at_ns <= now_ns]
        files = {"mail/inbox.json": as_json(mail), "calendar/calendar.json": as_json(calendar)}
        for ticket in self.tickets:
            if ticket.at_ns == now_ns:
                content = {
                    "id": ticket.id,
                    "from": ticket.sender,
                    "opened_at": ticket.clock,
                    "text": ticket.text,
                    "reply": "",
                    "replied_at": "",
                }
                files[ticket.path] = as_json(content)
        return files

    def counts(self, now_ns: SimNs) -> dict[str, int]:
        """How much of each kind has arrived."""
        return {
            name: sum(x.at_ns <= now_ns for x in kind)
            for name, kind in (("mail", self.mail), ("calendar", self.calendar), ("tickets", self.tickets))
        }


def load_office(root: Path) -> Office:
    """`world.json` of a data folder.

    Raises:
        DataError: it is missing or malformed.
    """
    path = root / "world.json"
    try:
        return Office.model_validate_json(path.read_bytes())
    except (OSError, ValidationError) as error:
        raise DataError(
            f"{path} does not describe the office's world",
            str(error),
            "leave --data out to use the shipped data",
        ) from error


class OfficeWorld(WorldProvider):
    """What sources see: how much has arrived, and which tickets the agent has answered."""

    def __init__(self, office: Office) -> None:
        self._office = office
        self._replies: dict[str, str] = {}
        self._counts: dict[str, int] = {}
        self._log: list[WorldWrite] = []

    @property
    def world(self) -> Mapping[str, Any]:
        return {**self._counts, "replies": dict(self._replies)}

    async def refresh(self, ctx: HookContext) -> Sequence[WorldWrite]:
        """Read the tickets in the live workspace; a reply that is new or another is a write of the agent."""
        self._counts = self._office.counts(ctx.now_ns)
        found: list[WorldWrite] = []
        for ticket in self._office.tickets:
            if ticket.at_ns > ctx.now_ns or not ctx.workspace.live:
                continue
            reply = _reply(await ctx.workspace.read_file(ticket.path, MAX_TICKET_BYTES))
            if reply and reply != self._replies.get(ticket.id):
                self._replies[ticket.id] = reply
                found.append(
                    WorldWrite(
                        seq=len(self._log) + 1,
                        sim_ns=ctx.now_ns,
                        actor="agent",
                        key=ticket.written,
                        value={"reply": reply},
                    )
                )
                self._log.append(found[-1])
        return found

    def events(self, after: int) -> Sequence[WorldWrite]:
        return [write for write in self._log if write.seq > after]


def _reply(data: bytes | None) -> str:
    """The reply in a ticket's file; nothing while it is missing, half written or no text."""
    try:
        ticket: JsonDict = json.loads(data or b"{}")
        reply = ticket.get("reply", "")
    except (ValueError, AttributeError):
        return ""
    return reply.strip() if isinstance(reply, str) else ""


def as_json(value: Any) -> bytes:
    return (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode()
