"""Checks a finished trace from the outside, apart from the engine that wrote it."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

PHASES = ("world", "session", "user", "agent", "grading", "bookkeeping")


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def check(lines: list[dict[str, Any]]) -> None:
    """Raises AssertionError for the first law that the trace breaks."""
    assert [x["seq"] for x in lines] == list(range(1, len(lines) + 1))
    assert all(b["sim_ns"] >= a["sim_ns"] for a, b in zip(lines, lines[1:], strict=False)), "time went back"
    assert lines[0]["type"] == "run"
    assert lines[-1]["type"] == "end"
    dispatches = [x for x in lines if x["type"] == "dispatch"]
    ends = Counter(x["event"] for x in lines if x["type"] == "effect.end")
    assert set(ends.values()) <= {1}, "an event ended twice"
    assert {x["event"] for x in dispatches} <= set(ends), "an event never ended"
    assert all(x["lateness_ns"] >= 0 for x in dispatches), "dispatched before it was due"
    ranks = {x["source"]: x["rank"] for x in lines if x["type"] == "register" and "rank" in x}
    keys: dict[int, list[Any]] = {}
    for x in dispatches:
        seq = int(x["event"].rpartition(":")[2])
        keys.setdefault(x["due_sim_ns"], []).append(
            (x["delta"], PHASES.index(x["phase"]), ranks[x["source"]], seq)
        )
    for instant, order in keys.items():
        assert order == sorted(order), f"order at {instant}: {order}"
    held = False
    for x in lines:
        if x["type"] == "clock":
            assert not (x["change"] == "jump" and held), f"a jump under a lease, line {x['seq']}"
            held = x["change"] in ("flow", "frozen") or (held and x["change"] == "jump")
    delivered = {x["event"] for x in lines if x["type"] == "effect.start" and "delivery" in x["effect"]}
    started = [x["effect"]["delivery"]["id"] for x in lines if x.get("event") in delivered and "effect" in x]
    accounted = Counter(x["delivery"] for x in lines if x["type"] == "delivery")
    assert all(accounted[d] == 1 for d in started), "a delivery is not accounted for"
