"""The memory that the harness brings, as deployed."""

from __future__ import annotations

from typing import ClassVar, Literal

from sclate_adapters.base import JsonDict
from sclate_adapters.memory import MemorySystem


class NativeMemory(MemorySystem):
    """Nothing is added and nothing is turned off."""

    name: ClassVar[str] = "native"
    mode: ClassVar[Literal["none", "native", "added"]] = "native"

    def describe(self) -> JsonDict:
        return {"name": self.name}
