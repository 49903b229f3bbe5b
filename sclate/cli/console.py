"""Where the command line prints."""

from __future__ import annotations

import sys

from rich.console import Console

from sclate.progress import plain

out = Console(highlight=False, markup=False)


def err(text: str) -> None:
    """A message for the user on standard error."""
    print(plain(text), file=sys.stderr)
