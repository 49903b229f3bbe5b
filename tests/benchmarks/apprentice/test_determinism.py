"""Protects that the apprentice is a pure function of the request: no clock, no state, no hash order."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from sclate_adapters.models import ModelReply, ModelRequest
from sclate_benchmarks.apprentice import Apprentice

from .sim import ROOT, Life, ask, load_days

AGAIN = """
import asyncio, hashlib, pathlib, sys
from sclate_adapters.models import ModelRequest
from sclate_benchmarks.apprentice import Apprentice
digest = hashlib.sha256()
for line in pathlib.Path(sys.argv[1]).read_text().splitlines():
    reply = asyncio.run(Apprentice().respond(ModelRequest.model_validate_json(line)))
    digest.update(reply.model_dump_json().encode())
print(digest.hexdigest())
"""


class Recorder(Apprentice):
    """Keeps what it was asked and what it answered."""

    def __init__(self) -> None:
        self.requests: list[ModelRequest] = []
        self.replies: list[ModelReply] = []

    async def respond(self, request: ModelRequest) -> ModelReply:
        reply = await super().respond(request)
        self.requests.append(request)
        self.replies.append(reply)
        return reply


@pytest.mark.data
def test_same_requests_same_replies(tmp_path: Path) -> None:
    recorder = Recorder()
    life = Life(tmp_path / "life", memory=True, model=recorder)
    days = load_days()
    for i in (5, 10, 15, 21):
        life.live(days[i])
    assert [ask(Apprentice(), r) for r in reversed(recorder.requests)] == recorder.replies[::-1]

    asked = tmp_path / "requests.jsonl"
    asked.write_text("".join(r.model_dump_json() + "\n" for r in recorder.requests))
    digest = hashlib.sha256()
    for reply in recorder.replies:
        digest.update(reply.model_dump_json().encode())
    for seed in ("1", "2"):
        env = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": f"{ROOT}/benchmarks:{ROOT}/adapters"}
        done = subprocess.run(
            [sys.executable, "-c", AGAIN, str(asked)],
            env=env,
            capture_output=True,
            text=True,
            check=True,
            timeout=120,
        )
        assert done.stdout.strip() == digest.hexdigest()


@pytest.mark.data
def test_an_answer_takes_milliseconds(tmp_path: Path) -> None:
    recorder = Recorder()
    life = Life(tmp_path / "life", memory=True, model=recorder)
    for day in load_days()[:3]:
        life.live(day)
    code = (
        "import asyncio, pathlib, sys, time\n"
        "from sclate_adapters.models import ModelRequest\n"
        "from sclate_benchmarks.apprentice import Apprentice\n"
        "asked = [ModelRequest.model_validate_json(x) for x in pathlib.Path(sys.argv[1]).read_text().splitlines()]\n"
        "async def all_of_them():\n"
        "    start = time.process_time_ns()\n"
        "    for request in asked: await Apprentice().respond(request)\n"
        "    return (time.process_time_ns() - start) / len(asked) / 1e6\n"
        "print(asyncio.run(all_of_them()))\n"
    )
    asked = tmp_path / "requests.jsonl"
    asked.write_text("".join(json.dumps(r.model_dump(mode="json")) + "\n" for r in recorder.requests))
    env = {**os.environ, "PYTHONPATH": f"{ROOT}/benchmarks:{ROOT}/adapters"}
    done = subprocess.run(
        [sys.executable, "-c", code, str(asked)],
        env=env,
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    assert float(done.stdout) < 25, f"{done.stdout.strip()} ms of CPU an answer"
