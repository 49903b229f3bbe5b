"""Agents for the month: one that knows every rule, and one whose words and tools are those of the apprentice."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Coroutine, Sequence
from datetime import datetime
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
from sclate_adapters.records import Delivery
from sclate_adapters.signals import CronCleared, CronSet
from sclate_benchmarks.apprentice import Apprentice
from sclate_benchmarks.metaclaw.data import Dataset, Day, Round
from sclate_benchmarks.workmonth.office import ZONE

Answer = str | tuple[str, Sequence[CronSet | CronCleared]]
_DOCUMENT = re.compile(r'"\$\(ls (\S+)/\*_(\S+)\.(\w+) \| head -n 1\)"')


def local(day: Day) -> datetime:
    return datetime.fromtimestamp(day.start_ns / 1e9, ZONE)


class Expert:
    """Makes what each round's command looks for; knows the five rules and the right options."""

    def __init__(self, data: Dataset) -> None:
        self.days = {day.id: day for day in data.days}
        self.rounds = {f"{day.id}/{r.id}": r for day in data.days for r in day.rounds}

    def __call__(self, delivery: Delivery, workspace: Path) -> Answer:
        if found := re.search(r"cron `([^`]+)`, zone `([^`]+)`, id `([^`]+)`, prompt `(.+)`$", delivery.text):
            cron, zone, name, prompt = found.groups()
            return "Scheduled.", [CronSet(id=name, cron=cron, zone=zone, prompt=prompt)]
        if found := re.search(r"unscheduling tool: id `([^`]+)`", delivery.text):
            return "Unscheduled.", [CronCleared(id=found[1])]
        asked = self.rounds.get(delivery.turn or "")
        if asked is None:
            if delivery.text.startswith("Night watch"):
                _save(workspace / "night/watch.json", {"checked_at": "28.03.2031 02:30"})
            return "Good."
        if asked.choice is not None:
            return rf"\bbox{{{','.join(sorted(asked.choice.answer))}}}"
        self._work(asked, self.days[delivery.session], workspace)
        return "Done."

    def _work(self, asked: Round, day: Day, workspace: Path) -> None:
        assert asked.check is not None
        stamp = local(day).strftime("%d.%m.%Y %H:%M")
        card = {"written": stamp, "by": "expert", "stage": "final"}
        made: Path | None = None
        for step in asked.check.command.split(" && "):
            words = _DOCUMENT.sub("DOCUMENT", step).split()
            kind = words[1] if words[0] == "python" else words[0]
            path = made if "DOCUMENT" in words else workspace / words[2] if len(words) > 2 else None
            if kind == "test" and "DOCUMENT" not in words:
                _text(workspace / words[2], "made")
            elif kind.endswith("check_value.py"):
                assert path is not None
                data = _load(path)
                _keep(path)
                data[words[3]] = json.loads(step.split(f" {words[3]} ")[1].strip("'"))
                _save(path, data)
            elif kind.endswith("check_backup.py"):
                assert path is not None
                _keep(path)
            elif kind.endswith("check_iso8601.py"):
                assert path is not None
                data = _load(path)
                for field in words[3:]:
                    _set(data, field.split("."), stamp)
                _save(path, data)
            elif kind.endswith("check_filename.py"):
                folder, ext = words[3], words[5]
                made = workspace / folder / f"{asked.id}-work_{local(day).date().isoformat()}.{ext}"
                _text(made, "{}" if ext == "json" else "a,b\n")
            elif kind.endswith("check_metadata.py"):
                assert path is not None
                lines = "".join(f"{k}: {v}\n" for k, v in card.items())
                if path.suffix == ".json":
                    _save(path, {"card": card, **_load(path)})
                else:
                    _text(path, f'"""Card:\n{lines}"""\n' if path.suffix == ".py" else f"---\n{lines}---\n")
            elif kind == "grep":
                with (workspace / "logbook.txt").open("a") as log:
                    log.write(f"LOG {stamp} // {asked.id} // Done as asked\n")


def _text(path: Path, content: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)


def _load(path: Path) -> dict[str, Any]:
    data = json.loads(path.read_text()) if path.exists() else {}
    assert isinstance(data, dict)
    return data


def _save(path: Path, data: dict[str, Any]) -> None:
    _text(path, json.dumps(data))


def _keep(path: Path) -> None:
    copy = path.with_name(path.name + ".before")
    if path.exists() and not copy.exists():
        copy.write_bytes(path.read_bytes())


def _set(data: Any, parts: list[str], stamp: str) -> None:
    if parts[0].endswith("[]"):
        for item in data[parts[0][:-2]]:
            _set(item, parts[1:], stamp)
    elif len(parts) > 1:
        _set(data[parts[0]], parts[1:], stamp)
    else:
        data[parts[0]] = stamp


class ApprenticeWorker:
    """The apprentice in a small harness: a conversation a session, a shell, and a memory folder if it has one."""

    TOOLS = (
        ToolSpec(name="bash", schema_={"type": "object", "properties": {"command": {"type": "string"}}}),
    )

    def __init__(self, data: Dataset, memory: Path | None) -> None:
        self.days = {day.id: day for day in data.days}
        self.memory = memory
        self.model = Apprentice()
        self.session = ""
        self.messages: list[Message] = []
        if memory is not None:
            memory.mkdir()

    def __call__(self, delivery: Delivery, workspace: Path) -> str:
        if delivery.session != self.session:
            self.session, self.messages = delivery.session, []
            self.system = self._system(delivery.session, workspace)
        self.messages.append(Message(role="user", parts=(TextPart(text=delivery.text),)))
        for _ in range(8):
            request = ModelRequest(
                model="apprentice", system=self.system, messages=tuple(self.messages), tools=self.TOOLS
            )
            reply = _now(self.model.respond(request))
            self.messages.append(Message(role="assistant", parts=reply.parts))
            calls = [p for p in reply.parts if isinstance(p, ToolCallPart)]
            if not calls:
                break
            results = tuple(self._run(call, workspace) for call in calls)
            self.messages.append(Message(role="user", parts=results))
        return self.messages[-1].text

    def _system(self, session: str, workspace: Path) -> str:
        when = (
            local(self.days[session]) if session in self.days else datetime(2031, 3, 28, 2, 30, tzinfo=ZONE)
        )
        lines = [
            f"Working directory: {workspace}",
            f"Current date: {when:%A} {when.isoformat(timespec='seconds')}",
        ]
        if self.memory is not None:
            lines.append(f"Memory directory: {self.memory}")
            for path in sorted(self.memory.glob("*.md")):
                lines.append(f'<memory file="{path.name}">\n{path.read_text()}</memory>')
        return "\n".join(lines)

    def _run(self, call: ToolCallPart, workspace: Path) -> ToolResultPart:
        done = subprocess.run(
            ["bash", "-c", str(call.input["command"])],
            cwd=workspace,
            capture_output=True,
            text=True,
            timeout=60,
        )
        text = done.stdout + done.stderr
        return ToolResultPart(call_id=call.id, text=text, is_error=done.returncode != 0)


def _now(reply: Coroutine[Any, Any, ModelReply]) -> ModelReply:
    """The result of a coroutine that never waits."""
    try:
        reply.send(None)
    except StopIteration as done:
        result: ModelReply = done.value
        return result
    raise AssertionError("the apprentice waited")
