"""An in-process harness: runs the apprentice's tool calls for real in a directory, day after day, and grades.

It stands for what the engine and the reference harness do, so that the apprentice can be tested in seconds.
"""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import date, timedelta
from pathlib import Path
from typing import Any

from sclate_adapters.models import (
    Message,
    ModelReply,
    ModelRequest,
    TextPart,
    ToolCallPart,
    ToolResultPart,
    ToolSpec,
)
from sclate_benchmarks.apprentice import Apprentice
from sclate_benchmarks.apprentice.rules import learn
from sclate_benchmarks.apprentice.view import split_feedback

DATA = Path(__file__).parents[4] / "shared" / "data" / "metaclaw-bench"
ROOT = Path(__file__).parents[3]
CHECK = ROOT / "benchmarks/sclate_benchmarks/metaclaw/check.py"
PYTHON = f"{sys.executable} -I -S"
"""The checks and the inline programs need the standard library alone; without `site` they start fast."""
TOOLS = (
    ToolSpec(name="bash", schema_={"type": "object", "properties": {"command": {"type": "string"}}}),
    ToolSpec(name="read", schema_={"type": "object", "properties": {"path": {"type": "string"}}}),
    ToolSpec(
        name="write",
        schema_={"type": "object", "properties": {"path": {"type": "string"}, "content": {"type": "string"}}},
    ),
)
MOST_CALLS = 8
_BOX = re.compile(r"\\(?:bbox|boxed)\{([^}]*)\}")


def require_data() -> None:
    """Fails with what to do where the data set is absent."""
    assert DATA.is_dir(), (
        f"the MetaClaw-Bench data set is not at {DATA}: put it there (its all_tests.json at the top)"
    )


def weekdays(first: date, n: int) -> list[date]:
    """The first n weekdays from a day on."""
    days = (first + timedelta(days=i) for i in range(n * 2))
    return [d for d in days if d.weekday() < 5][:n]


@dataclass(frozen=True)
class Day:
    """One day of the data set."""

    id: str
    when: date
    intro: str
    answer: str
    rounds: tuple[dict[str, Any], ...]


def load_days() -> list[Day]:
    """All days, in order."""
    require_data()
    tests = json.loads((DATA / "all_tests.json").read_text())["test"]
    out = []
    for test, when in zip(tests, weekdays(date(2026, 3, 16), len(tests)), strict=True):
        session = DATA / "openclaw_state/agents/metaclaw_agent/sessions" / f"{test['session']}.jsonl"
        said = [
            m["message"]
            for line in session.read_text().splitlines()
            if (m := json.loads(line))["type"] == "message"
        ]
        intro, reply = (m["content"][0]["text"] for m in said[:2])
        rounds = json.loads((DATA / "eval" / test["eval"] / "questions.json").read_text())["rounds"]
        out.append(Day(test["id"], when, intro, reply, tuple(rounds)))
    return out


@dataclass
class Outcome:
    """One round as it went."""

    day: str
    round: str
    kind: str
    needs: frozenset[str]
    passed: bool
    calls: int
    reply: str
    known: frozenset[str] = frozenset()
    """Kinds of rule that the day's own feedback had stated before this round."""
    detail: str = ""

    @property
    def depends(self) -> bool:
        """Whether the round needs a rule that the day itself has not stated yet."""
        return bool(self.needs - self.known)


