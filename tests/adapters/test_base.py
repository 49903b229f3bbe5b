"""Protects texts that are none: halves of surrogate pairs are written out wherever they stand."""

from __future__ import annotations

from sclate_adapters.base import whole
from sclate_adapters.models import Usage
from sclate_adapters.signals import Consumed, TurnFinished


def test_records_stay_records_and_every_text_in_them_is_whole() -> None:
    made = whole(
        {"a": [TurnFinished(text="x\ud83d")], "b": (Usage(input_tokens=3), Consumed(ids=("\udc80",)))}
    )
    assert made == {
        "a": [TurnFinished(text="x\\ud83d")],
        "b": (Usage(input_tokens=3), Consumed(ids=("\\udc80",))),
    }
    assert isinstance(made["b"][0], Usage)
