"""No memory: the harness's own memory features are off."""

from __future__ import annotations

from typing import ClassVar, Literal

from sclate_adapters.base import JsonDict
from sclate_adapters.memory import MemorySystem


class NoMemory(MemorySystem):
    """What remains is what stays on disk as deployed: transcripts."""

    name: ClassVar[str] = "none"
    mode: ClassVar[Literal["none", "native", "added"]] = "none"

    def describe(self) -> JsonDict:
        return {"name": self.name}
