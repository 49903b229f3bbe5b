"""What a run is told to do: defaults, a TOML file, `SCLATE_` variables, flags, `--set`; later ones win."""

from __future__ import annotations

import difflib
import fnmatch
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from sclate.errors import PrerequisiteError
from sclate.gateway import RetryPolicy
from sclate.model_calls import parse_latency
from sclate_adapters.models import ModelProfile

ENV_PREFIX = "SCLATE_"
RESERVED_ENV = {
    "SCLATE_CACHE",
    "SCLATE_CA_BUNDLE",
    "SCLATE_DEBIAN_MIRROR",
    "SCLATE_INSTALL",
    "SCLATE_PYTHON",
    "SCLATE_REQUIRE_DOCKER",
    "SCLATE_TEST_SEED",
    "SCLATE_VENV",
}


class ConfigurationError(PrerequisiteError):
    """What a run is told to do cannot be: the command line, a variable or a file is wrong."""


class Settings(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class BenchmarkSettings(Settings):
    name: str = "workmonth"
    data: Path | None = None
    split: str = "all"
    limit: int | None = Field(None, ge=1)
    scenarios: str = "*"
    options: dict[str, Any] = Field(default_factory=dict)

    def selects(self, scenario: str) -> bool:
        return fnmatch.fnmatchcase(scenario, self.scenarios)


class AgentSettings(Settings):
    name: str = "reference"
    options: dict[str, Any] = Field(default_factory=dict)


class MemorySettings(Settings):
    name: str = "native"
    frozen: bool = False
    options: dict[str, Any] = Field(default_factory=dict)


class SandboxSettings(Settings):
    backend: Literal["docker"] = "docker"
    image: str | None = None


class ClockSettings(Settings):
    latency: str = "real"


class Budgets(Settings):
    """Real seconds. Inner ones are smaller than those that hold them."""

    start_s: float = Field(120, gt=0)
    turn_s: float = Field(300, gt=0)
    grade_s: float = Field(120, gt=0)
    stop_s: float = Field(30, gt=0)
    session_s: float = Field(7_200, gt=0)
    total_s: float = Field(172_800, gt=0)

    @model_validator(mode="after")
    def _nested(self) -> Budgets:
        for name in ("start_s", "turn_s", "grade_s", "stop_s"):
            if getattr(self, name) >= self.session_s:
                raise ValueError(f"budgets must nest: {name} must be smaller than session_s")
        if self.session_s >= self.total_s:
            raise ValueError("budgets must nest: session_s must be smaller than total_s")
        return self


class EndpointOptions(Settings):
    """Options of a model profile with `base_url`: how a provider's faults are tried again, in real seconds."""

    retry_attempts: int = Field(RetryPolicy.attempts, ge=1)
    retry_base_s: float = Field(RetryPolicy.base_s, ge=0)
    retry_deadline_s: float = Field(RetryPolicy.deadline_s, gt=0)


class RunConfig(Settings):
    """One run."""

    benchmark: BenchmarkSettings = BenchmarkSettings()
    agent: AgentSettings = AgentSettings()
    memory: MemorySettings = MemorySettings()
    model: str = "apprentice"
    models: dict[str, dict[str, Any]] = Field(default_factory=dict)
    sandbox: SandboxSettings = SandboxSettings()
    clock: ClockSettings = ClockSettings()
    budgets: Budgets = Budgets()
    seed: int = 0
    samples: int = Field(1, ge=1)
    out: Path | None = None

    def profile(self) -> ModelProfile:
        """The model's profile: one of [models.NAME], else the keyless backend of that name.

        Raises:
            ConfigurationError: the profile is none.
        """
        if self.model not in self.models:
            return ModelProfile(name=self.model, backend=self.model, model=self.model)
        where = f"[models.{self.model}]"
        try:
            profile = ModelProfile.model_validate({"name": self.model} | self.models[self.model])
        except ValidationError as error:
            raise _invalid(error, where, ModelProfile) from None
        if (profile.backend is None) == (profile.base_url is None):
            raise ConfigurationError(
                f"model profile {self.model!r} must name one place that answers",
                f"{where} has "
                + ("neither of" if profile.backend is None else "both")
                + " backend and base_url",
                'base_url = "https://..." for an endpoint, or backend = "NAME" (sclate list models)',
            )
        if profile.base_url is not None:
            if fault := _no_endpoint(profile.base_url):
                raise ConfigurationError(
                    f"model profile {self.model!r} has no usable base_url: {profile.base_url!r}",
                    f"{where}: {fault}",
                    'base_url = "https://api.example.com"; the path of the dialect is added to it',
                )
            self._endpoint(profile)
        return profile

    def retry(self) -> RetryPolicy:
        """How a provider's faults are tried again."""
        profile = self.profile()
        if profile.backend is not None:
            return RetryPolicy()
        options = self._endpoint(profile)
        return RetryPolicy(options.retry_attempts, options.retry_base_s, options.retry_deadline_s)

    def _endpoint(self, profile: ModelProfile) -> EndpointOptions:
        try:
            return EndpointOptions.model_validate(profile.options)
        except ValidationError as error:
            raise _invalid(error, f"[models.{self.model}] options", EndpointOptions) from None


class Origins(dict[str, str]):
    """Where each value came from, by dotted key; what is not in it is a default."""

    def of(self, key: str) -> str:
        """Where a key, the table that it is in, or else what is under it came from."""
        for name in _upwards(key):
            if name in self:
                return self[name]
        under = [origin for name, origin in self.items() if name.startswith(f"{key}.")]
        return ", ".join(dict.fromkeys(under)) or "the configuration"


def load(
    file: Path | None, env: Mapping[str, str], flags: Mapping[str, Any], overrides: Sequence[str]
) -> tuple[RunConfig, Origins]:
    """Put a configuration together.

    Args:
        flags: dotted key -> value, only those that were given.
        overrides: `a.b=c`, values as in TOML (a bare word is a string).

    Raises:
        ConfigurationError: names the file and line, the variable or the key, and the fix.
    """
    tree: dict[str, Any] = {}
    origins = Origins()
    if file is not None:
        _merge(tree, *_read(file), origins, f"file {file}")
    for name in sorted(env):
        if name.startswith(ENV_PREFIX) and name not in RESERVED_ENV:
            key = name.removeprefix(ENV_PREFIX).lower().replace("__", ".")
            _put(tree, key, _value(env[name]), origins, f"environment {name}")
    for key, value in flags.items():
        _put(tree, key, value, origins, "flag")
    for override in overrides:
        key, eq, text = override.partition("=")
        if not eq or not key:
            raise ConfigurationError(
                f"--set {override!r} is no override",
                "it has the form a.b=value",
                "--set clock.latency=fixed=2",
            )
        _put(tree, key, _value(text), origins, "--set")
    try:
        config = RunConfig.model_validate(tree)
    except ValidationError as error:
        raise _invalid(error, origins, RunConfig) from None
    config.profile()
    try:
        parse_latency(config.clock.latency)
    except PrerequisiteError as error:
        why = f"{error.why}; from {origins.of('clock.latency')}"
        raise ConfigurationError(error.what, why, error.fix) from None
    return config, origins


def provenance(config: RunConfig, origins: Origins) -> list[tuple[str, Any, str]]:
    """Every value with its dotted key and where it came from."""
    rows: list[tuple[str, Any, str]] = []

    def walk(prefix: str, value: Any) -> None:
        if isinstance(value, dict) and value:
            for name, inner in value.items():
                walk(f"{prefix}.{name}" if prefix else name, inner)
        else:
            rows.append((prefix, value, origins.get(prefix, "default")))

    walk("", config.model_dump(mode="json"))
    return rows


def _read(file: Path) -> tuple[dict[str, Any], dict[str, int]]:
    """What the file says, and in which line each key is."""
    try:
        text = file.read_text(encoding="utf-8")
        return tomllib.loads(text), _lines(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigurationError(f"{file} is no valid TOML", str(error), "mend that line") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{file} cannot be read", str(error), "name a readable TOML file") from None


def _lines(text: str) -> dict[str, int]:
    """Dotted key -> line. The parser does not tell; line starts do, for keys that are not quoted."""
    table = ""
    found: dict[str, int] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if header := re.match(r"\s*\[+\s*([\w.-]+)\s*\]", line):
            table = f"{header[1]}."
            found.setdefault(header[1], number)
        elif key := re.match(r"\s*([\w.-]+)\s*=", line):
            found.setdefault(table + key[1], number)
    return found


def _value(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _merge(
    tree: dict[str, Any],
    more: Mapping[str, Any],
    lines: Mapping[str, int],
    origins: Origins,
    origin: str,
    at: str = "",
) -> None:
    for name, value in more.items():
        key = f"{at}.{name}" if at else name
        if isinstance(value, dict):
            inner = tree.setdefault(name, {})
            if isinstance(inner, dict):
                _merge(inner, value, lines, origins, origin, key)
                continue
        tree[name] = value
        line = next((lines[x] for x in _upwards(key) if x in lines), None)
        origins[key] = origin if line is None else f"{origin}, line {line}"


def _upwards(key: str) -> Iterator[str]:
    """`a.b.c`, `a.b`, `a`."""
    while key:
        yield key
        key = key.rpartition(".")[0]


def _put(tree: dict[str, Any], key: str, value: Any, origins: Origins, origin: str) -> None:
    *folders, last = key.split(".")
    for name in folders:
        inner = tree.setdefault(name, {})
        if not isinstance(inner, dict):
            raise ConfigurationError(
                f"{key}: {name} is a value, not a table", f"from {origin}", "check the key"
            )
        tree = inner
    _merge(tree, {last: value}, {}, origins, origin, ".".join(folders))


def _no_endpoint(url: str) -> str | None:
    """Why nothing can be asked at a URL."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        return str(error)
    if parts.scheme not in ("http", "https"):
        return "it has to start with http:// or https://"
    if not parts.hostname or port == 0 or not url.isprintable() or " " in url:
        return "it names no host that could be called"
    if parts.query or parts.fragment:
        return "a path is added to it, so it cannot end with ?... or #..."
    if parts.username is not None or parts.password is not None:
        return "a key does not belong in it: name the variable that holds it in key_env"
    return None


def _keys(model: type[BaseModel]) -> list[str]:
    return list(model.model_fields)


def _invalid(error: ValidationError, where: Origins | str, root: type[BaseModel]) -> ConfigurationError:
    first = error.errors()[0]
    key = ".".join(str(x) for x in first["loc"])
    origin = where if isinstance(where, str) else where.of(key)
    if first["type"] == "extra_forbidden":
        known: list[str] = []
        model: Any = root
        for part in first["loc"][:-1]:
            model = model.model_fields[str(part)].annotation if hasattr(model, "model_fields") else None
        if hasattr(model, "model_fields"):
            known = _keys(model)
        near = difflib.get_close_matches(str(first["loc"][-1]), known, n=1)
        return ConfigurationError(
            f"unknown setting {key!r}",
            f"from {origin}; known here: {', '.join(known)}",
            f"did you mean {near[0]!r}?" if near else "sclate run --print-config shows all settings",
        )
    message = first["msg"].removeprefix("Value error, ")
    return ConfigurationError(
        f"setting {key}: {message}",
        f"from {origin}",
        "sclate run --print-config shows all settings",
    )
