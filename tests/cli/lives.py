"""Small lives in real Docker: a benchmark of one question a day, harnesses with faults, a run as a user does it."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import docker

from .kit import ARGV, environment

MODULE = "sclate_lives"
RUN_LIMIT_S = 150

PROGRAM = r'''
"""A harness that is asked to misbehave: what it does with its first line is its argument."""
import json, sys, time

def emit(type_, **fields):
    print(json.dumps({"type": type_, **fields}), flush=True)

fault, first_session = sys.argv[1], sys.argv[2] == "first"
if fault == "start":
    sys.stderr.write("cannot find the \x1b]0;P3\x07tokenizer\n")
    sys.exit(3)
emit("alive")
emit("idle")
for raw in sys.stdin:
    line = json.loads(raw)
    emit("turn_started", trigger="user")
    emit("consumed", ids=[line["id"]])
    if first_session and fault == "turn":
        sys.stderr.write("segmentation fault\n")
        sys.exit(7)
    if first_session and fault == "silence":
        time.sleep(3600)
    emit("turn_finished", text="done", stop="end_turn")
    emit("idle")
'''

SOURCE = '''
"""Plug-ins of the tests: a benchmark and harnesses for lives that go wrong."""
from sclate_adapters.agent import ProcessSpec, Provision, StateSpec
from sclate_adapters.benchmark import BenchmarkAdapter, BenchmarkMetadata, EnvironmentSpec, Scenario, SourceManifest
from sclate_adapters.effects import SessionPlan
from sclate_adapters.judgments import Grader, GradingPolicy, Judgment, Subject, SubjectKind
from sclate_adapters.models import ModelBackend
from sclate_adapters.sources import GradingSource, TurnPlan, UserInputSource
from sclate_agents.harness.reference.adapter import ReferenceAgent, ReferenceChannel
from sclate_agents.memory.native import NativeMemory

DAY = 86_400_000_000_000
START = 1_929_920_400_000_000_000
PROGRAM = b"""@PROGRAM@"""
HOSTILE = "q\\x1b]0;P3\\x07\\x1b[2J[red]m[bold] \\u202ec = 1"


def broken(*args, **kwargs):
    raise ZeroDivisionError("near sk-abcdefghijklmnop1234")


def breaking(plugin, name):
    """Have a method of a plug-in raise."""
    if name == "__init__":
        broken()
    if name:
        setattr(plugin, name, broken)


class Judge(Grader):
    """Passes whoever answered; may hang, raise or leave hostile evidence first."""

    name = "judge"

    def __init__(self, how):
        self.how = how

    @property
    def needs_sandbox(self):
        return self.how == "hang"

    async def evaluate(self, ctx):
        if self.how == "hang" and ctx.subject.key.startswith("d1/"):
            await ctx.run(["sh", "-c", "sleep 3600 & sleep 3600"], timeout_s=3600)
        if self.how == "raise":
            raise ZeroDivisionError("judge")
        turn = ctx.turns[0]
        good = turn.failure is None
        return Judgment(
            subject=ctx.subject, score=float(good), passed=good, grader=self.name,
            feedback=HOSTILE, evidence={"note": HOSTILE},
        )


class Asking(UserInputSource):
    def run(self, ctx):
        yield ctx.until(START)
        broken()


class Hearing(ReferenceChannel):
    """option: raises."""

    def __init__(self, raises):
        breaking(self, raises)


class Days(BenchmarkAdapter):
    """One question a day; options: days, judge, limit_s, raises (a method, or `run` of its source)."""

    option_names = ("days", "judge", "limit_s", "raises")
    metadata = BenchmarkMetadata(name="days", version="1", licence="-", citation="-")

    def __init__(self, data, options):
        super().__init__(data, options)
        breaking(self, options.get("raises"))

    @property
    def ids(self):
        return [f"d{n}" for n in range(1, self.options.get("days", 2) + 1)]

    def scenarios(self, split, limit, seed):
        yield Scenario(id="week", start_ns=START, zone="Asia/Shanghai", title=HOSTILE)

    def environment(self, scenario):
        return EnvironmentSpec(workspace={"task.txt": b"hello\\n"})

    def source_manifest(self, ctx):
        return SourceManifest(sessions=tuple(
            SessionPlan(id=one, start_ns=START + n * DAY, title=HOSTILE) for n, one in enumerate(self.ids)
        ))

    def event_sources(self, ctx):
        keys = [f"{one}/q" for one in self.ids]
        turns = [TurnPlan(key=key, session=key[:2], text="hello?") for key in keys]
        policy = self.grading_policy(ctx.scenario)
        asking = Asking if self.options.get("raises") == "run" else UserInputSource
        return [asking(turns), GradingSource(policy, keys, self.ids)]

    def grading_policy(self, scenario):
        return GradingPolicy(
            selects=tuple(Subject(kind=SubjectKind.TURN, keys=(f"{one}/q",)) for one in self.ids),
            timeout_s=self.options.get("limit_s", 60.0),
        )

    def grader(self, scenario):
        return Judge(self.options.get("judge", "plain"))

    def figures(self, scenario, judgments):
        return super().figures(scenario, judgments) | {HOSTILE: 1.0}


class Faulty(ReferenceAgent):
    """The reference harness; with the option `fault` a program that speaks its protocol and misbehaves.
    `raises`: a method of the adapter or of its channel."""

    option_names = ("fault", "raises")

    def __init__(self, options):
        super().__init__(options)
        if options.get("raises") not in ("decode", "encode"):
            breaking(self, options.get("raises"))

    def channel(self, ctx):
        return Hearing(self.options.get("raises"))

    def provision(self, ctx):
        if "fault" not in self.options:
            return super().provision(ctx)
        return Provision(files={f"{ctx.home}/.probe/agent.py": PROGRAM})

    def launch(self, ctx):
        if "fault" not in self.options:
            return super().launch(ctx)
        which = "first" if ctx.session.id == "d1" else "later"
        argv = ("python3", "-u", f"{ctx.home}/.probe/agent.py", self.options["fault"], which)
        return ProcessSpec(argv=argv, env={"HOME": ctx.home, "PATH": ctx.path}, cwd=ctx.workdir)

    def durable_state(self, ctx):
        return StateSpec()


class Forgetful(NativeMemory):
    """option: raises."""

    option_names = ("raises",)

    def __init__(self, options, *, frozen):
        super().__init__(options, frozen=frozen)
        breaking(self, options.get("raises"))


class Mute(ModelBackend):
    """A model that cannot be made."""

    def __init__(self):
        broken()

    async def respond(self, request):
        raise NotImplementedError
'''

CONFIG = f"""
model = "mine"

