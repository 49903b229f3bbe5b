"""Protects the configuration: which source wins, where each value came from, what a mistake is told."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from sclate.config import Budgets, ConfigurationError, Origins, RunConfig, load, provenance


def loaded(
    file: Path | None = None,
    env: Mapping[str, str] | None = None,
    flags: Mapping[str, Any] | None = None,
    overrides: Sequence[str] = (),
) -> tuple[RunConfig, Origins]:
    return load(file, env or {}, flags or {}, overrides)


def written(folder: Path, text: str) -> Path:
    path = folder / "c.toml"
    path.write_text(text)
    return path


def test_later_sources_win(tmp_path: Path) -> None:
    file = written(tmp_path, "[benchmark]\nlimit = 1\nsplit = 'file'\nscenarios = 'file'\nname = 'file'\n")
    env = {
        "SCLATE_BENCHMARK__SPLIT": "env",
        "SCLATE_BENCHMARK__SCENARIOS": "env",
        "SCLATE_BENCHMARK__NAME": "env",
    }
    flags = {"benchmark.scenarios": "flag", "benchmark.name": "flag"}
    config, origins = loaded(file, env, flags, ["benchmark.name=set"])
    found = config.benchmark
    assert (found.limit, found.split, found.scenarios, found.name) == (1, "env", "flag", "set")
    rows = {key: origin for key, _, origin in provenance(config, origins)}
    assert rows["benchmark.limit"] == f"file {file}, line 2"
    assert rows["benchmark.split"] == "environment SCLATE_BENCHMARK__SPLIT"
    assert rows["benchmark.scenarios"] == "flag"
    assert rows["benchmark.name"] == "--set"
    assert rows["seed"] == "default"


def test_every_setting_is_listed_with_its_origin() -> None:
    rows = {key for key, _, _ in provenance(*loaded())}
    for name, field in RunConfig.model_fields.items():
        assert any(row == name or row.startswith(f"{name}.") for row in rows), field


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("3", 3),
        ("1.5", 1.5),
        ("true", True),
        ("'3'", "3"),
        ("[1, 'a']", [1, "a"]),
        ("a=b", "a=b"),
        ("a b", "a b"),
    ],
)
def test_overrides_are_typed_as_in_toml(text: str, value: Any) -> None:
    config, _ = loaded(overrides=[f"agent.options.x={text}"])
    assert config.agent.options == {"x": value}


def test_a_table_given_at_once_is_laid_over_what_is_there(tmp_path: Path) -> None:
    file = written(tmp_path, "[budgets]\nturn_s = 5\nstop_s = 6\n")
    config, origins = loaded(file, overrides=["budgets={turn_s = 7}"])
    assert (config.budgets.turn_s, config.budgets.stop_s) == (7, 6)
    rows = {key: origin for key, _, origin in provenance(config, origins)}
    assert rows["budgets.turn_s"] == "--set"
    assert rows["budgets.stop_s"] == f"file {file}, line 3"


def test_keys_within_an_inline_table_have_its_line(tmp_path: Path) -> None:
    file = written(tmp_path, "seed = 1\nbudgets = { turn_s = 5 }\n")
    rows = {key: origin for key, _, origin in provenance(*loaded(file))}
    assert rows["budgets.turn_s"] == f"file {file}, line 2"


def test_a_model_is_a_profile_or_a_backend(tmp_path: Path) -> None:
    text = "[models.mine]\nbase_url = 'http://h'\ndialect = 'chat'\nkey_env = 'K'\n"
    config, _ = loaded(written(tmp_path, text), overrides=["model=mine"])
    profile = config.profile()
    assert (profile.name, profile.base_url, profile.dialect, profile.backend) == (
        "mine",
        "http://h",
        "chat",
        None,
    )
    config, _ = loaded(overrides=["model=apprentice"])
    assert config.profile().backend == "apprentice"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("seed = = 2\n", ["no valid TOML", "line 1"]),
        ("seed = 1\n\n[benchmrk]\nname = 'x'\n", ["'benchmrk'", "line 4", "did you mean 'benchmark'?"]),
        ("[budgets]\nturn = 3\n", ["'budgets.turn'", "line 2", "did you mean 'turn_s'?"]),
        ("samples = 'many'\n", ["samples", "line 1", "valid integer"]),
        ("[budgets]\nstart_s = 9\nturn_s = -1\n", ["budgets.turn_s", "line 3", "greater than 0"]),
        ("benchmark = 3\n", ["benchmark", "line 1"]),
        (
            "model = 'm'\n[models.m]\nbase_url = 'http://h'\ndialct = 'chat'\n",
            ["'dialct'", "[models.m]", "'dialect'?"],
        ),
        ("model = 'm'\n[models.m]\nprovider = 'p'\n", ["'m'", "neither of backend and base_url"]),
        ("model = 'm'\n[models.m]\nbackend = 'b'\nbase_url = 'http://h'\n", ["both backend and base_url"]),
        ("model = 'm'\n[models]\nm = 3\n", ["models.m", "line 3", "valid dictionary"]),
    ],
)
def test_a_mistake_in_a_file_is_found_by_key_and_line(text: str, words: list[str], tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError) as caught:
        loaded(written(tmp_path, text))
    for word in words:
        assert word in str(caught.value)


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"none\.toml cannot be read"):
        loaded(tmp_path / "none.toml")
    (tmp_path / "latin.toml").write_bytes(b"model = '\xe9'\n")
    with pytest.raises(ConfigurationError, match="utf-8"):
        loaded(tmp_path / "latin.toml")


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("clock.latency", ["'clock.latency'", "a.b=value"]),
        ("=3", ["'=3'", "a.b=value"]),
        ("clock.latncy=real", ["'clock.latncy'", "--set", "did you mean 'latency'?"]),
        ("clock.latency=fast", ["'fast'", "--set", "clock.latency=fixed=2"]),
        ("clock.latency=fixed=-1", ["'fixed=-1'"]),
        ("seed.x=1", ["seed.x", "a value, not a table"]),
        ("samples=0", ["samples", "--set", "greater than or equal to 1"]),
        ("sandbox.backend=cloud", ["sandbox.backend", "'docker'"]),
        ("zzz=1", ["'zzz'", "known here: benchmark, agent", "--print-config"]),
    ],
)
def test_a_mistake_in_an_override(override: str, words: list[str]) -> None:
    with pytest.raises(ConfigurationError) as caught:
        loaded(flags={"seed": 1}, overrides=[override])
    for word in words:
        assert word in str(caught.value)


def test_a_mistake_in_a_variable() -> None:
    with pytest.raises(ConfigurationError, match=r"benchmark\.limit.*(?s:.*)SCLATE_BENCHMARK__LIMIT"):
        loaded(env={"SCLATE_BENCHMARK__LIMIT": "few"})


@pytest.mark.parametrize(
    ("inner", "outer"),
    [
        ("start_s", "session_s"),
        ("turn_s", "session_s"),
        ("grade_s", "session_s"),
        ("stop_s", "session_s"),
        ("session_s", "total_s"),
    ],
)
def test_budgets_nest(inner: str, outer: str) -> None:
    value = getattr(Budgets(), outer)
    with pytest.raises(ConfigurationError, match=f"{inner} must be smaller than {outer}"):
        loaded(overrides=[f"budgets.{inner}={value}"])
    loaded(overrides=[f"budgets.{inner}={value - 1}"])
