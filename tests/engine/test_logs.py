"""Protects the log: one JSON object a line, its level, and no secret in it, wherever it hides."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog

from sclate import logs

SECRET = 'hunter2"hunter2\\'


@pytest.fixture(autouse=True)
def restored(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("PROBE_API_KEY", SECRET)
    yield
    structlog.reset_defaults()


def written(path: Path, level: logs.Level, *entries: tuple[str, dict[str, Any]]) -> list[dict[str, Any]]:
    with logs.open_log(path, level):
        log = structlog.get_logger()
        for method, fields in entries:
            getattr(log, method)("said", **fields)
    logs.silence()
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_line_is_a_json_object_with_time_and_level(tmp_path: Path) -> None:
    (line,) = written(tmp_path / "l", "info", ("info", {"n": 3, "x": {1: (2.5, None, True)}}))
    assert (line["event"], line["level"], line["n"]) == ("said", "info", 3)
    assert line["x"] == {"1": [2.5, None, True]}
    assert line["timestamp"].endswith("Z")


@pytest.mark.parametrize(("level", "kept"), [("debug", 4), ("info", 3), ("warning", 2), ("error", 1)])
def test_a_level_keeps_what_is_as_grave(level: logs.Level, kept: int, tmp_path: Path) -> None:
    methods = ("debug", "info", "warning", "error")
    lines = written(tmp_path / "l", level, *((method, {}) for method in methods))
    assert [line["level"] for line in lines] == list(methods[4 - kept :])


def test_secrets_are_redacted_in_every_kind_of_value(tmp_path: Path) -> None:
    fields = {
        "text": f"a {SECRET} b",
        "nested": {SECRET: [f"x{SECRET}"]},
        "path": Path("/tmp") / "sk-abcdefghijklmnop1234",
        "error": ValueError(f"no {SECRET}"),
        "token": "key_abcdefghijklmnop",
    }
    written(tmp_path / "l", "info", ("info", fields))
    text = (tmp_path / "l").read_text()
    assert "hunter2" not in text
    assert "abcdefghijklmnop" not in text
    assert text.count("(redacted)") == 6


def test_secrets_are_redacted_in_tracebacks(tmp_path: Path) -> None:
    with logs.open_log(tmp_path / "l"):
        try:
            raise RuntimeError(f"refused {SECRET} and sk-abcdefghijklmnop1234")
        except RuntimeError:
            structlog.get_logger().exception("broke")
    logs.silence()
    line = json.loads((tmp_path / "l").read_text())
    assert "Traceback" in line["exception"]
    assert "refused (redacted) and (redacted)" in line["exception"]


def test_what_is_no_secret_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHORT_KEY", "abc")  # too short to be one: it would redact ordinary words
    monkeypatch.setenv("PROBE_NAME", "an-ordinary-value")
    assert logs.redact("abc an-ordinary-value skill-of-mine monkey_business") == (
        "abc an-ordinary-value skill-of-mine monkey_business"
    )


def test_halves_of_characters_do_not_stop_the_log(tmp_path: Path) -> None:
    (line,) = written(tmp_path / "l", "info", ("info", {"text": "a\udce9b"}))
    assert line["text"] == "a\\udce9b"


def test_a_log_is_continued(tmp_path: Path) -> None:
    written(tmp_path / "l", "info", ("info", {}))
    assert len(written(tmp_path / "l", "info", ("info", {}))) == 2


def test_silence_is_silent(capfd: pytest.CaptureFixture[str]) -> None:
    logs.silence()
    structlog.get_logger().error("said")
    assert capfd.readouterr() == ("", "")