[benchmark]
name = "{MODULE}:Days"

[memory]
name = "none"

[models.mine]
backend = "scripted"
options = {{ script = [{{ when = "hello", text = "hello yourself" }}] }}
"""


@dataclass(frozen=True)
class Lived:
    """A run that ended. `pid` is what its containers were labelled with."""

    code: int
    stdout: str
    stderr: str
    pid: int
    folder: Path

    @property
    def life(self) -> Path:
        (life,) = (self.folder / "lives").iterdir()
        return life

    @property
    def result(self) -> dict[str, Any]:
        (life,) = json.loads((self.folder / "result.json").read_text())["lives"]
        assert isinstance(life, dict)
        return life

    def lines(self, kind: str) -> list[dict[str, Any]]:
        text = (self.life / "trace.jsonl").read_text()
        return [line for line in map(json.loads, text.splitlines()) if line["type"] == kind]

    def judgments(self) -> list[tuple[str, Any, Any, Any]]:
        return [(x["subject"], x["score"], x["passed"], x["failure"]) for x in self.lines("judgment")]

    def sessions(self) -> dict[str, Any]:
        """Failure class by id of the sessions that closed."""
        return {
            x["session"]: x["record"]["failure"] for x in self.lines("session") if x["change"] == "closed"
        }


def install(folder: Path, config: str = CONFIG) -> dict[str, str]:
    """Put plug-ins and configuration into a folder; gives the environment that finds them."""
    source = SOURCE.replace("@PROGRAM@", PROGRAM.replace("\\", "\\\\").replace('"""', "'''"))
    (folder / f"{MODULE}.py").write_text(source)
    (folder / "c.toml").write_text(config)
    return {"PYTHONPATH": str(folder), "PYTHONUNBUFFERED": "1"}


def start(
    folder: Path, *args: str, config: str = CONFIG, env: Mapping[str, str] | None = None
) -> subprocess.Popen[str]:
    """Begin a run in an empty folder; its run folder is `r`."""
    found = install(folder, config)
    return subprocess.Popen(
        [*ARGV, "run", "c.toml", "--out", "r", *args],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=folder,
        env=environment(found | dict(env or {})),
    )


def end(run: subprocess.Popen[str], folder: Path) -> Lived:
    """Wait for it; no container of its may be left, whatever happened."""
    try:
        stdout, stderr = run.communicate(timeout=RUN_LIMIT_S)
    except subprocess.TimeoutExpired:
        run.kill()
        stdout, stderr = run.communicate()
        raise AssertionError(f"the run does not end:\n{stdout}\n{stderr}") from None
    assert containers(run.pid) == []
    assert "Traceback" not in stdout + stderr, stdout + stderr
    return Lived(run.returncode, stdout, stderr, run.pid, folder / "r")


def live(folder: Path, *args: str, config: str = CONFIG, env: Mapping[str, str] | None = None) -> Lived:
    """A whole run."""
    return end(start(folder, *args, config=config, env=env), folder)


def containers(pid: int) -> list[str]:
    """Names of the containers that a run left."""
    client = docker.from_env()
    try:
        found = client.containers.list(
            all=True, filters={"label": f"sclate.owner.pid={pid}"}, ignore_removed=True
        )
        return [str(container.name) for container in found]
    finally:
        client.close()
