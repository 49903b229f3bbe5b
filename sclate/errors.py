"""The engine's errors.

Three kinds: what the user can mend (`PrerequisiteError`, from the contract), what a life records as data
(`LifeFailure`, with its class by boundary), and bugs (`InvariantError` and its kin), which end the run with
a traceback in the log.
"""

from __future__ import annotations

from enum import IntEnum

from sclate_adapters.errors import FailureClass, PrerequisiteError, SclateError

__all__ = [
    "ExitCode",
    "FailureClass",
    "InvariantError",
    "LeaseError",
    "LifeFailure",
    "NondeterminismError",
    "PrerequisiteError",
    "SclateError",
    "StalledError",
]


class ExitCode(IntEnum):
    """What `sclate` exits with."""

    OK = 0
    FAILED = 1
    """The run ended, and at least one life broke off before its end, whosever fault that is."""
    USAGE = 2
    """The command line or the configuration is wrong."""
    PREREQUISITE = 3
    """Something is missing that the user can mend: data, Docker, permissions."""
    INTERRUPTED = 130
    BUG = 70


class InvariantError(SclateError):
    """An always-on invariant does not hold: a bug."""


class LeaseError(InvariantError):
    """A lease was released twice, or resumed without being suspended."""


class NondeterminismError(SclateError):
    """A source decided otherwise than the record says."""


class StalledError(InvariantError):
    """Nothing is due, nobody works, and yet sources wait: nothing can ever happen."""


class LifeFailure(SclateError):
    """A failure that ends a session or a life and is recorded with its class."""

    def __init__(self, failure: FailureClass, message: str) -> None:
        super().__init__(f"{failure}: {message}")
        self.failure, self.message = failure, message
