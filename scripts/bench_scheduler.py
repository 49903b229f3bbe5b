"""Speed of the scheduler and of the path to the harness, against a raw SimPy loop and a bare heap loop.

One run prints one JSON object and a table; figures are medians of repetitions. Numbers of one machine and
one moment: compare ratios, not seconds.
"""

from __future__ import annotations

import asyncio
import heapq
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import simpy

from sclate.clock import HybridClock
from sclate.sandbox.build import ensure_all
from sclate.sandbox.docker import DockerSandbox
from sclate.sandbox.engine import docker_client
from sclate.sandbox.protocol import SandboxSpec
from sclate.scheduler import Scheduler
from sclate.trace import TraceWriter
from sclate_adapters.effects import AsyncReserve, RunHook
from sclate_adapters.events import Event, EventEnd, EventSource, Origin, Outcome, Phase, SourceContext, Steps

T0 = 1_900_000_000_000_000_000
DONE = EventEnd(outcome=Outcome.DONE)
EFFECT = RunHook(hook="nothing")


class Done:
    """Effects that are over at once."""

    def start(self, event: Event) -> EventEnd:
        return DONE


class Ticker(EventSource):
    """`count` dispatches one after another, beside `pending` events that lie far ahead."""

    origin = Origin.BENCHMARK

    def __init__(self, count: int, pending: int) -> None:
        self.name, self.count, self.pending = "ticker", count, pending
        self.elapsed_s = 0.0

    def run(self, ctx: SourceContext) -> Steps:
        for n in range(self.pending):
            ctx.at(T0 + 10**18 + n, Phase.USER, EFFECT, kind="pending", ambient=True)
        start = time.perf_counter()
        for _ in range(self.count):
            yield ctx.at(ctx.now + 1000, Phase.USER, EFFECT, kind="tick").ended
        self.elapsed_s = time.perf_counter() - start


def dispatches_per_s(count: int, pending: int) -> float:
    """The real scheduler with the real trace."""
    source = Ticker(count, pending)
    with tempfile.TemporaryDirectory() as folder, TraceWriter(Path(folder) / "trace.jsonl") as trace:
        scheduler = Scheduler(HybridClock(T0), Done(), trace)
        scheduler.add_sources([source])
        asyncio.run(scheduler.run())
    return count / source.elapsed_s


def simpy_per_s(count: int) -> float:
    """SimPy alone: a process that waits for timeouts."""
    env = simpy.Environment()

    def process() -> Steps:
        for _ in range(count):
            yield env.timeout(1000)

    env.process(process())
    start = time.perf_counter()
    env.run()
    return count / (time.perf_counter() - start)


def heap_per_s(count: int) -> float:
    """A bare loop over a heap."""
    queue = [(0, 0)]
    start = time.perf_counter()
    for n in range(count):
        due, _ = heapq.heappop(queue)
        heapq.heappush(queue, (due + 1000, n))
    return count / (time.perf_counter() - start)


def p99(values: list[float]) -> float:
    return sorted(values)[int(len(values) * 0.99)]


def jump_ms() -> list[float]:
    """A jump of the clock with a sandbox's offset file behind it is measured in `in_sandbox`; here alone."""
    clock, times = HybridClock(T0), []
    for n in range(1000):
        start = time.perf_counter()
        clock.jump(T0 + (n + 1) * 10**12)
        times.append((time.perf_counter() - start) * 1e3)
    return times


class Flowing(EventSource):
    """Events 10 ms apart while time flows: how late are they dispatched?"""

    name, origin = "flowing", Origin.BENCHMARK

    def run(self, ctx: SourceContext) -> Steps:
        ctx.at(T0, Phase.WORLD, AsyncReserve(hook="flow"), kind="flow")
        ends = [ctx.at(T0 + n * 10_000_000, Phase.USER, EFFECT, kind="tick").ended for n in range(1, 200)]
        yield ctx.all_of(ends)


class FlowRunner:
    def __init__(self, clock: HybridClock) -> None:
        self.clock = clock

    def start(self, event: Event) -> object:
        return self._flow() if event.kind == "flow" else DONE

    async def _flow(self) -> EventEnd:
        with self.clock.flow("bench"):
            await asyncio.sleep(2.1)
        return DONE


