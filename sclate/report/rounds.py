"""Rounds: what was asked, what came in between, what was answered and written, how it was judged."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from sclate.report.reading import LifeFiles, SessionFiles
from sclate.report.shell import command_of, first_text
from sclate.report.text import Passage, instant, zone_of
from sclate_adapters.judgments import Judgment
from sclate_adapters.records import CallRecord, Delivery, TurnRecord

MOST_TOOL_CALLS = 40
"""Of one round; the rest is counted."""
MOST_FILES = 30
PATH_KEYS = ("path", "file_path", "filename", "file", "notebook_path")
CONTENT_KEYS = ("content", "contents", "text", "file_text", "new_string", "new_str", "new_source")
REDIRECTION = re.compile(r"(?<![<>&\d=-])>{1,2}\s*(?!/dev/)([\w./~+-][\w./~+@%-]*)")

PASS, FAIL, MISSING, SCORED, UNJUDGED = "pass", "fail", "missing", "scored", "not judged"
VERDICTS = (PASS, FAIL, MISSING, SCORED, UNJUDGED)


@dataclass(frozen=True)
class Said:
    """A delivery as the round shows it. `when` is empty where the trace does not have it."""

    id: str
    kind: str
    state: str
    when: str
    text: Passage


@dataclass(frozen=True)
class ToolCall:
    name: str
    arguments: Passage


@dataclass(frozen=True)
class Verdict:
    """One judgment of the round."""

    word: str
    score: float | None
    grader: str
    failure: str
    feedback: Passage
    evidence: Passage
    figures: Mapping[str, float]


@dataclass
class Round:
    """A turn; or what should have been one: `turn` is None where nothing answered, or only a judgment is there."""

    key: str
    session: str
    when: str
    turn: TurnRecord | None
    prompt: Said | None = None
    others: list[Said] = field(default_factory=list)
    answer: Passage | None = None
    tools: list[ToolCall] = field(default_factory=list)
    more_tools: int = 0
    written: list[str] = field(default_factory=list)
    verdicts: list[Verdict] = field(default_factory=list)
    gist: str = ""
    """What is asked, for a line in a list: the prompt without the feedback of the round before in it."""

    @property
    def verdict(self) -> str:
        """The last judgment's word: a turn may be judged again."""
        return self.verdicts[-1].word if self.verdicts else UNJUDGED

    @property
    def score(self) -> float | None:
        return self.verdicts[-1].score if self.verdicts else None

    @property
    def failure(self) -> str:
        """By class; the turn's own before its judgment's."""
        if self.turn is not None and self.turn.failure is not None:
            return self.turn.failure.value
        return self.verdicts[-1].failure if self.verdicts else ""

    def passages(self) -> Iterator[Passage]:
        """All that may be long."""
        for said in (self.prompt, *self.others):
            if said is not None:
                yield said.text
        if self.answer is not None:
            yield self.answer
        yield from (tool.arguments for tool in self.tools)
        for verdict in self.verdicts:
            yield verdict.feedback
            yield verdict.evidence


def verdict_word(judgment: Judgment) -> str:
    """No score is missing, and neither passed nor failed."""
    if judgment.score is None:
        return MISSING
    if judgment.passed is None:
        return SCORED
    return PASS if judgment.passed else FAIL


def rounds(life: LifeFiles) -> list[list[Round]]:
    """Per session its rounds in order: turns, then deliveries and judgments that belong to no turn."""
    delivered = {line["delivery"]: line["sim_ns"] for line in life.trace if line["type"] == "delivery"}
    return [_of_session(files, life.zone, delivered) for files in life.sessions]


