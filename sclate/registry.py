"""Plug-ins by entry point, or by `package.module:attribute` wherever a name is accepted."""

from __future__ import annotations

import difflib
import importlib
import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Literal

from sclate.errors import FailureClass, PrerequisiteError
from sclate.plugin_guard import Guard
from sclate_adapters.agent import AgentAdapter
from sclate_adapters.base import CONTRACT_VERSION
from sclate_adapters.benchmark import BenchmarkAdapter
from sclate_adapters.memory import MemorySystem
from sclate_adapters.models import ModelBackend

Group = Literal["benchmarks", "agents", "memories", "models"]
BASES: dict[Group, type] = {
    "benchmarks": BenchmarkAdapter,
    "agents": AgentAdapter,
    "memories": MemorySystem,
    "models": ModelBackend,
}
SINGULAR: dict[Group, str] = {
    "benchmarks": "benchmark",
    "agents": "agent",
    "memories": "memory",
    "models": "model",
}
BOUNDARY: dict[Group, FailureClass] = {
    "benchmarks": FailureClass.BENCHMARK,
    "agents": FailureClass.SUBSTRATE,  # an adapter is on our side of the boundary, the harness on the other
    "memories": FailureClass.MEMORY,
    "models": FailureClass.MODEL,
}
"""What a life that a plug-in's exception ends has failed as."""


@dataclass(frozen=True)
class Plugin:
    """One registered name; `problem` says why it cannot be used."""

    name: str
    target: str
    problem: str | None = None
    summary: str = ""


def _points(group: Group) -> list[EntryPoint]:
    return sorted(entry_points(group=f"sclate.{group}"), key=lambda p: p.name)


def _checked(group: Group, found: Any) -> Any:
    """Raises TypeError for what is no plug-in of this group or of this contract."""
    base = BASES[group]
    if not (isinstance(found, type) and issubclass(found, base)):
        raise TypeError(f"{found!r} is no {base.__name__}")
    written_for = str(getattr(found, "contract_version", CONTRACT_VERSION))
    if written_for.split(".")[0] != CONTRACT_VERSION.split(".")[0]:
        raise TypeError(f"written for contract {written_for}, this is {CONTRACT_VERSION}")
    if inspect.isabstract(found):
        raise TypeError(f"it leaves out {', '.join(sorted(vars(found)['__abstractmethods__']))}")
    if lacking := [name for name in base.__annotations__ if not hasattr(found, name)]:
        raise TypeError(f"it has no {', '.join(lacking)}")
    return found


def available(group: Group) -> list[Plugin]:
    """Every registered plug-in; a broken one is reported and breaks nothing else."""
    plugins = []
    for point in _points(group):
        try:
            found = _checked(group, point.load())
        except (Exception, SystemExit) as error:
            plugins.append(Plugin(point.name, point.value, f"{type(error).__name__}: {error}"))
        else:
            summary = (found.__doc__ or "").strip().splitlines()
            plugins.append(Plugin(point.name, point.value, None, summary[0] if summary else ""))
    return plugins


def load(group: Group, name: str) -> Any:
    """The class registered under a name, or at `package.module:attribute`.

    Raises:
        PrerequisiteError: unknown, broken, or no plug-in of this group.
    """
    singular = BASES[group].__name__
    article = "an" if singular[0] in "AEIOU" else "a"
    points = {p.name: p for p in _points(group)}
    if name not in points and ":" not in name:
        near = difflib.get_close_matches(name, points, n=1)
        raise PrerequisiteError(
            f"unknown name {name!r} in {group}",
            f"known are: {', '.join(points) or 'none'}",
            f"did you mean {near[0]!r}?" if near else f"sclate list {group}",
        )
    try:
        if name in points:
            found = points[name].load()
        else:
            module, _, attribute = name.partition(":")
            found = getattr(importlib.import_module(module), attribute)
        return _checked(group, found)
    except (Exception, SystemExit) as error:
        raise PrerequisiteError(
            f"plug-in {name!r} of {group} is broken",
            f"{type(error).__name__}: {error}",
            f"mend or uninstall it; it must be {article} {singular} for contract {CONTRACT_VERSION}",
        ) from error


def make(
    group: Group,
    name: str,
    *args: Any,
    options: Mapping[str, Any],
    guard: Guard | None = None,
    **more: Any,
) -> Any:
    """An adapter of that name, watched by the guard.

    Args:
        args: what its constructor takes before the options; `more`: and by name.

    Raises:
        PrerequisiteError: as `load`, or an option that it does not declare.
        PluginError: its constructor raises.
    """
    kind, who, guard = load(group, name), f"{SINGULAR[group]} {name!r}", guard or Guard()
    known = kind.option_names
    for option in options:
        if option not in known:
            near = difflib.get_close_matches(option, known, n=1)
            raise PrerequisiteError(
                f"{who} has no option {option!r}",
                f"it has {', '.join(known) or 'none'}; one that is not known would go unnoticed",
                f"did you mean {near[0]!r}?" if near else f"leave {option!r} out",
            )
    plugin = guard.make(who, BOUNDARY[group], lambda: kind(*args, options, **more))
    return guard.watch(plugin, BASES[group], who, BOUNDARY[group])


def make_model(name: str, options: Mapping[str, Any]) -> ModelBackend:
    """A keyless model; what its constructor takes are its options.

    Raises:
        PrerequisiteError: as `load`, or options that it does not take.
        PluginError: its constructor raises.
    """
    kind = load("models", name)
    try:
        inspect.signature(kind).bind(**options)
    except TypeError as error:
        raise PrerequisiteError(
            f"model {name!r} does not take these options", str(error), f"it takes {inspect.signature(kind)}"
        ) from None
    backend: ModelBackend = Guard().make(f"model {name!r}", BOUNDARY["models"], lambda: kind(**options))
    return backend