def lateness_ms() -> list[float]:
    clock = HybridClock(T0)
    with tempfile.TemporaryDirectory() as folder, TraceWriter(Path(folder) / "trace.jsonl") as trace:
        scheduler = Scheduler(clock, FlowRunner(clock), trace)  # type: ignore[arg-type]
        scheduler.add_sources([Flowing()])
        asyncio.run(scheduler.run())
    return [ns / 1e6 for ns in scheduler.lateness_ns]


async def in_sandbox() -> dict[str, float]:
    """Costs with a real container: bytes to a process's stdin, a jump it can see, freeze and thaw."""
    built, client = ensure_all(lambda _: None), docker_client()
    start = time.perf_counter()
    sandbox = DockerSandbox(SandboxSpec(built.image, built.runtime, "agent"), client)
    try:
        await sandbox.start()
        started_ms = (time.perf_counter() - start) * 1e3
        echo = "import sys,time\nfor line in sys.stdin: print(time.monotonic_ns(), flush=True)"
        got: asyncio.Queue[int] = asyncio.Queue()
        process = await sandbox.spawn(
            "echo",
            ["python3", "-u", "-c", echo],
            user="agent",
            on_output=lambda _, lines, __: [got.put_nowait(int(x)) for x in lines] and None,
        )
        deliver = []
        for _ in range(300):
            sent = time.monotonic_ns()
            await process.write(b"x\n")
            deliver.append((await got.get() - sent) / 1e6)
        jumps, freezes = [], []
        for n in range(200):
            start = time.perf_counter()
            sandbox.set_offset(n * 86_400 * 10**9)
            jumps.append((time.perf_counter() - start) * 1e3)
            start = time.perf_counter()
            sandbox.freeze()
            sandbox.thaw()
            freezes.append((time.perf_counter() - start) * 1e3)
    finally:
        await sandbox.close()
        client.close()
    return {
        "sandbox_start_ms": started_ms,
        "deliver_to_stdin_p50_ms": statistics.median(deliver),
        "deliver_to_stdin_p99_ms": p99(deliver),
        "jump_with_sandbox_p50_ms": statistics.median(jumps),
        "jump_with_sandbox_p99_ms": p99(jumps),
        "freeze_and_thaw_p50_ms": statistics.median(freezes),
    }


def whole_life() -> dict[str, float]:
    """What the substrate itself costs in a month lived by the reference harness: `workmonth`."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        argv = [sys.executable, "-m", "sclate.cli.main", "run", "--benchmark", "workmonth", "--quiet"]
        subprocess.run([*argv, "--out", str(out)], check=True, stdout=sys.stderr)
        result = json.loads((out / "result.json").read_text())
    (life,) = result["lives"]
    sessions = life["sessions"] + life["wake_sessions"]
    return {
        "substrate_per_session_s": life["real_s_by"]["sessions"] / sessions,
        "substrate_per_turn_ms": life["real_s_by"]["engine"] / life["turns"] * 1e3,
        "host_rss_mb": result["host_rss_mb"],
        "month_s": life["real_s"],
    }


def main() -> None:
    repeats = 5
    figures: dict[str, float] = {}
    for pending in (1_000, 10_000, 100_000):
        rates = [dispatches_per_s(20_000, pending) for _ in range(repeats)]
        figures[f"dispatches_per_s_{pending}_pending"] = statistics.median(rates)
    figures["simpy_per_s"] = statistics.median(simpy_per_s(200_000) for _ in range(repeats))
    figures["heap_per_s"] = statistics.median(heap_per_s(200_000) for _ in range(repeats))
    figures["simpy_over_sclate"] = figures["simpy_per_s"] / figures["dispatches_per_s_1000_pending"]
    figures["flatness_100000_over_1000"] = (
        figures["dispatches_per_s_100000_pending"] / figures["dispatches_per_s_1000_pending"]
    )
    figures["jump_p99_ms"] = p99(jump_ms())
    late = lateness_ms()
    figures["lateness_flowing_p50_ms"] = statistics.median(late)
    figures["lateness_flowing_p99_ms"] = p99(late)
    if "--no-docker" not in sys.argv:
        figures |= asyncio.run(in_sandbox())
        figures |= whole_life()
    for name, value in figures.items():
        print(f"{name:<36} {value:>14,.3f}", file=sys.stderr)
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