@dataclass
class Life:
    """One agent's month: a workspace and, where `memory` is on, a memory directory that both persist."""

    root: Path
    memory: bool
    model: Apprentice = field(default_factory=Apprentice)
    tools: Sequence[ToolSpec] = TOOLS
    log: list[Outcome] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.workspace.mkdir(parents=True)
        for path in sorted((DATA / "workspaces/shared").glob("*.md")):
            shutil.copy(path, self.workspace)
        if self.memory:
            self.memory_dir.mkdir()

    @property
    def workspace(self) -> Path:
        return self.root / "work"

    @property
    def memory_dir(self) -> Path:
        return self.root / "memory"

    def system(self, day: Day) -> str:
        """The system prompt that the reference harness would give."""
        lines = [
            "You are an agent working with tools.",
            f"Working directory: {self.workspace}",
            f"Current date: {day.when:%A} {day.when.isoformat()}T09:00:00+08:00",
        ]
        if self.memory:
            lines.append(f"Memory directory: {self.memory_dir}")
            for path in sorted(self.memory_dir.glob("*.md")):
                lines.append(f'<memory file="{path.name}">\n{path.read_text()}</memory>')
        return "\n".join(lines)

    def turn(self, system: str, messages: list[Message]) -> tuple[str, int]:
        """Calls the model until it settles; returns its last words and the number of calls."""
        for n in range(1, MOST_CALLS + 1):
            request = ModelRequest(
                model="apprentice", system=system, messages=tuple(messages), tools=tuple(self.tools)
            )
            reply = ask(self.model, request)
            messages.append(Message(role="assistant", parts=reply.parts))
            calls = [p for p in reply.parts if isinstance(p, ToolCallPart)]
            if not calls:
                return messages[-1].text, n
            messages.append(Message(role="user", parts=tuple(self.run(c) for c in calls)))
        return "", MOST_CALLS

    def run(self, call: ToolCallPart) -> ToolResultPart:
        """One tool call, for real."""
        if call.name == "bash":
            done = shell(str(call.input["command"]), self.workspace)
            text = done.stdout + done.stderr
            return ToolResultPart(call_id=call.id, text=text, is_error=done.returncode != 0)
        path = self.workspace / str(call.input["path"])
        if call.name == "write":
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(str(call.input["content"]))
            return ToolResultPart(call_id=call.id, text="written")
        if not path.is_file():
            return ToolResultPart(call_id=call.id, text="no such file", is_error=True)
        return ToolResultPart(call_id=call.id, text=path.read_text())

    def live(self, day: Day, rounds: int | None = None) -> list[Outcome]:
        """One day as one conversation; what carries over is the workspace and the memory directory."""
        inputs = DATA / "workspaces/shared" / day.id
        shutil.copytree(inputs, self.workspace / day.id, dirs_exist_ok=True)
        system = self.system(day)
        messages = [
            Message(role="user", parts=(TextPart(text=day.intro),)),
            Message(role="assistant", parts=(TextPart(text=day.answer),)),
        ]
        feedback, out = "", []
        for item in day.rounds[:rounds]:
            known, needed = stated(messages, feedback), needs(item, self.workspace)
            text = f"[Previous Feedback] {feedback}\n\n{item['question']}" if feedback else item["question"]
            messages.append(Message(role="user", parts=(TextPart(text=text),)))
            reply, calls = self.turn(system, messages)
            passed, feedback, detail = grade(item, reply, self.workspace)
            out.append(Outcome(day.id, item["id"], item["type"], needed, passed, calls, reply, known, detail))
        messages.append(Message(role="user", parts=(TextPart(text=f"[Previous Feedback] {feedback}"),)))
        self.turn(system, messages)
        self.log += out
        return out


_NEEDS = {"iso8601": "time", "filename": "name", "metadata": "header", "backup": "backup", "done_log": "log"}


def needs(item: dict[str, Any], workspace: Path) -> frozenset[str]:
    """Kinds of rule that a round's grading command looks at; a log that is long enough already needs none."""
    command = item["eval"].get("command", "")
    found = {_NEEDS[k] for k in re.findall(r"check_(\w+)\.py", command)}
    if re.search(r"20\d{6}_", command):
        found.add("name")
    if (m := re.search(r"check_done_log\.py (\S+) --min-entries (\d+)(?! --task)", command)) is not None:
        log = workspace / m[1]
        if log.is_file() and len(log.read_text().splitlines()) >= int(m[2]):
            found.discard("log")
    return frozenset(found)


def ask(model: Apprentice, request: ModelRequest) -> ModelReply:
    """One reply, synchronously."""
    return asyncio.run(model.respond(request))


def stated(messages: Iterable[Message], feedback: str) -> frozenset[str]:
    """Kinds of rule that this day's own feedback has stated so far."""
    said = [split_feedback(m.text)[0] for m in messages if m.role == "user"]
    return learn([t for t in (*said, feedback) if t]).known()


