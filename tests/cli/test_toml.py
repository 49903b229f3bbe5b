"""Protects `config.toml` of a run: whatever a configuration holds reads back the same."""

from __future__ import annotations

import tomllib
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from sclate.cli.toml import dumps
from sclate.config import RunConfig

texts = st.text(st.characters(exclude_categories=["Cs"]))
scalars = texts | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(texts, values, max_size=4))
def test_what_is_written_reads_back(table: dict[str, Any]) -> None:
    assert tomllib.loads(dumps(table)) == table


def test_a_whole_configuration_reads_back() -> None:
    config = RunConfig.model_validate(
        {
            "model": "my model",
            "models": {
                "my model": {"backend": "scripted", "options": {"script": [{"text": 'say "8€"\x7f'}]}}
            },
            "benchmark": {"limit": 2},
        }
    )
    written = dumps(config.model_dump(mode="json"))
    assert RunConfig.model_validate(tomllib.loads(written)) == config
