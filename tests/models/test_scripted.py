"""Scripts: what is answered when, and what a wrong script says."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import pytest

from sclate.errors import PrerequisiteError
from sclate.models.scripted import ScriptedModel, Step
from sclate_adapters.models import (
    Message,
    ModelFault,
    ModelReply,
    ModelRequest,
    Part,
    StopReason,
    TextPart,
    ToolCallPart,
    ToolResultPart,
)

PAGE = Path(__file__).parents[2] / "docs/models/scripted.md"


def ask(model: ScriptedModel, *parts: Part | str) -> ModelReply:
    said = tuple(TextPart(text=p) if isinstance(p, str) else p for p in parts)
    request = ModelRequest(model="m", messages=(Message(role="user", parts=said),))
    return asyncio.run(model.respond(request))


def texts(model: ScriptedModel, *questions: str) -> list[Any]:
    return [part.text for q in questions for part in ask(model, q).parts if isinstance(part, TextPart)]


def test_steps_are_used_once_and_in_order() -> None:
    model = ScriptedModel([{"text": "one"}, {"text": "two"}])
    assert texts(model, "a", "b", "c") == ["one", "two", "The script has no further step."]


def test_rules_answer_what_they_match_again_and_again() -> None:
    model = ScriptedModel([{"when": "^date", "text": "Monday"}, {"text": "one"}])
    assert texts(model, "date?", "what?", "date!") == ["Monday", "one", "Monday"]


def test_a_tool_result_is_answered_by_the_next_step_and_not_by_the_rule_that_called_it() -> None:
    model = ScriptedModel([{"when": "date", "tool": "bash", "input": {"command": "date"}}, {"text": "done"}])
    call = ask(model, "the date")
    assert call.stop_reason is StopReason.TOOL_USE
    (part,) = call.parts
    assert isinstance(part, ToolCallPart)
    assert (part.name, part.input) == ("bash", {"command": "date"})
    result = ask(model, ToolResultPart(call_id=part.id, text="the date is"), "the date")
    assert result.parts == (TextPart(text="done"),)


def test_calls_have_ids_of_their_own() -> None:
    model = ScriptedModel([{"tool": "bash"}, {"tool": "bash"}])
    ids = {p.id for _ in range(2) for p in ask(model, "x").parts if isinstance(p, ToolCallPart)}
    assert len(ids) == 2


def test_faults_and_delays() -> None:
    model = ScriptedModel([{"status": 429, "delay_s": 0.5}, {"text": "a", "tool": "bash", "after_parts": 1}])
    first, second = ask(model, "x"), ask(model, "x")
    assert (first.delay_s, first.fault) == (0.5, ModelFault(status=429, message="scripted fault"))
    assert second.fault == ModelFault(status=0, message="scripted fault", after_parts=1)


def test_an_answer_has_usage() -> None:
    usage = ask(ScriptedModel([{"text": "x" * 400}]), "y" * 4000).usage
    assert (usage.input_tokens or 0) >= 900
    assert (usage.output_tokens or 0) >= 90


def test_scripts_come_from_files(tmp_path: Path) -> None:
    (tmp_path / "s.json").write_text(json.dumps([{"text": "8€"}]))
    (tmp_path / "s.toml").write_text(
        '[[steps]]\ntext = "8€"\n[[steps]]\ntool = "bash"\ninput = {command = "date"}\n'
    )
    assert texts(ScriptedModel(tmp_path / "s.json"), "x") == ["8€"]
    assert texts(ScriptedModel(str(tmp_path / "s.toml")), "x") == ["8€"]


def test_the_example_of_the_page_does_what_it_says(tmp_path: Path) -> None:
    found = re.search(r"```toml\n(\[\[steps.*?)```", PAGE.read_text(), re.DOTALL)
    assert found
    (tmp_path / "script.toml").write_text(found.group(1))
    model = ScriptedModel(tmp_path / "script.toml")
    (call,) = ask(model, "what day is it?").parts
    assert isinstance(call, ToolCallPart)
    assert call.input == {"command": "date"}
    assert texts(model, "How is the WEATHER?") == ["Rain."]
    assert ask(model, ToolResultPart(call_id=call.id, text="Mon")).parts == (TextPart(text="It is Monday."),)
    assert texts(model, "weather") == ["Rain."]


def test_the_page_has_every_key_of_a_step() -> None:
    rows = [line.split("|")[1] for line in PAGE.read_text().splitlines() if line.startswith("| `")]
    assert set(re.findall(r"`(\w+)`", "".join(rows))) == set(Step.model_fields)


@pytest.mark.parametrize(
    ("steps", "says"),
    [
        ([{"text": "a"}, {"txt": "b"}], "step 2 .*txt"),
        ([{"status": 1000}], "step 1 .*status"),
        ([{"when": "("}], "no regular expression"),
        (["text"], "step 1"),
    ],
)
def test_a_wrong_step_is_named(steps: list[Any], says: str) -> None:
    with pytest.raises(PrerequisiteError, match=says):
        ScriptedModel(steps)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("s.json", "{"),
        ("s.json", "3"),
        ("s.toml", "steps = 3"),
        ("s.toml", "text = 'a'"),
        ("missing.json", None),
    ],
)
def test_a_file_that_is_no_script_is_named(tmp_path: Path, name: str, content: str | None) -> None:
    if content is not None:
        (tmp_path / name).write_text(content)
    with pytest.raises(PrerequisiteError, match=name):
        ScriptedModel(tmp_path / name)
