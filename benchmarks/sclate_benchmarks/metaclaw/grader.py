"""Judging rounds as upstream does, and saying in its words what was wrong.

A file round passes by a command's exit status in a private copy of the workspace; a choice round by the
letters in the first `\\bbox{...}` or `\\boxed{...}` of the answer. `Judgment.passed` is an exact pass and
`Judgment.score` is upstream's score: 1 or 0, and for choices 1 - (wrong + missed) / options, which can be
negative.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib.resources import files

from sclate_adapters.base import JsonDict
from sclate_adapters.judgments import CommandResult, GradeContext, Grader, Judgment, Subject
from sclate_benchmarks.metaclaw.data import Choice, Feedback, FileCheck, Round

REMINDER = "Keep this in mind as you continue with the next task."
NO_BOX = r"No \bbox{X} was found in the last answer; write \bbox{A} for one option, \bbox{A,C} for several."

BOX = re.compile(r"\\(?:bbox|boxed)\{([^}]*)\}")
CHECK_KINDS = ("iso8601", "filename", "metadata", "backup", "done_log")
CHECK_SOURCE = files(__package__).joinpath("check.py").read_bytes()

# The checkers stand where the questions' commands look for them, as links out of the agent's reach: Python
# resolves a script's link before it sets up its import path, so nothing in the workspace can stand in for a
# module of theirs. Whatever the agent put in their place goes.
PREPARE = """\
[ -d scripts ] && [ ! -L scripts ] || {{ rm -rf scripts; mkdir scripts; }}
chmod u+rwx scripts; rm -rf {names}; ln -s {sources} scripts/
command -v python >/dev/null || python() {{ python3 "$@"; }}
"""
# Modules are not taken from the workspace either, where the sandbox's Python knows how (3.11 and later).
CHECK_ENV = {"PYTHONSAFEPATH": "1", "PYTHONDONTWRITEBYTECODE": "1", "PYTHONNOUSERSITE": "1"}
EVIDENCE_CHARS = 2000


def script_files(own: Mapping[str, bytes], rules: bytes | None = None) -> dict[str, bytes]:
    """The folder `scripts/`: upstream's checkers from the user's data, ours for those that it lacks.

    Args:
        own: the user's, by file name.
        rules: a `--rules` file for our checkers; None for MetaClaw's rules.
    """
    folder = {"check.py": CHECK_SOURCE}
    for kind in CHECK_KINDS:
        folder[f"check_{kind}.py"] = _stub(kind, rules is not None)
    if rules is not None:
        folder["rules.json"] = rules
    return {f"scripts/{name}": data for name, data in {**folder, **own}.items()}


def _stub(kind: str, rules: bool) -> bytes:
    chosen = '["--rules", os.path.join(here, "rules.json"), KIND]' if rules else "[KIND]"
    return (
        "import os, runpy, sys\n"
        f"KIND = {kind!r}\n"
        "here = os.path.dirname(os.path.realpath(__file__))\n"
        f"sys.argv[1:1] = {chosen}\n"
        'runpy.run_path(os.path.join(here, "check.py"), run_name="__main__")\n'
    ).encode()


def read_choice(answer: str) -> frozenset[str] | None:
    """The letters that upstream reads: all ASCII letters in the first box; None without any."""
    box = BOX.search(answer)
    letters = re.findall("[A-Za-z]", box.group(1)) if box else []
    return frozenset(letter.upper() for letter in letters) or None


def read_choice_with_care(answer: str, options: Mapping[str, str]) -> frozenset[str] | None:
    """What a careful reader takes for the answer: the last box that names options, LaTeX commands apart."""
    for found in reversed(list(re.finditer(r"\\(?:bbox|boxed)\s*\{((?:[^{}]|\{[^{}]*\})*)\}", answer))):
        inside = re.sub(r"\\[A-Za-z]+", " ", found.group(1))
        words = re.findall("[A-Za-z]+", inside)
        if words and all(set(word.upper()) <= set(options) for word in words):
            return frozenset(letter for word in words for letter in word.upper())
    return None


def score_choice(selected: frozenset[str] | None, choice: Choice) -> dict[str, float]:
    """Upstream's figures: `score, iou, precision, recall, f1, exact_match`; without an answer all are 0."""
    if selected is None:
        return dict.fromkeys(("score", "iou", "precision", "recall", "f1", "exact_match"), 0.0)
    right, wrong = len(selected & choice.answer), len(selected - choice.answer)
    missed = len(choice.answer) - right
    precision, recall = right / len(selected), right / len(choice.answer)
    return {
        "score": 1 - (wrong + missed) / len(choice.options),
        "iou": right / len(selected | choice.answer),
        "precision": precision,
        "recall": recall,
        "f1": 2 * precision * recall / (precision + recall) if right else 0.0,
        "exact_match": float(selected == choice.answer),
    }


