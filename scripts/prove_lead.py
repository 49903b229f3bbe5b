"""Compare two runs of MetaClaw-Bench: the lead of memory over none, and over how many days it is spread.

Prints a Markdown table; exits 1 unless the lead is at least 8 points over at least 10 days and each run took
less than 10 minutes.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

LEAD, DAYS, SECONDS = 0.08, 10, 600


def life(folder: str) -> dict[str, Any]:
    return dict(json.loads((Path(folder) / "result.json").read_text())["lives"][0])


def main() -> int:
    native, none = (life(folder) for folder in sys.argv[1:3])
    figures = [x["figures"] for x in (native, none)]
    key = "exact_pass_accuracy"
    days = sorted(name for name in figures[0] if name.startswith(f"{key}/day"))
    ahead = [name for name in days if figures[0][name] > figures[1][name]]
    lead = figures[0][key] - figures[1][key]
    rows = [
        (
            "exact pass accuracy (rounds)",
            [f"{x['figures'][key]:.3f} ({x['passed']})" for x in (native, none)],
        ),
        ("upstream score", [f"{f['upstream_score']:.3f}" for f in figures]),
        ("file rounds, exact", [f"{f[key + '/file_check']:.3f}" for f in figures]),
        ("choice rounds, exact", [f"{f[key + '/multi_choice']:.3f}" for f in figures]),
        ("judged / missing", [f"{x['judged']} / {x['missing']}" for x in (native, none)]),
        ("model calls", [str(x["calls"]) for x in (native, none)]),
        ("real time", [f"{x['real_s']:.0f} s" for x in (native, none)]),
        ("simulated over real", [f"{x['simulated_s'] / x['real_s']:,.0f}" for x in (native, none)]),
    ]
    print("| | `reference+native` | `reference+none` |\n|---|---|---|")
    for name, values in rows:
        print(f"| {name} | {values[0]} | {values[1]} |")
    print(f"\nlead {lead * 100:.1f} points, ahead on {len(ahead)} of {len(days)} days")
    slow = max(native["real_s"], none["real_s"]) >= SECONDS
    return int(lead < LEAD or len(ahead) < DAYS or slow)


if __name__ == "__main__":
    sys.exit(main())
