"""What every record of the contract shares: strict, immutable, JSON-ready; and the units of time."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

CONTRACT_VERSION = "1.0"
"""Version of every class in this package. A plug-in states the version it was written for; the engine
refuses another major version and accepts an older minor one."""

NS_PER_S = 1_000_000_000

SimNs = Annotated[int, Field(description="simulated instant, ns since the Unix epoch, UTC")]
DurationNs = Annotated[int, Field(ge=0, description="length of time in ns")]
JsonDict = dict[str, Any]


class Record(BaseModel):
    """Immutable data of the contract. Unknown fields are refused, so that a misspelt one is not lost."""

    model_config = ConfigDict(frozen=True, extra="forbid")


def whole_text(text: str) -> str:
    """`text` as UTF-8 can hold it. Half of a surrogate pair, which a harness or a model can say in JSON and
    which is no text, is written out as `\\udc80`."""
    return text.encode("utf-8", "backslashreplace").decode()


def whole(value: Any) -> Any:
    """A JSON-like value, records in it too, with every text whole; see `whole_text`."""
    match value:
        case str():
            return whole_text(value)
        case BaseModel():
            return value.model_copy(update=whole(dict(value)))
        case dict():
            return {whole(k): whole(v) for k, v in value.items()}
        case list() | tuple():
            return type(value)(map(whole, value))
    return value


def seconds(value: float) -> int:
    """A length in seconds as int ns, rounded to the nearest."""
    return round(value * NS_PER_S)
