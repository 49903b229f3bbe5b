"""The command line as a user calls it, and plug-ins installed the way an installer leaves them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

KEPT = ("PATH", "HOME", "LANG", "DOCKER_HOST", "SCLATE_CACHE")
NO_DOCKER = {"DOCKER_HOST": "unix:///nowhere/docker.sock"}
ARGV = [sys.executable, "-m", "sclate.cli.main"]


def environment(env: Mapping[str, str] | None = None) -> dict[str, str]:
    """What the command line sees: little of ours, so that no variable of a developer's shell decides."""
    return {k: v for k, v in os.environ.items() if k in KEPT} | {"COLUMNS": "100"} | dict(env or {})


def sclate(
    *args: str | Path, cwd: Path, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run `sclate ARGS` to its end."""
    return subprocess.run(
        [*ARGV, *map(str, args)], capture_output=True, text=True, cwd=cwd, env=environment(env), timeout=120
    )


PROBE = '''
"""Plug-ins of the tests."""
from sclate_adapters.benchmark import BenchmarkAdapter, BenchmarkMetadata, EnvironmentSpec, Scenario, SourceManifest
from sclate_adapters.effects import SessionPlan
from sclate_adapters.judgments import Grader, GradingPolicy

DAY = 86_400_000_000_000
START = 1_930_006_800_000_000_000  # 2031-02-28T01:00:00Z


class Probe(BenchmarkAdapter):
    """Two mornings \\x1b[31m[red]in Shanghai[/red]."""

    metadata = BenchmarkMetadata(name="probe", version="1", licence="-", citation="-")

    def scenarios(self, split, limit, seed):
        for name in ("first", "second")[:limit]:
            yield Scenario(id=name, start_ns=START, zone="Asia/Shanghai", title="[bold]two\\x1b[2J mornings")

    def environment(self, scenario):
        return EnvironmentSpec()

    def source_manifest(self, ctx):
        return SourceManifest(sessions=tuple(
            SessionPlan(id=f"m{n}", start_ns=START + n * DAY, title=f"morning {n}") for n in (0, 1)
        ))

    def event_sources(self, ctx):
        return ()

    def grading_policy(self, scenario):
        return GradingPolicy(selects=())

    def grader(self, scenario):
        return Judge()


class Judge(Grader):
    async def evaluate(self, ctx):
        raise NotImplementedError


class Bomb:
    @property
    def id(self):
        raise RuntimeError("the probe explodes near sk-abcdefghijklmnop1234 and hunter2hunter2")


class Exploding(Probe):
    """Its scenarios go off in the engine's hands."""

    def scenarios(self, split, limit, seed):
        yield Bomb()


class Half(Probe):
    """Leaves a method out."""

    grader = BenchmarkAdapter.grader


class Anonymous(BenchmarkAdapter):
    """Has no metadata."""

    scenarios = environment = event_sources = grading_policy = grader = lambda self, *_: None


class Full(Probe):
    """Meets a full disk."""

    def scenarios(self, split, limit, seed):
        raise OSError(28, "No space left on device")


class Future(Probe):
    """Written for a contract to come."""

    contract_version = "99.0"


class NoBenchmark:
    """Of no use."""
'''

ENTRY_POINTS = """
[sclate.benchmarks]
probe = sclate_probe:Probe
exploding = sclate_probe:Exploding
full = sclate_probe:Full
future = sclate_probe:Future
nobenchmark = sclate_probe:NoBenchmark
half = sclate_probe:Half
anonymous = sclate_probe:Anonymous
gone = sclate_probe_gone:Probe
nameless = sclate_probe:Nameless
raising = sclate_probe_raising:Probe
leaving = sclate_probe_leaving:Probe

[sclate.agents]
brokenagent = sclate_probe_raising:Agent

[sclate.memories]
brokenmemory = sclate_probe_raising:Memory

[sclate.models]
brokenmodel = sclate_probe_raising:Model
"""

BROKEN = {
    "future": "written for contract 99.0",
    "nobenchmark": "is no BenchmarkAdapter",
    "half": "it leaves out grader",
    "anonymous": "it has no metadata",
    "gone": "No module named 'sclate_probe_gone'",
    "nameless": "Nameless",
    "raising": "ZeroDivisionError",
    "leaving": "SystemExit: 7",
}


def install(folder: Path) -> dict[str, str]:
    """Lay a distribution with good and broken plug-ins into a folder; gives the environment that finds it."""
    info = folder / "sclate_probe-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: sclate-probe\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(ENTRY_POINTS)
    (folder / "sclate_probe.py").write_text(PROBE)
    (folder / "sclate_probe_raising.py").write_text("1 / 0\n")
    (folder / "sclate_probe_leaving.py").write_text("raise SystemExit(7)\n")
    return {"PYTHONPATH": str(folder)}
