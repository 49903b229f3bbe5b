"""Protects the registry's laws beyond the command line's messages: what counts as a plug-in of this contract."""

from __future__ import annotations

from importlib.metadata import entry_points

import pytest

from sclate import registry
from sclate.errors import PrerequisiteError
from sclate_adapters.models import ModelBackend, ModelReply, ModelRequest


class OlderMinor(ModelBackend):
    """Of this major version.

    More words.
    """

    contract_version = "1.0"

    async def respond(self, request: ModelRequest) -> ModelReply:
        raise NotImplementedError


class OtherMajor(OlderMinor):
    contract_version = "2.0"


@pytest.mark.parametrize("group", registry.BASES)
def test_every_plugin_of_this_distribution_is_listed_and_loads(group: registry.Group) -> None:
    registered = {p.name: p.value for p in entry_points(group=f"sclate.{group}")}
    assert registered
    listed = registry.available(group)
    assert [p.name for p in listed] == sorted(registered)
    for plugin in listed:
        assert plugin.problem is None, plugin
        assert plugin.summary, f"{plugin.name} has no docstring"
        assert issubclass(registry.load(group, plugin.name), registry.BASES[group])


def test_an_import_path_stands_for_a_name() -> None:
    assert registry.load("models", f"{__name__}:OlderMinor") is OlderMinor


def test_another_major_version_is_refused() -> None:
    with pytest.raises(PrerequisiteError, match=r"written for contract 2\.0, this is 1\."):
        registry.load("models", f"{__name__}:OtherMajor")


@pytest.mark.parametrize("path", ["json:nothing", "json:", ":loads", "nowhere.at.all:X"])
def test_an_import_path_that_leads_nowhere(path: str) -> None:
    with pytest.raises(PrerequisiteError, match="is broken"):
        registry.load("agents", path)


def test_a_plugin_of_another_group_is_refused() -> None:
    with pytest.raises(PrerequisiteError, match="is no AgentAdapter"):
        registry.load("agents", f"{__name__}:OlderMinor")
