"""Protects the trace's lines: whatever a harness says, the run goes on and each line is JSON."""

from __future__ import annotations

import json
from pathlib import Path

from sclate.trace import TraceWriter, dumps
from sclate_adapters.signals import TurnFinished

HALF = "half a pair \ud83d of it"


def test_half_of_a_surrogate_pair_is_written_out(tmp_path: Path) -> None:
    signal = TurnFinished(text=HALF)
    with TraceWriter(tmp_path / "trace.jsonl") as trace:
        trace.write(1, "signal", {"signal": signal, "also": [HALF, {HALF: HALF}], "n": 3})
        trace.write(2, "end", {})
    first, second = (json.loads(line) for line in (tmp_path / "trace.jsonl").read_bytes().splitlines())
    assert first["signal"]["text"] == r"half a pair \ud83d of it"
    assert first["also"] == [
        r"half a pair \ud83d of it",
        {r"half a pair \ud83d of it": r"half a pair \ud83d of it"},
    ]
    assert (first["seq"], first["n"], second["seq"], second["type"]) == (1, 3, 2, "end")


def test_plain_text_is_as_it_was() -> None:
    assert json.loads(dumps({"a": "é \U0001f642", "b": b"\xff"})) == {"a": "é \U0001f642", "b": "\\xff"}
