"""Protects: a damaged copy of the published data is refused before anything starts, with the place and a fix."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from .kit import NO_DOCKER, sclate

pytestmark = pytest.mark.data
PREREQUISITE = 3
Damage = Callable[[Path], object]


def edit(file: str, change: Callable[[Any], object]) -> Damage:
    def damage(root: Path) -> None:
        data = json.loads((root / file).read_text())
        change(data)
        (root / file).write_text(json.dumps(data))

    return damage


def first_choice(data: Any) -> Any:
    rounds = (data[0] if isinstance(data, list) else data)["rounds"]
    return next(r["eval"] for r in rounds if r["type"] == "multi_choice")


def first_check(data: Any) -> Any:
    rounds = (data[0] if isinstance(data, list) else data)["rounds"]
    return next(r["eval"] for r in rounds if r["type"] == "file_check")


def truncate(root: Path) -> None:
    path = root / "all_tests.json"
    path.write_bytes(path.read_bytes()[:-40])


CASES: dict[str, tuple[Damage, list[str]]] = {
    "the folder is missing": (shutil.rmtree, ["the data folder data does not exist", "give --data DIR"]),
    "the folder is a file": (
        lambda root: (shutil.rmtree(root), root.write_text("")),
        ["the data folder data is no folder"],
    ),
    "the folder is another": (
        lambda root: (shutil.rmtree(root), root.mkdir()),
        ["no all_tests.json in data", "give the folder that holds it"],
    ),
    "an addition that is no object": (
        edit("all_tests.json", lambda d: d.update(sclate=[1])),
        ["data/all_tests.json", "extra: ", "valid dict"],
    ),
    "an addition to a day that is no object": (
        edit("all_tests.json", lambda d: d["test"][1].update(sclate=3)),
        ["data/all_tests.json", "day02: extra: "],
    ),
    "tags that are no list": (
        edit("all_tests.json", lambda d: d["test"][0].update(preference_tags=5)),
        ["data/all_tests.json", "day01: tags: "],
    ),
    "half of a surrogate pair": (
        edit("all_tests.json", lambda d: d["test"][0].update(desc="\ud800")),
        ["data/all_tests.json", "half of a surrogate pair"],
    ),
    "JSON that is nested deeply": (
        lambda root: (root / "eval/day02/questions.json").write_text("[" * 100_000),
        ["data/eval/day02/questions.json", "nested too deeply"],
    ),
    "a conversation that is nested deeply": (
        lambda root: next(root.glob("openclaw_state/agents/*/sessions/day02_*")).write_text("[" * 100_000),
        ["sessions/day02_", "line 1: RecursionError"],
    ),
    "a conversation of other shape": (
        lambda root: next(root.glob("openclaw_state/agents/*/sessions/day02_*")).write_text(
            '{"type": "session", "timestamp": [1]}'
        ),
        ["sessions/day02_", "line 1: TypeError"],
    ),
    "questions that are a folder": (
        lambda root: (
            (root / "eval/day02/questions.json").unlink(),
            (root / "eval/day02/questions.json").mkdir(),
        ),
        ["data/eval/day02/questions.json", "it cannot be read"],
    ),
    "a check without an end": (
        edit("eval/day01/questions.json", lambda d: first_check(d).update(timeout=float("inf"))),
        ["data/eval/day01/questions.json", "timeout: ", "finite"],
    ),
    "all_tests.json is truncated": (truncate, ["data/all_tests.json", "truncated", "fetch the folder anew"]),
    "another layout": (
        lambda root: (root / "eval").rename(root / "evaluation"),
        ["no folder eval in data", "the layout is", "fetch the folder whole"],
    ),
    "the data lies one folder deeper": (
        lambda root: (
            root.rename(root.with_name("bench")),
            root.mkdir(),
            shutil.move(root.with_name("bench"), root),
        ),
        ["no all_tests.json in data", "give --data data/bench"],
    ),
    "two days of one id": (
        edit("all_tests.json", lambda d: d["test"].append(d["test"][0])),
        ["data/all_tests.json", "two days are called day01"],
    ),
    "a day without a workspace": (
        lambda root: shutil.rmtree(root / "workspaces/shared/day02"),
        ["day02 has no inputs", "workspaces/shared/day02"],
    ),
    "a day without questions": (
        lambda root: (root / "eval/day02/questions.json").unlink(),
        ["data/eval/day02/questions.json", "it is missing"],
    ),
    "an answer outside of the options": (
        edit("eval/day01/questions.json", lambda d: first_choice(d).update(answer=["Z"])),
        ["data/eval/day01/questions.json", ": the answer has ['Z'], which are no options"],
    ),
    "two rounds of one id": (
        edit(
            "eval/day01/questions.json",
            lambda d: (d[0] if isinstance(d, list) else d)["rounds"].append(
                (d[0] if isinstance(d, list) else d)["rounds"][0]
            ),
        ),
        ["data/eval/day01/questions.json", "two rounds are called"],
    ),
}


@pytest.fixture
def copy(metaclaw_data: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(metaclaw_data.with_name("metaclaw-bench-small"), tmp_path / "data"))


@pytest.mark.parametrize("case", CASES)
def test_damaged_data_is_named(case: str, copy: Path, tmp_path: Path) -> None:
    damage, words = CASES[case]
    damage(copy)
    done = sclate(
        "run", "--benchmark", "metaclaw", "--data", "data", "--out", "r", cwd=tmp_path, env=NO_DOCKER
    )
    assert done.returncode == PREREQUISITE, done.stderr
    for word in ["error: ", "why: ", "fix: ", *words]:
        assert word in done.stderr
    assert ": : " not in done.stderr
    assert "Value error" not in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
    assert not (tmp_path / "r").exists()


def test_an_undamaged_copy_is_fine_without_docker(copy: Path, tmp_path: Path) -> None:
    args = ["run", "--benchmark", "metaclaw", "--data", copy, "--limit", "2", "--dry-run"]
    done = sclate(*args, cwd=tmp_path, env=NO_DOCKER)
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[0].startswith("scenario ")
    starts = [line.split()[:3] for line in lines[1:] if " session.start " in line]
    assert starts == [["Mon", "2026-03-16", "09:00:00"], ["Wed", "2026-03-18", "09:00:00"]]


def test_options_and_splits_that_the_benchmark_does_not_have(copy: Path, tmp_path: Path) -> None:
    for args in (["--set", "benchmark.options.colour=red"], ["--split", "nosuch"]):
        done = sclate("run", "--benchmark", "metaclaw", "--data", copy, *args, cwd=tmp_path, env=NO_DOCKER)
        assert done.returncode == PREREQUISITE, done.stderr
        assert args[-1].rpartition(".")[2].partition("=")[0] in done.stderr
        assert "fix: " in done.stderr


def test_a_benchmark_that_needs_data_says_so(tmp_path: Path) -> None:
    done = sclate("run", "--benchmark", "metaclaw", cwd=tmp_path, env=NO_DOCKER)
    assert done.returncode == PREREQUISITE
    assert "--data" in done.stderr
