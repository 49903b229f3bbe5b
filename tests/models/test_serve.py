"""A keyless model on a port, asked as any client would."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib import error, request

import pytest

from sclate.capture.dialect_messages import hear_json, hear_stream
from sclate.models.scripted import ScriptedModel
from sclate.models.serve import serve


def post(url: str, **fields: Any) -> tuple[int, bytes]:
    body = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]} | fields
    asked = request.Request(
        f"{url}/v1/messages", json.dumps(body).encode(), {"content-type": "application/json"}
    )
    try:
        with request.urlopen(asked, timeout=20) as response:
            return response.status, response.read()
    except error.HTTPError as refused:
        with refused:
            return refused.code, refused.read()


def test_served_streamed_and_not() -> None:
    async def main() -> None:
        async with serve(ScriptedModel([{"text": "8€"}, {"text": "9€"}])) as url:
            _, plain = await asyncio.to_thread(post, url)
            _, streamed = await asyncio.to_thread(post, url, stream=True)
        assert hear_json(json.loads(plain)).text == "8€"
        assert hear_stream(streamed).text == "9€"

    asyncio.run(main())


@pytest.mark.parametrize("status", [429, 500])
def test_faults_are_shown_and_not_tried_again(status: int) -> None:
    async def main() -> None:
        async with serve(ScriptedModel([{"status": status}, {"text": "there"}])) as url:
            assert (await asyncio.to_thread(post, url))[0] == status
            assert (await asyncio.to_thread(post, url))[0] == 200

    asyncio.run(main())


def test_the_command_serves_a_script(tmp_path: Path) -> None:
    (tmp_path / "s.json").write_text(json.dumps([{"text": "8€"}]))
    argv = [sys.executable, "-m", "sclate.cli.main", "model", "serve", "scripted", "--option"]
    server = subprocess.Popen(
        [*argv, f"script={tmp_path}/s.json"],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "COLUMNS": "200", "PYTHONUNBUFFERED": "1"},
    )
    try:
        assert server.stdout is not None
        found = re.search(r"http://\S+", server.stdout.readline())
        assert found
        assert hear_json(json.loads(post(found.group())[1])).text == "8€"
    finally:
        server.kill()
        server.communicate()
