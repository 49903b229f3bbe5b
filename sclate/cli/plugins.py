"""`sclate list`: what is registered, the broken ones too."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from sclate import registry
from sclate.cli.console import out
from sclate.progress import plain


class GroupName(StrEnum):
    benchmarks = "benchmarks"
    agents = "agents"
    memories = "memories"
    models = "models"


def list_plugins(group: Annotated[GroupName, typer.Argument(help="What to list.")]) -> None:
    """List registered plug-ins; a broken one is shown with its reason."""
    for plugin in registry.available(group.value):
        state = f"BROKEN: {plugin.problem}" if plugin.problem else plugin.summary
        out.print(plain(f"{plugin.name:<12} {state}  ({plugin.target})"), soft_wrap=True)
