"""Simulated against real time, from the trace: stretches of the clock, spans of the sessions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

Json = dict[str, Any]
MOTIONS = ("flow", "frozen", "idle")


@dataclass(frozen=True)
class Stretch:
    """What the clock did: `flow`, `frozen`, `idle` (nobody holds it) or `jump`; real seconds since the start."""

    kind: str
    from_s: float
    to_s: float
    from_ns: int
    to_ns: int
    why: str = ""


@dataclass(frozen=True)
class Span:
    """A session: in real seconds since the start, and in simulated time. `closed`: whether its end is recorded."""

    id: str
    title: str
    wake: bool
    from_s: float
    to_s: float
    from_ns: int
    to_ns: int
    closed: bool = False


def stretches(lines: Sequence[Json], last: Json | None) -> list[Stretch]:
    """The life's time from its first line to its last, whether or not the life came to its end."""
    if not lines or last is None:
        return []
    start = lines[0]["real_ns"]
    found: list[Stretch] = []
    kind, why, at_s, at_ns = "idle", "", 0.0, int(lines[0]["sim_ns"])

    def close(line: Json, sim_ns: int) -> None:
        nonlocal at_s, at_ns
        to_s = max(at_s, (line["real_ns"] - start) / 1e9)  # the host's clock may have been set back
        if to_s > at_s or sim_ns > at_ns:
            found.append(Stretch(kind, at_s, to_s, at_ns, sim_ns, why))
        at_s, at_ns = to_s, sim_ns

    for line in lines:
        if line["type"] != "clock":
            continue
        change, now = line["change"], max(at_ns, int(line["sim_ns"]))
        if change == "jump":
            close(line, at_ns)
            found.append(Stretch("jump", at_s, at_s, at_ns, now))
            at_ns = now
        elif change in MOTIONS:
            close(line, now if kind == "flow" else at_ns)
            kind, why = change, "; ".join(line.get("holders", ()))
    close(last, max(at_ns, int(last["sim_ns"])) if kind == "flow" else at_ns)
    return found


def spans(lines: Sequence[Json], last: Json | None) -> list[Span]:
    """Sessions in order; one that was never closed ends with the trace."""
    if not lines or last is None:
        return []
    start = lines[0]["real_ns"]
    found: list[Span] = []
    for line in lines:
        if line["type"] != "session":
            continue
        at_s, sim_ns = (line["real_ns"] - start) / 1e9, int(line["sim_ns"])
        if line["change"] == "opening":
            end_s = (last["real_ns"] - start) / 1e9
            title, wake = str(line.get("title", "")), bool(line.get("wake"))
            found.append(Span(line["session"], title, wake, at_s, end_s, sim_ns, int(last["sim_ns"])))
        elif line["change"] == "closed" and found and found[-1].id == line["session"]:
            found[-1] = replace(found[-1], to_s=at_s, to_ns=sim_ns, closed=True)
    return found


def real_by_kind(found: Iterable[Stretch]) -> dict[str, float]:
    """Real seconds by what simulated time did."""
    total = dict.fromkeys(MOTIONS, 0.0)
    for one in found:
        if one.kind in total:
            total[one.kind] += one.to_s - one.from_s
    return {kind: seconds for kind, seconds in total.items() if seconds}


def within(found: Sequence[Stretch], from_s: float, to_s: float) -> list[Stretch]:
    """The stretches of a window of real time, cut at its ends."""
    return [
        replace(one, from_s=max(one.from_s, from_s), to_s=min(one.to_s, to_s))
        for one in found
        if one.from_s < to_s and one.to_s > from_s
    ]
