"""Protects plug-ins: found by name or import path, refused by reason, and one that is broken breaks no other."""

from __future__ import annotations

from pathlib import Path

import pytest

from sclate import registry
from sclate.errors import PrerequisiteError
from sclate_adapters.memory import MemorySystem

MODULE = """
from sclate_adapters.memory import MemorySystem

class Good(MemorySystem):
    '''A memory.

    With more to say.'''
    name, mode = "good", "none"
    def describe(self): return {}

class Older(Good):
    contract_version = "1.0"

class Newer(Good):
    contract_version = "1.999"

class Next(Good):
    contract_version = "2.0"

an_object = Good()
"""
ENTRY_POINTS = """
[sclate.memories]
zgood = engine_probe:Good
next = engine_probe:Next
object = engine_probe:an_object
missing = engine_probe:Missing
leaving = engine_probe_leaving:Good
syntax = engine_probe_syntax:Good
"""


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A distribution on the import path, as an installer leaves it."""
    info = tmp_path / "engine_probe-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: engine-probe\nVersion: 1\n")
    (info / "entry_points.txt").write_text(ENTRY_POINTS)
    (tmp_path / "engine_probe.py").write_text(MODULE)
    (tmp_path / "engine_probe_leaving.py").write_text("raise SystemExit(7)\n")
    (tmp_path / "engine_probe_syntax.py").write_text("def\n")
    monkeypatch.syspath_prepend(tmp_path)


@pytest.mark.usefixtures("installed")
def test_a_broken_plugin_is_listed_with_its_reason_and_breaks_no_other() -> None:
    listed = {plugin.name: plugin for plugin in registry.available("memories")}
    assert listed["zgood"].problem is None
    assert listed["zgood"].summary == "A memory."
    assert listed["native"].problem is None
    reasons = {
        "next": "TypeError: written for contract 2.0, this is 1.",
        "object": "is no MemorySystem",
        "missing": "AttributeError",
        "leaving": "SystemExit: 7",
        "syntax": "SyntaxError",
    }
    for name, reason in reasons.items():
        problem = listed[name].problem
        assert problem is not None
        assert reason in problem
        with pytest.raises(PrerequisiteError, match="is broken") as caught:
            registry.load("memories", name)
        assert reason in caught.value.why
        assert "it must be a MemorySystem for contract 1." in caught.value.fix
    with pytest.raises(PrerequisiteError) as caught:
        registry.load("agents", "json:loads")
    assert "it must be an AgentAdapter for" in caught.value.fix


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize("name", ["Good", "Older", "Newer"])
def test_an_import_path_stands_for_a_name(name: str) -> None:
    kind = registry.load("memories", f"engine_probe:{name}")
    assert issubclass(kind, MemorySystem)
    assert kind.__name__ == name


@pytest.mark.parametrize("path", ["nosuch.module:Thing", "json:nosuch", "json:", ":x", "json:loads"])
def test_an_import_path_that_leads_nowhere(path: str) -> None:
    with pytest.raises(PrerequisiteError, match="is broken"):
        registry.load("memories", path)


def test_an_unknown_name_is_told_what_it_may_have_been() -> None:
    with pytest.raises(PrerequisiteError) as caught:
        registry.load("memories", "nativ")
    assert caught.value.what == "unknown name 'nativ' in memories"
    assert "native, none" in caught.value.why
    assert caught.value.fix == "did you mean 'native'?"
    with pytest.raises(PrerequisiteError) as caught:
        registry.load("memories", "qqqq")
    assert caught.value.fix == "sclate list memories"


def test_everything_that_the_project_registers_loads() -> None:
    for group in registry.BASES:
        plugins = registry.available(group)
        assert plugins
        assert [p.name for p in plugins if p.target.startswith("sclate") and p.problem] == []
        assert all(p.summary for p in plugins if p.target.startswith("sclate")), (
            "a plug-in without a docstring"
        )
