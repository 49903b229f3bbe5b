"""The harness's memory as deployed, but emptied between sessions: a control for what memory brings."""

from __future__ import annotations

from typing import ClassVar

from sclate_agents.memory.native import NativeMemory


class EmptiedMemory(NativeMemory):
    """The agent writes and reads it in a session, and finds none of it in the next."""

    name: ClassVar[str] = "emptied"
    kept: ClassVar[bool] = False