def shell(command: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """A command line, run in a directory."""
    return subprocess.run(["bash", "-c", command], cwd=cwd, capture_output=True, text=True, timeout=60)


def grade(item: dict[str, Any], reply: str, workspace: Path) -> tuple[bool, str, str]:
    """Verdict, feedback text and detail, by the data set's own terms."""
    told, terms = item["feedback"], item["eval"]
    reminder = "\nKeep this in mind as you continue with the next task."
    if item["type"] == "file_check":
        command = re.sub(r"\bpython scripts/check_(\w+)\.py", rf"python {CHECK} \1", terms["command"])
        command = re.sub(r"\bpython\b(?! *= )", PYTHON, command)
        done = shell(command, workspace)
        passed = done.returncode == terms.get("expect_exit", 0)
        return (
            passed,
            told["correct"] if passed else told["incorrect"] + reminder,
            (done.stdout + done.stderr)[-300:],
        )
    m = _BOX.search(reply)
    chosen, right = set(re.findall(r"[A-Z]", m[1])) if m else set(), set(terms["answer"])
    if chosen == right:
        return True, told["correct"], ""
    lines = [f"You missed option {o}: {told['options'].get(o, '')}" for o in sorted(right - chosen)]
    lines += [
        f"You incorrectly selected option {o}: {told['options'].get(o, '')}" for o in sorted(chosen - right)
    ]
    return False, "\n".join(lines) + reminder, f"{sorted(chosen)} for {sorted(right)}"


class Bench:
    """A workspace and a conversation for single questions; rules reach it by feedback, by memory or in a file."""

    def __init__(self, root: Path, today: date) -> None:
        self.root, self.today = root, today
        self.workspace.mkdir(parents=True)
        self.tools: Sequence[ToolSpec] = TOOLS
        self.messages: list[Message] = []
        self._feedback: list[str] = []
        self._life = Life.__new__(Life)
        self._life.root, self._life.model = root, Apprentice()

    @property
    def workspace(self) -> Path:
        return self.root / "work"

    @property
    def _memory_file(self) -> Path:
        return self.root / "memory" / "MEMORY.md"

    def put(self, path: str, text: str) -> None:
        """Lays a file."""
        (self.workspace / path).parent.mkdir(parents=True, exist_ok=True)
        (self.workspace / path).write_text(text)

    def get(self, path: str) -> str:
        """A file's text."""
        return (self.workspace / path).read_text()

    def files(self) -> list[str]:
        """All files, sorted."""
        return sorted(str(p.relative_to(self.workspace)) for p in self.workspace.rglob("*") if p.is_file())

    def remember(self, text: str) -> None:
        """Lays the memory."""
        self._memory_file.parent.mkdir(parents=True, exist_ok=True)
        self._memory_file.write_text(text)

    def memory(self) -> str:
        """The memory's text."""
        return self._memory_file.read_text()

    def learns(self, rule: str, by: str = "feedback") -> None:
        """Lets a rule be read: in feedback, in the memory loaded, or in a file that a question names."""
        if by == "memory":
            self.remember(rule + "\n")
        elif by == "file":
            self.put("CONVENTIONS.md", rule + "\n")
            self.says("Please write a note about CONVENTIONS.md in Markdown format, and save it to scratch/.")
        else:
            self._feedback.append(rule)

    def hears(self, feedback: str) -> str:
        """A stand-alone feedback message."""
        return self._turn(f"[Previous Feedback] {feedback}")

    def says(self, question: str) -> str:
        """A question, with the feedback learnt since the last one before it."""
        told, self._feedback = " ".join(self._feedback), []
        return self._turn(f"[Previous Feedback] {told}\n\n{question}" if told else question)

    def _turn(self, text: str) -> str:
        system = [
            f"Working directory: {self.workspace}",
            f"Current date: {self.today.isoformat()}T09:00:00+08:00",
        ]
        if self._memory_file.parent.is_dir():
            system += [f"Memory directory: {self._memory_file.parent}"]
            system += [
                f'<memory file="MEMORY.md">\n{self.memory() if self._memory_file.is_file() else ""}</memory>'
            ]
        self.messages.append(Message(role="user", parts=(TextPart(text=text),)))
        self._life.tools = self.tools
        return self._life.turn("\n".join(system), self.messages)[0]
