"""Protects how a configuration is put together: who wins, where a value came from, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sclate.config import ENV_PREFIX, RESERVED_ENV, ConfigurationError, RunConfig, load, provenance
from sclate.gateway import RetryPolicy


def made(text: str, folder: Path, *overrides: str) -> RunConfig:
    file = folder / "c.toml"
    file.write_text(text)
    return load(file, {}, {}, overrides)[0]


def refused(*args: Any) -> ConfigurationError:
    with pytest.raises(ConfigurationError) as caught:
        load(*args)
    assert caught.value.what
    assert caught.value.why
    assert caught.value.fix
    return caught.value


@pytest.fixture(scope="module")
def two_samples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("config") / "c.toml"
    path.write_text("samples = 2\n")
    return path


@given(layers=st.sets(st.sampled_from(["file", "variable", "flag", "set"])))
def test_the_last_of_the_layers_that_speak_wins(two_samples: Path, layers: set[str]) -> None:
    numbers = {"file": 2, "variable": 3, "flag": 4, "set": 5}
    config, origins = load(
        two_samples if "file" in layers else None,
        {"SCLATE_SAMPLES": "3"} if "variable" in layers else {},
        {"samples": 4} if "flag" in layers else {},
        ["samples=5"] if "set" in layers else [],
    )
    assert config.samples == max([1, *(numbers[layer] for layer in layers)])
    ((_, value, origin),) = [row for row in provenance(config, origins) if row[0] == "samples"]
    assert value == config.samples
    said = {
        1: "default",
        2: f"file {two_samples}, line 1",
        3: "environment SCLATE_SAMPLES",
        4: "flag",
        5: "--set",
    }
    assert origin == said[config.samples]


def test_layers_of_a_table_are_merged_key_by_key(tmp_path: Path) -> None:
    text = "[benchmark]\nlimit = 3\n[benchmark.options]\nworkspace = 'carry'\ngraders = 'ours'\n"
    config = made(text, tmp_path, "benchmark.options.graders=theirs")
    assert config.benchmark.limit == 3
    assert config.benchmark.options == {"workspace": "carry", "graders": "theirs"}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("3", 3),
        ("true", True),
        ("[1, 2]", [1, 2]),
        ("{a = 1}", {"a": 1}),
        ("'3'", "3"),
        ("a word", "a word"),
        ("", ""),
    ],
)
def test_an_override_is_toml_else_a_text(text: str, value: Any) -> None:
    assert load(None, {}, {}, [f"agent.options.x={text}"])[0].agent.options == {"x": value}


def test_other_variables_are_none_of_ours() -> None:
    env = {"PATH": "/bin", "SCLATER": "x"} | dict.fromkeys(RESERVED_ENV, "x")
    assert load(None, env, {}, []) == load(None, {}, {}, [])


def test_a_misspelt_key_is_told_what_it_may_have_been() -> None:
    error = refused(None, {f"{ENV_PREFIX}CLOCK__LATENCI": "real"}, {}, [])
    assert "unknown setting 'clock.latenci'" in error.what
    assert "SCLATE_CLOCK__LATENCI" in error.why
    assert error.fix == "did you mean 'latency'?"


@pytest.mark.parametrize(
    "policy", ["fast", "fixed", "fixed=", "fixed=-1", "fixed=x", "fixed=nan", "fixed=inf"]
)
def test_a_latency_policy_that_is_none(policy: str) -> None:
    error = refused(None, {}, {}, [f"clock.latency={policy}"])
    assert policy in error.what
    assert "from --set" in error.why


def test_a_broken_line_is_named(tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_text("seed = 1\n[clock\n")
    error = refused(tmp_path / "c.toml", {}, {}, [])
    assert "no valid TOML" in error.what
    assert "line 2" in error.why


def test_budgets_nest() -> None:
    error = refused(None, {}, {"budgets.turn_s": 7200}, [])
    assert "turn_s must be smaller than session_s" in error.what
    assert load(None, {}, {"budgets.turn_s": 7199}, [])[0].budgets.turn_s == 7199


def test_a_glob_selects_scenarios_by_case() -> None:
    settings = load(None, {}, {"benchmark.scenarios": "a[12]*"}, [])[0].benchmark
    assert [s for s in ("a1", "a2x", "a3", "A1") if settings.selects(s)] == ["a1", "a2x"]


def test_retries_of_an_endpoint_are_options_of_its_profile(tmp_path: Path) -> None:
    text = "model = 'm'\n[models.m]\nbase_url = 'http://h'\n"
    assert made(text, tmp_path).retry() == RetryPolicy()
    options = "options = {retry_attempts = 2, retry_base_s = 0.5, retry_deadline_s = 9}\n"
    assert made(text + options, tmp_path).retry() == RetryPolicy(2, 0.5, 9)
    with pytest.raises(ConfigurationError, match="did you mean 'retry_attempts'") as caught:
        made(text + "options = {retry_atempts = 2}\n", tmp_path)
    assert "[models.m] options" in caught.value.why


def test_options_of_a_keyless_model_are_its_own(tmp_path: Path) -> None:
    config = made("model = 'm'\n[models.m]\nbackend = 'x'\noptions = {retry_attempts = 'a'}\n", tmp_path)
    assert config.profile().options == {"retry_attempts": "a"}
    assert config.retry() == RetryPolicy()
