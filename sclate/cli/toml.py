"""Writing TOML: the standard library only reads it."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any

BARE = re.compile(r"[A-Za-z0-9_-]+")


def dumps(table: Mapping[str, Any]) -> str:
    """A table as a TOML file that reads back the same, but for None: TOML has none, such keys are left out.

    Args:
        table: str, bool, int, float, lists and dicts of them, as JSON has them.
    """
    lines: list[str] = []
    _table(lines, "", table)
    return "\n".join(lines).lstrip("\n") + "\n"


def _table(lines: list[str], path: str, table: Mapping[str, Any]) -> None:
    values = {key: value for key, value in table.items() if not isinstance(value, dict) and value is not None}
    inner = {key: value for key, value in table.items() if isinstance(value, dict)}
    if path and (values or not inner):
        lines += ["", f"[{path}]"]
    lines += [f"{_key(key)} = {_value(value)}" for key, value in values.items()]
    for key, value in inner.items():
        _table(lines, f"{path}.{_key(key)}" if path else _key(key), value)


def _key(name: str) -> str:
    return name if BARE.fullmatch(name) else _text(name)


def _text(text: str) -> str:
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _value(value: Any) -> str:
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, list):
        return "[" + ", ".join(_value(item) for item in value if item is not None) + "]"
    if isinstance(value, dict):
        pairs = (f"{_key(key)} = {_value(item)}" for key, item in value.items() if item is not None)
        return "{" + ", ".join(pairs) + "}"
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)  # inf, -inf, nan: as TOML writes them
    return json.dumps(value)
