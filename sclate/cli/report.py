"""The summary of a run, as it is printed at its end and again later."""

from __future__ import annotations

from pathlib import Path

from sclate.cli.console import out
from sclate.progress import plain
from sclate.run import LifeSummary, RunSummary


def print_summary(summary: RunSummary, folder: Path) -> None:
    """What came of it, in lines."""
    for line in summary_lines(summary, folder):
        out.print(plain(line), soft_wrap=True)


def summary_lines(summary: RunSummary, folder: Path) -> list[str]:
    head = f"{summary.benchmark} lived by {summary.arm}, model {summary.model}"
    lines = [head + (" (no model: not a benchmark result)" if summary.keyless else "")]
    for life in summary.lives:
        lines += life_lines(life, summary)
    return [*lines, f"run folder: {folder}"]


def life_lines(life: LifeSummary, run: RunSummary | None = None) -> list[str]:
    """What came of one life; of a run that broke off nobody knows the model."""
    compression = f"{life.compression:,.0f}x" if life.compression else "-"
    lines = [
        f"life {life.key.slug()}",
        f"  judged {life.judged}, passed {life.passed}, missing {life.missing}",
    ]
    if life.nothing_judged:
        lines.append("  nothing came of it: every judgment is missing")
    for one in life.failures:
        what = {"judgment": "missing judgments", "turn": "failed turns", "session": "failed sessions"}
        lines.append(f"  {what[one.where]} ({one.failure}): {one.count}, the first {shortened(one.example)}")
    headline = {name: value for name, value in life.figures.items() if "/" not in name}
    for name, value in headline.items():
        lines.append(f"  {name}: {'missing' if value is None else f'{value:.4f}'}")
    wakes = f" + {life.wake_sessions} wake" if life.wake_sessions else ""
    days, real = life.simulated_s / 86_400, life.real_s
    lines += [
        f"  {life.sessions} sessions{wakes}, {life.turns} turns, {life.calls} model calls",
        f"  {days:.1f} simulated days in {real:.0f} s ({compression})",
        "  real time: " + ", ".join(f"{charge} {s:.1f} s" for charge, s in life.real_s_by.items()),
    ]
    if life.session_overhead_s is not None and life.turn_overhead_s is not None:
        own = f"{life.session_overhead_s:.2f} s a session, {life.turn_overhead_s * 1e3:.1f} ms a turn"
        lines.append(f"  of it the substrate's own: {own}")
    if life.tokens:
        lines.append("  tokens: " + ", ".join(f"{name} {n:,}" for name, n in life.tokens.items()))
    elif run is not None and run.keyless and life.calls:
        lines.append(f"  tokens: the model {run.model} reports none")
    elif life.calls:
        lines.append("  tokens: not reported")
    if life.tokens and life.calls_without_usage:
        lines.append(f"  {life.calls_without_usage} calls did not say how many tokens they took")
    if life.lateness_p99_ms is not None:
        lines.append(f"  lateness of dispatches p99 {life.lateness_p99_ms:.1f} ms")
    if life.interrupted:
        lines.append("  interrupted at a session boundary")
    if life.failure is not None:
        lines.append(f"  failed ({life.failure}): {life.failure_message}")
    return lines


def shortened(text: str, most: int = 300) -> str:
    """One line of a message; the whole is in run.log and in the report."""
    line = " ".join(text.split())
    return line if len(line) <= most else line[:most] + " ..."
