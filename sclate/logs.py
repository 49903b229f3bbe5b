"""structlog into the run's `run.log`, one JSON object a line, without secrets."""

from __future__ import annotations

import logging
import os
import re
from pathlib import Path
from typing import IO, Any, Literal

import orjson
import structlog

from sclate_adapters.base import whole_text

SECRET_NAME = re.compile(r"KEY|TOKEN|SECRET|PASSWORD", re.IGNORECASE)
SECRET_TEXT = re.compile(r"\b(?:sk|key|pat|ghp)[-_][A-Za-z0-9_\-]{12,}")
KEY_TEXT = re.compile(
    r"\b(?:sk-[A-Za-z0-9_\-]{16,}|gh[pousr]_[A-Za-z0-9]{16,}|github_pat_[A-Za-z0-9_]{16,}"
    r"|xox[abprs]-[A-Za-z0-9\-]{10,}|AKIA[0-9A-Z]{16})"
)
"""Keys of the common makes alone: what is left out of recorded model calls, where words must stay words."""
REDACTED = "(redacted)"
Level = Literal["debug", "info", "warning", "error"]


def redact(text: str) -> str:
    """Without the values of variables that hold secrets, and without what looks like a key."""
    for name, value in os.environ.items():
        if SECRET_NAME.search(name) and len(value) >= 8:
            text = text.replace(value, REDACTED)
    return SECRET_TEXT.sub(REDACTED, text)


def _redacted(value: Any) -> Any:
    """The same value, its texts redacted; before they are JSON, where a quoted secret looks otherwise."""
    if isinstance(value, str):
        return redact(whole_text(value))
    if isinstance(value, dict):
        return {_redacted(k): _redacted(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_redacted(v) for v in value]
    return value if value is None or isinstance(value, bool | int | float) else redact(str(value))


def open_log(path: Path, level: Level = "debug") -> IO[str]:
    """Send the log of this process to a file; returns it, to be closed."""
    out = path.open("a", encoding="utf-8")

    def render(_: Any, __: str, event: Any) -> str:
        return orjson.dumps(_redacted(event), option=orjson.OPT_NON_STR_KEYS).decode()

    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            render,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(getattr(logging, level.upper())),
        logger_factory=structlog.PrintLoggerFactory(out),
        cache_logger_on_first_use=False,
    )
    return out


def silence() -> None:
    """No log, for commands that have no run."""
    structlog.configure(processors=[_drop])


def _drop(_: Any, __: str, ___: Any) -> Any:
    raise structlog.DropEvent
