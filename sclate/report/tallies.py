"""Counting: tokens by route and call class, failures by class."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from sclate.report.reading import LifeFiles
from sclate_adapters.records import CallRecord, DeliveryState

TOKENS = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens")


@dataclass
class TokenRow:
    """Calls of one route and class. `sums`: per kind of token the sum and how many calls reported it."""

    route: str
    call_class: str
    calls: int = 0
    failed: int = 0
    retries: int = 0
    sums: dict[str, tuple[int, int]] = field(default_factory=lambda: dict.fromkeys(TOKENS, (0, 0)))

    def add(self, call: CallRecord) -> None:
        self.calls += 1
        self.failed += call.error is not None or (call.status or 0) >= 400
        self.retries += call.retries
        for name in TOKENS:
            value = getattr(call.usage, name)
            if value is not None:
                total, reported = self.sums[name]
                self.sums[name] = total + value, reported + 1

    def cell(self, name: str) -> str:
        """What is missing is said, and is never 0."""
        total, reported = self.sums[name]
        if not reported:
            return "not reported"
        return f"{total:,}" if reported == self.calls else f"{total:,} ({reported:,} of {self.calls:,} calls)"


def tokens_of(calls: Iterable[CallRecord]) -> list[TokenRow]:
    """A row per route and class, and their sum at the end where there are several."""
    rows: dict[tuple[str, str], TokenRow] = {}
    total = TokenRow("all", "")
    for call in calls:
        name = call.call_class.value if call.call_class else "unknown"
        rows.setdefault((call.route, name), TokenRow(call.route, name)).add(call)
        total.add(call)
    found = [rows[key] for key in sorted(rows)]
    return [*found, total] if len(found) > 1 else found


@dataclass
class Trouble:
    """Failures of one class at one place. `examples`: who and what, the first few."""

    failure: str
    where: str
    count: int = 0
    examples: list[tuple[str, str]] = field(default_factory=list)


MOST_EXAMPLES = 3


def troubles(life: LifeFiles) -> list[Trouble]:
    """All that went wrong, by class and place."""
    found: dict[tuple[str, str], Trouble] = {}
    for failure, where, who, what in _all(life):
        one = found.setdefault((failure, where), Trouble(failure, where))
        one.count += 1
        if len(one.examples) < MOST_EXAMPLES:
            one.examples.append((who, what))
    return [found[key] for key in sorted(found)]


def _all(life: LifeFiles) -> Iterator[tuple[str, str, str, str]]:
    for line in life.trace:
        if line["type"] == "fault":
            yield str(line.get("failure")), "life", "", str(line.get("message", ""))
        elif line["type"] == "clock" and line.get("change") == "freeze_expired":
            yield "timeout", "frozen time", "", f"ended by its limit: {line.get('reason', '')}"
    for files in life.sessions:
        record = files.record
        if record is not None and record.failure is not None:
            yield record.failure.value, "session", record.id, record.failure_message
        for turn in files.turns:
            if turn.failure is not None:
                yield turn.failure.value, "turn", turn.key, turn.failure_message
        for judgment in files.judgments:
            if judgment.failure is not None:
                yield judgment.failure.value, "judgment", judgment.subject.key, judgment.feedback
        for call in files.calls:
            if call.error is not None or (call.status or 0) >= 400:
                said = call.error or f"status {call.status}"
                yield "model", f"call on route {call.route}", f"{files.id}, call {call.seq}", said
        for delivery, state in files.deliveries:
            if state != DeliveryState.DELIVERED:
                yield state, "delivery", delivery.id, ""
