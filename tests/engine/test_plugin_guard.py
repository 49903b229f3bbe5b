"""Protects: what a plug-in raises becomes a message that names it, whichever way its method works; what is meant
for the user or is not its doing passes as it is."""

from __future__ import annotations

import asyncio
import errno
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence

import pytest

from sclate.errors import FailureClass, LifeFailure, PrerequisiteError
from sclate.plugin_guard import Guard, PluginError
from sclate_adapters.errors import DataError


class Contract(ABC):
    @abstractmethod
    def plain(self) -> int: ...
    @abstractmethod
    def lazy(self) -> Iterator[int]: ...
    @abstractmethod
    async def slow(self) -> int: ...
    def decode(self) -> Sequence[int]:
        return ()


class Plugin(Contract):
    def __init__(self, error: BaseException | None) -> None:
        self.error = error

    def _maybe(self) -> None:
        if self.error is not None:
            raise self.error

    def plain(self) -> int:
        self._maybe()
        return 1

    def lazy(self) -> Iterator[int]:
        yield 1
        self._maybe()
        yield 2

    async def slow(self) -> int:
        await asyncio.sleep(0)
        self._maybe()
        return 3

    def decode(self) -> Sequence[int]:
        self._maybe()
        return [4]


def watched(error: BaseException | None, guard: Guard | None = None) -> Plugin:
    plugin = Plugin(error)
    assert (guard or Guard()).watch(plugin, Contract, "probe 'x'", FailureClass.MEMORY) is plugin
    return plugin


def test_a_good_plugin_is_as_it_was() -> None:
    plugin = watched(None)
    assert isinstance(plugin, Plugin)
    assert plugin.plain() == 1
    assert list(plugin.lazy()) == [1, 2]
    assert asyncio.run(plugin.slow()) == 3
    assert list(plugin.decode()) == [4]


@pytest.mark.parametrize("error", [ZeroDivisionError("division"), SystemExit(7)])
@pytest.mark.parametrize("method", ["plain", "lazy", "slow"])
def test_what_it_raises_is_named(method: str, error: BaseException) -> None:
    guard, told = Guard(), []
    guard.on_error = told.append
    plugin = watched(error, guard)
    calls = {
        "plain": plugin.plain,
        "lazy": lambda: list(plugin.lazy()),
        "slow": lambda: asyncio.run(plugin.slow()),
    }
    with pytest.raises(PluginError) as caught:
        calls[method]()
    assert told == [caught.value]
    assert isinstance(caught.value, LifeFailure)
    assert isinstance(caught.value, PrerequisiteError)
    assert caught.value.failure is FailureClass.MEMORY
    assert caught.value.what == f"probe 'x' is broken: its {method}() raises"
    assert f"{type(error).__name__}: {error} ({__file__}, line " in caught.value.message
    assert caught.value.__cause__ is error


@pytest.mark.parametrize(
    "error",
    [
        DataError("the data", "is torn", "mend it"),
        LifeFailure(FailureClass.SANDBOX, "gone"),
        OSError(errno.ENOSPC, "No space left on device"),
    ],
)
def test_what_is_meant_for_the_user_passes(error: Exception) -> None:
    with pytest.raises(type(error)) as caught:
        watched(error).plain()
    assert caught.value is error


def test_a_cancellation_passes() -> None:
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(watched(asyncio.CancelledError()).slow())


def test_where_nobody_can_catch_it_is_told_only() -> None:
    guard, told = Guard(), []
    guard.on_error = told.append
    assert list(watched(ValueError("x"), guard).decode()) == []
    assert [error.what for error in told] == ["probe 'x' is broken: its decode() raises"]


def test_watching_twice_tells_once() -> None:
    guard, told = Guard(), []
    guard.on_error = told.append
    plugin = watched(ValueError("x"), guard)
    guard.watch(plugin, Contract, "probe 'y'", FailureClass.MODEL)
    with pytest.raises(PluginError, match="probe 'x'"):
        plugin.plain()
    assert len(told) == 1
