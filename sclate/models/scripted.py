"""`scripted`: a model that answers from a script, faults and delays included.

A script is a list of steps, in Python, in a JSON file, or in a TOML file as [[steps]]:

    text = "..."              what it says
    tool = "bash"             or the tool that it calls,
    input = { command = "date" }  with these arguments
    when = "regex"            only for a request whose last user message matches; such a step may be used
                              again and again, other steps are used once, in order
    delay_s = 0.5             real seconds before it answers
    status = 429              a fault instead of an answer (0 closes the connection),
    after_parts = 1           or a break of the stream after so many parts
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError, field_validator

from sclate.errors import PrerequisiteError
from sclate_adapters.base import JsonDict, Record
from sclate_adapters.models import (
    ModelBackend,
    ModelFault,
    ModelReply,
    ModelRequest,
    Part,
    StopReason,
    TextPart,
    ToolCallPart,
    ToolResultPart,
    Usage,
)


class Step(Record):
    """One step of a script; see the module's docstring."""

    text: str = ""
    tool: str | None = None
    input: JsonDict = Field(default_factory=dict)
    when: str | None = None
    delay_s: float = Field(0.0, ge=0)
    status: int | None = Field(None, ge=0, le=599)
    after_parts: int | None = Field(None, ge=0)

    @field_validator("when")
    @classmethod
    def _is_a_pattern(cls, value: str | None) -> str | None:
        try:
            re.compile(value or "")
        except re.error as error:
            raise ValueError(f"no regular expression: {error}") from None
        return value


def read_script(path: Path) -> list[Any]:
    """Steps of a script file. Raises `PrerequisiteError`."""
    try:
        text = path.read_text()
        return list(tomllib.loads(text)["steps"] if path.suffix == ".toml" else json.loads(text))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise PrerequisiteError(
            f"{path} is no script", f"{type(error).__name__}: {error}", "see docs/models/scripted.md"
        ) from None


def _step(number: int, step: Any) -> Step:
    try:
        return Step.model_validate(step)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise PrerequisiteError(
            f"step {number} of the script is wrong" + (f", at {where!r}" if where else ""),
            first["msg"],
            "see docs/models/scripted.md",
        ) from None


class ScriptedModel(ModelBackend):
    """Answers from a script; says so when it has no step left."""

    name = "scripted"

    def __init__(self, script: str | Path | Sequence[Mapping[str, Any]] = ()) -> None:
        steps = read_script(Path(script)) if isinstance(script, str | Path) else list(script)
        parsed = [_step(number, step) for number, step in enumerate(steps, 1)]
        self._rules = [step for step in parsed if step.when is not None]
        self._queue = [step for step in parsed if step.when is None]
        self._calls = 0

    async def respond(self, request: ModelRequest) -> ModelReply:
        self._calls += 1
        step = self._rule_for(request) or (self._queue.pop(0) if self._queue else None)
        if step is None:
            step = Step(text="The script has no further step.")
        parts: tuple[Part, ...] = (TextPart(text=step.text),) if step.text or step.tool is None else ()
        if step.tool is not None:
            parts += (ToolCallPart(id=f"toolu_{self._calls:06d}", name=step.tool, input=step.input),)
        fault = None
        if step.status is not None or step.after_parts is not None:
            fault = ModelFault(
                status=step.status or 0, message="scripted fault", after_parts=step.after_parts
            )
        return ModelReply(
            parts=parts,
            stop_reason=StopReason.TOOL_USE if step.tool else StopReason.END_TURN,
            usage=Usage(
                input_tokens=max(1, len(request.all_text()) // 4),
                output_tokens=max(1, sum(len(p.model_dump_json()) for p in parts) // 4),
            ),
            delay_s=step.delay_s,
            fault=fault,
        )

    def _rule_for(self, request: ModelRequest) -> Step | None:
        last = next((m for m in reversed(request.messages) if m.role == "user"), request.messages[-1])
        if any(isinstance(part, ToolResultPart) for part in last.parts):
            return None
        return next((s for s in self._rules if s.when and re.search(s.when, last.text)), None)
