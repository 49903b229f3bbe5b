"""Shell commands in tool calls: where they stand, and what of them is command and not text for a file."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

COMMAND_KEYS = ("command", "cmd", "script")
MOST_CHARACTERS = 20_000
HEREDOC = re.compile(r"<<-?[ \t]*(['\"]?)(\w+)\1[^\n]*\n.*?(?:^[ \t]*\2[ \t]*$|\Z)", re.DOTALL | re.MULTILINE)


def first_text(arguments: Mapping[str, Any], keys: Sequence[str]) -> str:
    """The first of these arguments that is a text, else nothing."""
    return next((arguments[key] for key in keys if isinstance(arguments.get(key), str)), "")


def command_of(arguments: Mapping[str, Any]) -> str:
    """The command of a call without the texts that it feeds to others (`<<EOF`); empty where there is none."""
    command = first_text(arguments, COMMAND_KEYS)
    return HEREDOC.sub(lambda match: match[0].partition("\n")[0], command[:MOST_CHARACTERS])
