"""Compare three runs of MetaClaw-Bench: the lead of memory over none, over how many days it is spread, and
whether it is gone where the memory is emptied between sessions.

Prints a Markdown table; exits 1 unless the lead is at least 8 points over at least 10 days, at most 1 point
with the memory emptied, and each run took less than 20 minutes (10 for the reference harness).
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

LEAD, GONE, DAYS = 0.08, 0.01, 10
SECONDS = {"reference": 600}
ARMS = ("native", "none", "emptied")
KEY = "exact_pass_accuracy"


def main() -> int:
    folder = Path(sys.argv[1])
    lives = [_life(folder / arm) for arm in ARMS]
    figures = [x["figures"] for x in lives]
    days = sorted(name for name in figures[0] if name.startswith(f"{KEY}/day"))
    ahead = [name for name in days if figures[0][name] > figures[1][name]]
    lead, gone = (figures[n][KEY] - figures[1][KEY] for n in (0, 2))
    rows = [
        ("exact pass accuracy (rounds)", [f"{x['figures'][KEY]:.3f} ({x['passed']})" for x in lives]),
        ("upstream score", [f"{f['upstream_score']:.3f}" for f in figures]),
        ("file rounds, exact", [f"{f[KEY + '/file_check']:.3f}" for f in figures]),
        ("choice rounds, exact", [f"{f[KEY + '/multi_choice']:.3f}" for f in figures]),
        ("judged / missing", [f"{x['judged']} / {x['missing']}" for x in lives]),
        ("turns, model calls", [f"{x['turns']}, {x['calls']}" for x in lives]),
        ("real time", [f"{x['real_s']:.0f} s" for x in lives]),
        ("simulated over real", [f"{x['simulated_s'] / x['real_s']:,.0f}" for x in lives]),
        ("the substrate's own, a session", [f"{_own(x, 'sessions', 'sessions'):.2f} s" for x in lives]),
        ("the substrate's own, a turn", [f"{_own(x, 'engine', 'turns') * 1e3:.0f} ms" for x in lives]),
    ]
    print("| | " + " | ".join(f"`{folder.name}+{arm}`" for arm in ARMS) + " |\n|---|---|---|---|")
    for name, values in rows:
        print(f"| {name} | {' | '.join(values)} |")
    print(f"\nlead {lead * 100:.1f} points, ahead on {len(ahead)} of {len(days)} days;", end=" ")
    print(f"with the memory emptied between sessions {gone * 100:.1f} points")
    slow = max(x["real_s"] for x in lives) >= SECONDS.get(folder.name, 1200)
    return int(lead < LEAD or len(ahead) < DAYS or abs(gone) > GONE or slow)


def _life(folder: Path) -> dict[str, Any]:
    return dict(json.loads((folder / "result.json").read_text())["lives"][0])


def _own(life: dict[str, Any], charge: str, count: str) -> float:
    n = life[count] + (life["wake_sessions"] if count == "sessions" else 0)
    return float(life["real_s_by"][charge] / n)


if __name__ == "__main__":
    sys.exit(main())
