"""Errors that cross the contract.

`SclateError` is the root. A `PrerequisiteError` is the user's to mend: it carries what is wrong, why it
matters and the command or edit that mends it, and is shown without a traceback. Everything else is a bug
or a failure recorded as data (`FailureClass`).
"""

from __future__ import annotations

from enum import StrEnum


class SclateError(Exception):
    """Root of every error that SCLATE raises on purpose."""


class PrerequisiteError(SclateError):
    """Something the user can mend.

    Args:
        what: what is wrong, one line.
        why: why it is needed, or where it was found.
        fix: the command or the edit that mends it.
    """

    def __init__(self, what: str, why: str, fix: str) -> None:
        super().__init__(f"{what}\n  why: {why}\n  fix: {fix}")
        self.what, self.why, self.fix = what, why, fix

    def __reduce__(self) -> tuple[type[PrerequisiteError], tuple[str, str, str]]:
        return (type(self), (self.what, self.why, self.fix))


class DataError(PrerequisiteError):
    """A benchmark's data is missing, truncated or does not look like its description."""


class FailureClass(StrEnum):
    """Where a failure arose. Only `agent` counts against the agent; the others leave a missing result."""

    AGENT = "agent"
    MODEL = "model"
    MEMORY = "memory"
    BENCHMARK = "benchmark"
    GRADER = "grader"
    SANDBOX = "sandbox"
    SUBSTRATE = "substrate"
    TIMEOUT = "timeout"
    BUDGET = "budget"