def _of_session(files: SessionFiles, zone_name: str, delivered: Mapping[str, int]) -> list[Round]:
    zone = zone_of(zone_name)
    transcript, calls, judged = (f"{files.path}/{n}.jsonl" for n in ("transcript", "calls", "judgments"))
    states = {delivery.id: state for delivery, state in files.deliveries}

    def said(delivery: Delivery) -> Said:
        at = delivered.get(delivery.id)
        return Said(
            id=delivery.id,
            kind=delivery.kind.value,
            state=states.get(delivery.id, ""),
            when=instant(at, zone) if at is not None else "",
            text=Passage(delivery.text, transcript),
        )

    made: dict[str, Round] = {}
    answered = set()
    for turn in files.turns:
        one = Round(turn.key, files.id, instant(turn.started_sim_ns, zone), turn)
        asked = next((d for d in turn.deliveries if d.turn == turn.key), None) or next(
            iter(turn.deliveries), None
        )
        one.prompt = said(asked) if asked else None
        one.others = [said(d) for d in turn.deliveries if d is not asked]
        one.answer = Passage(turn.text, transcript)
        answered |= {d.id for d in turn.deliveries}
        made[turn.key] = one
    for delivery, _ in files.deliveries:
        if delivery.id not in answered:
            one = made.setdefault(
                delivery.turn or delivery.id, Round(delivery.turn or delivery.id, files.id, "", None)
            )
            if one.prompt is None:
                one.prompt = said(delivery)
            else:
                one.others.append(said(delivery))
    for call in files.calls:
        if call.turn in made:
            _add_tools(made[call.turn], call, calls)
    for judgment in files.judgments:
        key = judgment.subject.key
        made.setdefault(key, Round(key, files.id, "", None)).verdicts.append(_verdict(judgment, judged))
    feedback = ""
    for one in made.values():
        one.gist = _gist(one.prompt.text.text if one.prompt else "", feedback)
        feedback = one.verdicts[-1].feedback.text.strip() if one.verdicts else ""
    return list(made.values())


def _gist(prompt: str, feedback: str) -> str:
    _, found, rest = prompt.partition(feedback) if feedback else ("", "", "")
    return rest if found and rest.strip() else prompt


def _verdict(judgment: Judgment, where: str) -> Verdict:
    return Verdict(
        word=verdict_word(judgment),
        score=judgment.score,
        grader=judgment.grader,
        failure=judgment.failure.value if judgment.failure else "",
        feedback=Passage(judgment.feedback, where),
        evidence=Passage(_pretty(judgment.evidence) if judgment.evidence else "", where),
        figures=judgment.figures,
    )


def _add_tools(one: Round, call: CallRecord, where: str) -> None:
    for raw in call.tool_calls:
        if len(one.tools) >= MOST_TOOL_CALLS:
            one.more_tools += 1
            continue
        name, arguments = tool_call(raw)
        one.tools.append(ToolCall(name, Passage(_pretty(arguments), f"{where}, call {call.seq}")))
        for path in files_written(arguments):
            if path not in one.written and len(one.written) < MOST_FILES:
                one.written.append(path)


def tool_call(raw: Mapping[str, Any]) -> tuple[str, Any]:
    """Name and arguments of a tool call as any dialect writes it; arguments that are no JSON stay text."""
    inner = raw.get("function")
    call: Mapping[str, Any] = inner if isinstance(inner, dict) else raw
    arguments = call.get("input", call.get("arguments"))
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except ValueError:
            pass
    return str(call.get("name") or raw.get("type") or "tool"), arguments


def files_written(arguments: Any) -> list[str]:
    """Paths that a tool call names as written: a path beside a content, or redirections of a shell command.

    What it says, not what it did: the call may have failed.
    """
    if not isinstance(arguments, dict):
        return []
    path = first_text(arguments, PATH_KEYS)
    if path and any(key in arguments for key in CONTENT_KEYS):
        return [path]
    heads = command_of(arguments)
    return [path for path in dict.fromkeys(REDIRECTION.findall(heads)) if not path.isdigit()]


def _pretty(value: Any) -> str:
    """JSON for reading: `key: value`, with texts of several lines as they are."""
    if isinstance(value, str):
        return value
    if not isinstance(value, dict):
        return json.dumps(value, ensure_ascii=False, default=str)
    lines = []
    for key, item in value.items():
        text = item if isinstance(item, str) else json.dumps(item, ensure_ascii=False, default=str)
        lines.append(f"{key}:\n{text}" if "\n" in text else f"{key}: {text}")
    return "\n".join(lines)
