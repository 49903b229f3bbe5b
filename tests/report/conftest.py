"""Two real runs for all tests of the report: one by the reference harness, one in which every text is hostile."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.cli import lives
from tests.cli.kit import sclate

ATTACK = "</pre></details><script>document.title='owned'</script><img src=x onerror=alert(1)>"
CONFIG = (
    lives.CONFIG.partition("options")[0]
    + f"""
[[models.mine.options.script]]
tool = "write"
input = {{ path = "{ATTACK}.txt", content = "{ATTACK}" }}
[[models.mine.options.script]]
text = "tool was used {ATTACK}"
[[models.mine.options.script]]
text = "second day {ATTACK}"
"""
)


@pytest.fixture(scope="session")
def real_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two days of our own benchmark."""
    folder = tmp_path_factory.mktemp("report")
    args = ["--benchmark", "workmonth", "--limit", "2", "--set", "clock.latency=fixed=1", "--out", "r"]
    done = sclate("run", *args, cwd=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / "r"


@pytest.fixture(scope="session")
def hostile_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two days; titles, prompts, answers, tool calls, feedback, evidence and names of figures attack the page."""
    with pytest.MonkeyPatch.context() as patch:
        attacked = lives.SOURCE.replace('HOSTILE = "q', f'HOSTILE = "{ATTACK}q')
        patch.setattr(lives, "SOURCE", attacked.replace('"hello?"', "HOSTILE"))
        lived = lives.live(tmp_path_factory.mktemp("hostile"), config=CONFIG)
    assert lived.code == 0, lived.stdout + lived.stderr
    return lived.folder


@pytest.fixture
def copy_of_run(real_run: Path, tmp_path: Path) -> Path:
    """The real run, to be damaged."""
    return Path(shutil.copytree(real_run, tmp_path / "copy"))
