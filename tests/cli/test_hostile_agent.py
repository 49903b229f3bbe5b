"""Protects the run from what an agent asks for: its schedules name no folder, stop no run, and repeat."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from .lives import CONFIG, live

pytestmark = [pytest.mark.docker, pytest.mark.timeout(300)]


def asking(**schedule: str) -> str:
    """A model that sets the same schedule every morning."""
    step = ", ".join(f"{key} = {json.dumps(value)}" for key, value in schedule.items())
    script = f'[{{ when = "hello", tool = "schedule", input = {{ {step} }} }}]'
    return CONFIG.partition("[models.mine]")[0] + (
        f'[models.mine]\nbackend = "scripted"\noptions = {{ script = {script} }}\n'
    )


@pytest.mark.parametrize("name", ["../../../../../escaped", "/tmp/escaped", "x" * 300, "\x1b]0;P3\x07"])
def test_the_name_of_a_schedule_leads_nowhere(name: str, tmp_path: Path) -> None:
    config = asking(cron="0 12 * * *", zone="Asia/Shanghai", prompt="wake up", id=name)
    lived = live(tmp_path, "--set", "benchmark.options.days=3", config=config)
    assert lived.code == 0, lived.stdout + lived.stderr
    assert lived.result["wake_sessions"] == 2, "set again it goes on"
    folders = sorted(path.name for path in (lived.life / "sessions").iterdir())
    assert [folder[:3] for folder in folders] == ["001", "002", "003", "004", "005"]
    assert all((lived.life / "sessions" / folder / "state.json").is_file() for folder in folders)
    found = {path.name for path in tmp_path.rglob("*escaped*")}
    assert found <= set(folders), "something was written elsewhere"
    assert not list(Path("/tmp").glob("escaped*"))
    assert "\x1b" not in lived.stdout


@pytest.mark.parametrize(
    ("cron", "zone"),
    [
        ("99 99 * * *", "UTC"),
        ("0 12 * * *", "Mars/Olympus"),
        ("0 12 * * *", "America"),
        ("0 0 30 2 *", "UTC"),
    ],
)
def test_a_schedule_that_can_never_run_stops_nothing(cron: str, zone: str, tmp_path: Path) -> None:
    lived = live(tmp_path, config=asking(cron=cron, zone=zone, prompt="wake up", id="a"))
    assert lived.code == 0, lived.stdout + lived.stderr
    assert lived.result["wake_sessions"] == 0
    assert lived.judgments() == [("d1/q", 1.0, True, None), ("d2/q", 1.0, True, None)]
    assert [x["cron"] for x in lived.lines("signal") if x["signal"] == "cron_set"] == [cron, cron]
