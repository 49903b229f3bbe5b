"""Protects the page of a run: complete from the folder alone, also when the run broke off, and never obeying
what agents wrote."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable
from datetime import UTC, datetime
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from sclate.report import read_run, write_report
from tests.cli.kit import sclate
from tests.cli.lives import start

from .conftest import ATTACK, CONFIG

pytestmark = [pytest.mark.docker, pytest.mark.timeout(300)]


class Elements(HTMLParser):
    """Every element with its attributes; text by the class of the element that holds it."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def of(self, tag: str, css: str = "") -> list[dict[str, str | None]]:
        return [a for t, a in self.found if t == tag and css in ["", *(a.get("class") or "").split()]]


def only_life(run: Path) -> Path:
    (life,) = (run / "lives").iterdir()
    return life


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_bytes().splitlines()]


def write_lines(path: Path, lines: Iterable[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def text_of(page: str) -> str:
    """The page's text, as a reader sees it."""
    parts: list[str] = []
    parser = HTMLParser()
    parser.handle_data = parts.append  # type: ignore[method-assign, assignment]
    parser.feed(page)
    return flat(" ".join(parts))


def flat(text: str) -> str:
    return re.sub(r"\s+", " ", text)


def test_a_run_writes_its_page_and_says_where(real_run: Path) -> None:
    page = (real_run / "report.html").read_text()
    text = text_of(page)
    result = json.loads((real_run / "result.json").read_text())["lives"][0]
    assert "An apprentice without a model: no benchmark result." in text
    for part in ("workmonth", "reference+native", "sandbox docker", "seed 0", "latency fixed=1"):
        assert part in text
    for name, value in result["figures"].items():
        assert name.partition("/")[2] or f"{value:g}"[:4] in text
        assert name.partition("/")[0] in text
    judged = [j for path in real_run.glob("lives/*/sessions/*/judgments.jsonl") for j in lines_of(path)]
    turns = [
        line["turn"]
        for path in real_run.glob("lives/*/sessions/*/transcript.jsonl")
        for line in lines_of(path)
        if line["type"] == "turn"
    ]
    rounds = Elements(page).of("details", "round")
    assert len(rounds) == len(turns) == result["turns"]
    assert sum(r["data-verdict"] != "not judged" for r in rounds) == len(judged) == result["judged"]
    assert sum(r["data-verdict"] == "pass" for r in rounds) == result["passed"]
    for judgment in judged:
        assert judgment["feedback"].splitlines()[0] in text
    for turn in turns:
        assert flat(turn["deliveries"][0]["text"]) in text
        assert flat(turn["text"]) in text
    assert "day01/" in text.partition("Files written, as its tool calls say")[2][:60]
    for charge in ("agent", "model", "hooks", "sessions", "engine"):
        assert f"{charge} " in text.partition("Where real time went")[2][:2000]
    state = json.loads(next(real_run.glob("lives/*/sessions/*/state.json")).read_text())
    assert f"h:{state['after']['harness'][7:13]}" in text
    assert "not reported" in text.partition("Tokens")[2]


def test_nothing_is_fetched(real_run: Path) -> None:
    page = (real_run / "report.html").read_text()
    elements = Elements(page)
    policy = next(a["content"] for a in elements.of("meta") if a.get("http-equiv"))
    assert policy is not None
    assert policy.startswith("default-src 'none'")
    for _, attributes in elements.found:
        for name in ("src", "href", "srcset", "data", "poster"):
            assert (attributes.get(name) or "#").startswith("#")
    assert "@import" not in page
    assert "url(" not in page


def test_hostile_text_stays_text(hostile_run: Path) -> None:
    page = (hostile_run / "report.html").read_text()
    elements = Elements(page)
    assert len(elements.of("script")) == 1, "only our own"
    assert elements.of("img") == []
    assert not [a for _, attributes in elements.found for a in attributes if a.startswith("on")]
    assert "\x1b" not in page
    assert "\u202e" not in page
    text = text_of(page)
    assert f"tool was used {ATTACK}" in text
    assert r"\x1b[2J" in text
    assert r"\u202e" in text
    assert len(elements.of("details", "round")) == 2


def test_a_run_that_broke_off_has_a_page_that_says_so(copy_of_run: Path) -> None:
    life = only_life(copy_of_run)
    for name in ("result.json", "report.html", f"lives/{life.name}/result.json"):
        (copy_of_run / name).unlink()
    last = sorted((life / "sessions").iterdir())[-1]
    (last / "state.json").unlink()
    trace = (life / "trace.jsonl").read_bytes().splitlines(keepends=True)
    closing = max(i for i, line in enumerate(trace) if b'"change":"closed"' in line)
    (life / "trace.jsonl").write_bytes(b"".join(trace[:closing]) + trace[closing][:70])
    with (last / "calls.jsonl").open("ab") as out:
        out.write(b'{"seq":99,"sess\n')

    done = sclate("report", copy_of_run, cwd=copy_of_run)
    assert done.returncode == 0, done.stderr
    assert "this run broke off: it was killed or interrupted" in done.stdout
    page = (copy_of_run / "report.html").read_text()
    text = text_of(page)
    assert "This run broke off: it has no result.json." in text
    assert "trace.jsonl is torn: 70 bytes left out." in text
    assert re.search(r"1 lines of \S+/calls.jsonl cannot be read", text)
    assert "did not end" in text
    assert "not saved" in text
    assert "No figures" in text
    assert len(Elements(page).of("details", "round")) == 11
    assert len(Elements(page).of("svg", "elapsed")) == 1, "what was recorded is drawn"


def test_a_run_that_is_killed_in_its_first_session_has_a_page(tmp_path: Path) -> None:
    run = start(tmp_path, config=CONFIG)
    assert run.stdout is not None
    while " d1 " not in run.stdout.readline():
        assert run.poll() is None
    run.kill()
    run.communicate()
    done = sclate("report", "r", cwd=tmp_path)
    assert sclate("clean", cwd=tmp_path).returncode == 0  # what the killed run left
    assert done.returncode == 0, done.stderr
    assert "This run broke off" in text_of((tmp_path / "r" / "report.html").read_text())


def test_deliveries_in_mid_turn_and_those_nobody_answered(copy_of_run: Path) -> None:
    first = sorted(only_life(copy_of_run).glob("sessions/*/transcript.jsonl"))[0]
    lines = lines_of(first)
    turn = next(line["turn"] for line in lines if line["type"] == "turn")
    notice = {
        "id": "remark",
        "kind": "notice",
        "session": turn["session"],
        "text": "By the way.",
        "turn": None,
    }
    turn["deliveries"].append(notice)
    lost = notice | {"id": "lost", "text": "Is anybody there?"}
    lines += [{"type": "delivery", "state": "delivered", "delivery": notice}]
    lines += [{"type": "delivery", "state": "undelivered", "delivery": lost}]
    write_lines(first, lines)
    text = text_of(write_report(copy_of_run).read_text())
    assert re.search(r"Came in mid-turn: notice remark By the way\.", text)
    assert re.search(r"What began it: notice \(undelivered\) Is anybody there\?", text)
    assert re.search(r"undelivered delivery 1 lost", text), "it is among the failures"


def test_a_missing_judgment_is_missing_and_its_class_is_told(copy_of_run: Path) -> None:
    first = sorted(only_life(copy_of_run).glob("sessions/*/judgments.jsonl"))[0]
    lines = lines_of(first)
    lines[0] |= {"score": None, "passed": None, "failure": "grader", "feedback": ""}
    lines[1] |= {"score": 0.0, "passed": False}
    write_lines(first, lines)
    page = write_report(copy_of_run).read_text()
    verdicts = [a["data-verdict"] for a in Elements(page).of("details", "round")]
    assert verdicts[:3] == ["not judged", "missing", "fail"]
    text = text_of(page)
    assert "? missing , score missing, failure of class grader" in text
    assert re.search(r"grader judgment 1 day01/r1", text)


def test_the_hosts_date_in_a_prompt_is_shown_as_a_leak(copy_of_run: Path) -> None:
    """The day on which the run was made, in the last request of its second session; everything else agrees."""
    life = only_life(copy_of_run)
    today = datetime.fromtimestamp(lines_of(life / "trace.jsonl")[0]["real_ns"] / 1e9, UTC).date().isoformat()
    last = sorted(life.glob("sessions/*/calls.jsonl"))[-1]
    lines = lines_of(last)
    lines[-1]["request"]["system"] = f"Current date: {today}"
    write_lines(last, lines)
    text = text_of(write_report(copy_of_run).read_text())
    told = text.partition("What time it was inside")[2].partition("Sessions")[0]
    assert "1 of 2 sessions agree, in 1 the host's date was seen" in told
    assert re.search(rf"day02 Tue 2031-03-04 09:00:00 {today} .* ✗ host's date", told)


def test_without_saved_states_and_bodies_no_clock_is_made_up(copy_of_run: Path) -> None:
    life = only_life(copy_of_run)
    for tar in (life / "state").glob("*.tar"):
        tar.unlink()
    for path in life.glob("sessions/*/calls.jsonl"):
        write_lines(path, (line | {"request": None} for line in lines_of(path)))
    assert "What time it was inside" not in text_of(write_report(copy_of_run).read_text())


def test_tokens_that_are_reported_for_some_calls_only(copy_of_run: Path) -> None:
    first = sorted(only_life(copy_of_run).glob("sessions/*/calls.jsonl"))[0]
    lines = lines_of(first)
    lines[0]["usage"] = {"input_tokens": 1200, "output_tokens": 0}
    lines[1] |= {"call_class": "side", "usage": {"input_tokens": 7}}
    write_lines(first, lines)
    text = text_of(write_report(copy_of_run).read_text())
    calls = sum(
        len(p.read_text().splitlines()) for p in only_life(copy_of_run).glob("sessions/*/calls.jsonl")
    )
    assert f"agent main {calls - 1} 0 0 1,200 (1 of {calls - 1} calls) 0 (1 of {calls - 1} calls)" in text
    assert "agent side 1 0 0 7 not reported not reported not reported" in text


def test_a_month_of_long_texts_stays_small_and_says_what_was_cut(copy_of_run: Path) -> None:
    """31 sessions of 12 rounds, 60,000 characters said in each."""
    life = only_life(copy_of_run)
    source = sorted((life / "sessions").iterdir())[0]
    turn = next(line["turn"] for line in lines_of(source / "transcript.jsonl") if line["type"] == "turn")
    judgment = lines_of(source / "judgments.jsonl")[0]
    for n in range(3, 34):
        folder = life / "sessions" / f"{n:03d}-more{n}"
        folder.mkdir()
        said, judged = [], []
        for i in range(12):
            key = f"more{n}/r{i}"
            said.append(turn | {"key": key, "session": f"more{n}", "text": "<&>" * 20_000})
            judged.append(judgment | {"subject": {"kind": "turn", "keys": [key]}})
        write_lines(folder / "transcript.jsonl", ({"type": "turn", "turn": one} for one in said))
        write_lines(folder / "judgments.jsonl", judged)
    page = write_report(copy_of_run)
    assert os.stat(page).st_size < 10_000_000
    text = text_of(page.read_text())
    assert re.search(
        r"[\d,]+ of 60,000 characters are shown; the whole is in lives/\S+/sessions/\S+/transcript.jsonl",
        text,
    )
    assert len(Elements(page.read_text()).of("details", "round")) == 11 + 31 * 12


def test_a_page_that_cannot_be_made_leaves_the_run_as_it_was(tmp_path: Path) -> None:
    """A folder stands where the page should go."""
    run = start(tmp_path, config=CONFIG)
    while not (tmp_path / "r" / "lives").is_dir():
        assert run.poll() is None
    (tmp_path / "r" / "report.html").mkdir()
    _, said = run.communicate(timeout=120)
    assert run.returncode == 0
    assert "the page was not written: IsADirectoryError" in said
    assert "Traceback" not in said
    assert "IsADirectoryError" in (tmp_path / "r" / "run.log").read_text()
    done = sclate("report", "r", "--out", "elsewhere.html", cwd=tmp_path)
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "report: elsewhere.html")
    done = sclate("report", "r", cwd=tmp_path)
    assert done.returncode == 3
    assert "cannot be written" in done.stderr


def test_out_is_for_one_run(real_run: Path, tmp_path: Path) -> None:
    done = sclate("report", real_run, real_run, "--out", "x.html", cwd=tmp_path)
    assert done.returncode == 2
    assert "--out names one file" in done.stderr
    assert not list(tmp_path.iterdir())


def test_reading_keeps_no_bodies(real_run: Path) -> None:
    """A month's requests are a hundred times its page."""
    (life,) = read_run(real_run).lives
    calls = [call for files in life.sessions for call in files.calls]
    assert calls
    assert {(call.request, call.response) for call in calls} == {(None, None)}