def choice_feedback(selected: frozenset[str] | None, choice: Choice, feedback: Feedback) -> str:
    """`correct`, or a line for each missed and each wrong option, and the reminder."""
    if selected is None:
        return f"{NO_BOX} {REMINDER}"
    if selected == choice.answer:
        return feedback.correct
    lines = [
        f"You missed option {o}: {feedback.options.get(o, '')}" for o in sorted(choice.answer - selected)
    ]
    lines += [
        f"You incorrectly selected option {o}: {feedback.options.get(o, '')}"
        for o in sorted(selected - choice.answer)
    ]
    return "\n".join([*lines, REMINDER])


def file_feedback(passed: bool, feedback: Feedback) -> str:
    """`correct`, or `incorrect` and the reminder; nothing where the data has nothing to say."""
    if passed:
        return feedback.correct
    return f"{feedback.incorrect}\n{REMINDER}" if feedback.incorrect else ""


class RoundGrader(Grader):
    """Judges the rounds of a life by turn key, `day/round`.

    Args:
        rounds: the rounds that may be asked about.
        scripts: the folder of checkers, from `script_files`.
    """

    def __init__(self, rounds: Mapping[str, Round], scripts: Mapping[str, bytes], name: str) -> None:
        self.name = name
        self._rounds = dict(rounds)
        self._scripts = dict(scripts)

    @property
    def files(self) -> Mapping[str, bytes]:
        return self._scripts

    def needs_sandbox_for(self, subject: Subject) -> bool:
        return any(self._rounds[key].check is not None for key in subject.keys)

    async def evaluate(self, ctx: GradeContext) -> Judgment:
        (key,) = ctx.subject.keys
        asked = self._rounds[key]
        if asked.choice is not None:
            answer = ctx.turns[0].text if ctx.turns else ""
            return self._judge_choice(ctx.subject, asked.choice, asked.feedback, answer)
        assert asked.check is not None
        return await self._judge_files(ctx, asked.check, asked.feedback)

    def _judge_choice(self, subject: Subject, choice: Choice, feedback: Feedback, answer: str) -> Judgment:
        selected = read_choice(answer)
        careful = read_choice_with_care(answer, choice.options)
        figures = score_choice(selected, choice)
        return Judgment(
            subject=subject,
            score=figures.pop("score"),
            passed=selected == choice.answer,
            feedback=choice_feedback(selected, choice, feedback),
            evidence={
                "type": "multi_choice",
                "selected": sorted(selected) if selected else None,
                "answer": sorted(choice.answer),
                "careful": sorted(careful) if careful else None,
            },
            figures={**figures, "careful_exact": float(careful == choice.answer)},
            grader=self.name,
        )

    async def _judge_files(self, ctx: GradeContext, check: FileCheck, feedback: Feedback) -> Judgment:
        prepare = PREPARE.format(
            names=" ".join(self._scripts), sources=" ".join(f"{ctx.grader_dir}/{p}" for p in self._scripts)
        )
        done = await ctx.run(
            ["/bin/sh", "-c", prepare + check.command], timeout_s=check.timeout, env=CHECK_ENV
        )
        passed = done.rc == check.expect_exit and _as_expected(done, check)
        evidence: JsonDict = {
            "type": "file_check",
            "command": check.command,
            "exit": done.rc,
            "timed_out": done.timed_out,
            "stdout": done.stdout.decode("utf-8", "replace")[-EVIDENCE_CHARS:],
            "stderr": done.stderr.decode("utf-8", "replace")[-EVIDENCE_CHARS:],
        }
        return Judgment(
            subject=ctx.subject,
            score=float(passed),
            passed=passed,
            feedback=file_feedback(passed, feedback),
            evidence=evidence,
            figures={"passed": float(passed)},
            grader=self.name,
        )


def _as_expected(done: CommandResult, check: FileCheck) -> bool:
    """Whether the output is text, and as expected. Upstream reads both streams as text and fails the round
    where they are none; line ends of any kind count as newlines."""
    try:
        stdout, _ = (stream.decode("utf-8") for stream in (done.stdout, done.stderr))
    except UnicodeDecodeError:
        return False
    if check.expect_stdout is None:
        return True
    stdout = stdout.replace("\r\n", "\n").replace("\r", "\n")
    if check.expect_stdout_regex:
        return re.search(check.expect_stdout, stdout) is not None
    return check.expect_stdout in stdout
