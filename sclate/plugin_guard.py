"""What a plug-in raises is the plug-in's: named with its method, and never taken for a bug of the engine.

Methods of the contract are wrapped on the instance, so that the class stays what its author wrote. Before
anything runs a `PluginError` is the user's to mend; in a life it is a failure with the class of the boundary.
"""

from __future__ import annotations

import errno
import functools
import inspect
import traceback
from collections.abc import Callable, Generator
from typing import Any

import structlog

from sclate import logs
from sclate.errors import FailureClass, LifeFailure, PrerequisiteError, SclateError
from sclate_adapters.agent import AgentChannel
from sclate_adapters.benchmark import WorldProvider
from sclate_adapters.events import EventSource

log = structlog.get_logger()

HANDLED_ELSEWHERE = {"hook"}
"""A hook that raises is its event's end, and the life goes on."""
FROM_OUTSIDE = {"decode"}
"""Called by whoever reads the sandbox, who can do nothing about it: the life ends all the same."""
DISK_FULL = (errno.ENOSPC, errno.EDQUOT)


class PluginError(LifeFailure, PrerequisiteError):
    """A plug-in raised. `failure`: never the agent's own, for an adapter is not the agent."""

    def __init__(self, who: str, method: str, failure: FailureClass, error: BaseException) -> None:
        said = logs.redact(f"{type(error).__name__}: {error}")[:300]
        place = _place(error)
        PrerequisiteError.__init__(
            self,
            f"{who} is broken: its {method} raises",
            f"{said}{place}",
            "mend the plug-in, or use another",
        )
        self.failure, self.message = failure, f"{who} is broken: its {method} raises {said}{place}"


def _place(error: BaseException) -> str:
    """The innermost line, which tells where to look without a traceback."""
    frames = traceback.extract_tb(error.__traceback__)
    return f" ({frames[-1].filename}, line {frames[-1].lineno})" if frames else ""


class Guard:
    """Watches the plug-ins of a run. `on_error`: told of every `PluginError` before it is raised."""

    def __init__(self) -> None:
        self.on_error: Callable[[PluginError], None] = lambda error: None

    def make(self, who: str, failure: FailureClass, call: Callable[[], Any]) -> Any:
        """Call a constructor.

        Raises:
            PluginError: it raised.
        """
        try:
            return call()
        except (Exception, SystemExit) as error:
            raise self._error(who, "__init__", failure, error) from error

    def watch(self, plugin: Any, base: type, who: str, failure: FailureClass) -> Any:
        """Wrap the contract's methods of an instance; returns the instance."""
        for name, member in vars(base).items():
            if name.startswith("_") or name in HANDLED_ELSEWHERE or not inspect.isfunction(member):
                continue
            method = getattr(plugin, name)
            if not hasattr(plugin, "__dict__") or hasattr(method, "guarded"):
                continue
            wrapped = self._wrapped(method, who, name, failure)
            wrapped.guarded = True  # type: ignore[attr-defined]
            vars(plugin)[name] = wrapped
        return plugin

    def _wrapped(
        self, method: Callable[..., Any], who: str, name: str, failure: FailureClass
    ) -> Callable[..., Any]:
        if inspect.iscoroutinefunction(method):

            @functools.wraps(method)
            async def call_async(*args: Any, **kwargs: Any) -> Any:
                try:
                    return await method(*args, **kwargs)
                except (Exception, SystemExit) as error:
                    raise self._error(who, name, failure, error) from error

            return call_async

        @functools.wraps(method)
        def call(*args: Any, **kwargs: Any) -> Any:
            try:
                found = method(*args, **kwargs)
                if name in FROM_OUTSIDE:
                    return tuple(found)
            except (Exception, SystemExit) as error:
                if name in FROM_OUTSIDE:
                    self._plugin_error(who, name, failure, error)
                    return ()
                raise self._error(who, name, failure, error) from error
            if inspect.isgenerator(found):
                return self._steps(found, who, name, failure)
            return self._results(found, who, name, failure)

        return call

    def _steps(
        self, steps: Generator[Any, Any, Any], who: str, name: str, failure: FailureClass
    ) -> Generator[Any, Any, Any]:
        try:
            return (yield from steps)
        except (Exception, SystemExit) as error:
            raise self._error(who, name, failure, error) from error

    def _results(self, found: Any, who: str, name: str, failure: FailureClass) -> Any:
        """What a plug-in hands out is watched as well."""
        if name == "event_sources":
            return [
                self.watch(source, EventSource, f"event source {source.name!r} of {who}", failure)
                for source in found
            ]
        if name == "channel":
            return self.watch(found, AgentChannel, f"the channel of {who}", failure)
        if name == "world_provider" and found is not None:
            return self.watch(found, WorldProvider, f"the world of {who}", failure)
        return found

    def _error(self, who: str, name: str, failure: FailureClass, error: BaseException) -> BaseException:
        """What to raise: what is meant for the user, or not the plug-in's doing, passes as it is."""
        full = isinstance(error, OSError) and error.errno in DISK_FULL
        if isinstance(error, SclateError) or full:
            return error
        return self._plugin_error(who, name, failure, error)

    def _plugin_error(self, who: str, name: str, failure: FailureClass, error: BaseException) -> PluginError:
        method = name if name.startswith("_") else f"{name}()"
        raised = PluginError(who, method, failure, error)
        log.error("a plug-in raised", plugin=who, method=name, exc_info=error)
        self.on_error(raised)
        return raised
