"""Protects the import rule: who may import whom, and no plug-in's name in the engine."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = {
    "sclate": ROOT / "sclate",
    "sclate_adapters": ROOT / "adapters/sclate_adapters",
    "sclate_benchmarks": ROOT / "benchmarks/sclate_benchmarks",
    "sclate_agents": ROOT / "agents/sclate_agents",
}
ALLOWED = {
    "sclate": {"sclate", "sclate_adapters"},
    "sclate_adapters": {"sclate_adapters"},
    "sclate_benchmarks": {"sclate_benchmarks", "sclate_adapters"},
    "sclate_agents": {"sclate_agents", "sclate_adapters"},
}
PLUGINS = ("metaclaw", "reference_cron", "ReferenceAgent", "sclate_benchmarks", "sclate_agents")


def imported(path: Path) -> set[str]:
    """Top-level packages that a module imports, anywhere in it."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module.split(".")[0])
    return names


@pytest.mark.parametrize("package", PACKAGES)
def test_packages_import_only_what_they_may(package: str) -> None:
    modules = sorted(PACKAGES[package].rglob("*.py"))
    assert modules
    for path in modules:
        foreign = imported(path) & set(PACKAGES) - ALLOWED[package]
        assert not foreign, f"{path.relative_to(ROOT)} imports {foreign}"


def test_the_engine_names_no_plugin() -> None:
    for path in sorted((ROOT / "sclate").rglob("*.py")):
        found = [name for name in PLUGINS if name in path.read_text()]
        assert not found, f"{path.relative_to(ROOT)} names {found}"


def test_files_stay_readable() -> None:
    for root in PACKAGES.values():
        for path in root.rglob("*.py"):
            assert len(path.read_text().splitlines()) <= 600, path
