"""Protects the run's log: one JSON object a line, no secret in it, whatever is logged."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import structlog

from sclate import logs

log = structlog.get_logger()
SECRET = 'quo"ted\\secret'
LOOKS_LIKE_A_KEY = "sk-" + "a1" * 10


def test_lines_are_json_without_secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_API_KEY", SECRET)
    monkeypatch.setenv("A_PASSWORD", "12345678")
    path = tmp_path / "run.log"
    with logs.open_log(path):
        log.info("call", header={"x-api-key": SECRET}, note=["12345678"], at_ns=1234567890, path=path)
        log.info(f"said {LOOKS_LIKE_A_KEY}", odd="\ud800")
        try:
            raise ValueError(f"bad {SECRET}")
        except ValueError:
            log.exception("failed")
    logs.silence()
    log.error("after the run")
    text = path.read_text()
    lines = [json.loads(line) for line in text.splitlines()]
    assert [x["level"] for x in lines] == ["info", "info", "error"]
    assert lines[0]["header"] == {"x-api-key": logs.REDACTED}
    assert lines[0]["note"] == [logs.REDACTED]
    assert lines[0]["at_ns"] == 1234567890
    assert lines[0]["path"] == str(path)
    assert lines[0]["timestamp"].endswith("Z")
    assert lines[1]["event"] == f"said {logs.REDACTED}"
    assert "ValueError: bad (redacted)" in lines[2]["exception"]
    for secret in ("ted\\", LOOKS_LIKE_A_KEY):
        assert secret not in text


def test_the_level_decides_what_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "run.log"
    with logs.open_log(path, "warning"):
        log.info("too little")
        log.warning("enough")
    logs.silence()
    assert [json.loads(line)["event"] for line in path.read_text().splitlines()] == ["enough"]
