"""Claude Code in the words of the contract. docs/harnesses/claude-code.md has what was measured and why."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar
from uuid import NAMESPACE_OID, uuid5

from sclate_adapters.agent import (
    HARNESS_DIR,
    AgentAdapter,
    AgentCapabilities,
    AgentChannel,
    AgentContext,
    ProcessSpec,
    Provision,
    StateSpec,
)
from sclate_adapters.base import JsonDict
from sclate_adapters.errors import PrerequisiteError
from sclate_adapters.events import EventSource
from sclate_adapters.install import npm_member
from sclate_adapters.memory import MemorySystem
from sclate_adapters.models import Dialect
from sclate_adapters.records import CallClass, CallRecord
from sclate_agents.harness.claude_code.alarms import ClaudeCodeAlarms
from sclate_agents.harness.claude_code.channel import ClaudeCodeChannel

VERSION = "2.1.332"
PACKAGE = "@anthropic-ai/claude-code-linux-x64"
INTEGRITY = {
    VERSION: "sha512-f4JWhzwYutJIHScC7/dYOPX6s28tt7ZADhsOi8zwOHq5fFPEuUeChh2NMfinSg0GrUckYxaeebC4h0DqiKzLcw=="
}
"""Versions that the tests have run with."""
OURS = {"cleanupPeriodDays": 36_500}
"""Old transcripts are found by comparing file times, which are real, with the simulated clock: at the default
of 30 days a jump of a month deletes what the agent remembers by."""
MODEL, LOGIN, NOBODY = (
    "the model is chosen by --model",
    "no key and no login is within the agent's reach: the gateway holds the key",
    "nobody is there to be asked, and the sandbox is what confines the agent",
)
DECIDED_HERE = {
    "autoMemoryEnabled": "the memory is chosen by --agent claude-code+MEMORY",
    "autoMemoryDirectory": "its place is where the state is kept",
    "cleanupPeriodDays": "simulated months would have it delete transcripts",
    **dict.fromkeys(("model", "availableModels", "modelOverrides", "fallbackModel", "advisorModel"), MODEL),
    **dict.fromkeys(("apiKeyHelper", "proxyAuthHelper", "awsAuthRefresh", "gcpAuthRefresh"), LOGIN),
    **dict.fromkeys(("forceLoginMethod", "forceLoginOrgUUID"), LOGIN),
    "sandbox": "the sandbox is ours; one inside it has not the rights that it needs",
    **dict.fromkeys(("permissions.defaultMode", "permissions.disableBypassPermissionsMode"), NOBODY),
    "permissions.ask": NOBODY,
}
"""Keys of a user's settings (`a.b`: b in the object a) that would undo what a run decides, and why."""
ENV_DECIDED_HERE = re.compile(
    r"(ANTHROPIC|CLAUDE|DISABLE|AWS|GOOGLE|VERTEX|LD|FAKETIME|DONT_FAKE)_.*"
    r"|API_TIMEOUT_MS|BASH_(DEFAULT|MAX)_TIMEOUT_MS|TZ|HOME|PATH|SHELL|TMPDIR|IS_SANDBOX|NODE_EXTRA_CA_CERTS|((HTTPS?|ALL|NO)_PROXY)|((https?|all|no)_proxy)"
)
LONG_MS = str(3_600_000)
"""A frozen agent's monotonic clock runs on, so its own time limits must be longer than any freeze."""
TOOL_MS = str(900_000)


class ClaudeCodeAgent(AgentAdapter):
    """Options: `version` of the npm package (others than the tested one with a warning), `binary` (a path
    to one that you have), `settings` (a settings.json of yours, put into the agent's home)."""

    name: ClassVar[str] = "claude-code"
    version: ClassVar[str] = VERSION
    capabilities: ClassVar[AgentCapabilities] = AgentCapabilities(
        delivery="mid_turn",
        resume=True,
        crons=True,
        dialects=(Dialect.MESSAGES,),
        signals=(
            *("alive", "turn_started", "consumed", "turn_finished", "idle", "background_task", "failed"),
            *("cron_set", "cron_cleared"),
        ),
        request_timeout_ns=int(LONG_MS) * 1_000_000,
    )
    option_names: ClassVar[tuple[str, ...]] = ("version", "binary", "settings")

    def __init__(self, options: Mapping[str, Any] | None = None) -> None:
        super().__init__(options)
        self._version = self._text("version") or VERSION
        if not re.fullmatch(r"\d+\.\d+\.\d+(-[\w.-]+)?", self._version):
            raise PrerequisiteError(
                f"{self._version!r} is no version of Claude Code",
                "agent.options.version is exact, so that a run can be done again",
                f"--set 'agent.options.version=\"{VERSION}\"'",
            )
        self._binary()
        settings = self._text("settings")
        self._settings = None if settings is None else _settings(Path(settings).expanduser())

    def _text(self, option: str) -> str | None:
        value = self.options.get(option)
        if value is None or (isinstance(value, str) and value):
            return value
        raise PrerequisiteError(
            f"agent.options.{option} is {value!r}", "it is text", f"--set 'agent.options.{option}=\"...\"'"
        )

    # --- the program ------------------------------------------------------------------------------------

    def program(self) -> str:
        binary = self._binary()
        if binary is None:
            return f"claude-code {self._version}"
        status = binary.stat()
        return f"claude-code {binary} {status.st_size} {status.st_mtime_ns}"

    def install(self, folder: Path) -> None:
        binary, target = self._binary(), folder / "claude"
        if binary is None:
            npm_member(PACKAGE, self._version, INTEGRITY.get(self._version), "package/claude", target)
        else:
            shutil.copyfile(binary, target)
            target.chmod(0o755)
        found = _ask_version(target)
        if binary is None and found != self._version:
            raise PrerequisiteError(
                f"the package of Claude Code {self._version} holds {found}",
                "what runs would not be what is recorded",
                f"--set agent.options.version={VERSION}",
            )

    def remarks(self, folder: Path) -> Sequence[str]:
        found = self._version if self._binary() is None else _ask_version(folder / "claude")
        if found == VERSION:
            return ()
        return (f"Claude Code {found} is untested, {VERSION} is tested: what it says may be misunderstood",)

    def _binary(self) -> Path | None:
        given = self._text("binary")
        if given is None:
            return None
        path = Path(given).expanduser()
        if not (path.is_file() and os.access(path, os.X_OK)):
            raise PrerequisiteError(
                f"{path} is no program",
                "agent.options.binary names the native binary of Claude Code",
                "leave it out to have it fetched with npm, or name the file",
            )
        return path

    # --- a session --------------------------------------------------------------------------------------

    def provision(self, ctx: AgentContext) -> Provision:
        config = _config_dir(ctx)
        env = {
            "CLAUDE_CONFIG_DIR": config,
            "ANTHROPIC_BASE_URL": ctx.base_url,
            "ANTHROPIC_API_KEY": "none",
            "ANTHROPIC_DEFAULT_OPUS_MODEL": ctx.model,
            "ANTHROPIC_DEFAULT_SONNET_MODEL": ctx.model,
            "ANTHROPIC_DEFAULT_HAIKU_MODEL": ctx.model,
            "CLAUDE_CODE_SUBAGENT_MODEL": ctx.model,
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "CLAUDE_CODE_EMIT_SESSION_STATE_EVENTS": "1",
            "CLAUDE_CODE_MAX_RETRIES": "2",  # on top of the gateway's own, which wait out a provider's faults
            "API_TIMEOUT_MS": LONG_MS,
            "CLAUDE_STREAM_IDLE_TIMEOUT_MS": LONG_MS,
            "CLAUDE_BYTE_STREAM_IDLE_TIMEOUT_MS": LONG_MS,
            "BASH_DEFAULT_TIMEOUT_MS": TOOL_MS,
            "BASH_MAX_TIMEOUT_MS": TOOL_MS,
            "DISABLE_AUTOUPDATER": "1",
        }
        if ctx.memory.mode == "none":
            env["CLAUDE_CODE_DISABLE_AUTO_MEMORY"] = "1"
        files = {_flags(ctx): json.dumps(OURS).encode()}
        if self._settings is not None:
            files[f"{config}/settings.json"] = self._settings
        return Provision(files=files, env=env)

    def launch(self, ctx: AgentContext) -> ProcessSpec:
        argv = (
            *(f"{HARNESS_DIR}/claude", "--print", "--verbose"),
            *("--input-format", "stream-json", "--output-format", "stream-json"),
            *("--dangerously-skip-permissions", "--model", ctx.model, "--settings", _flags(ctx)),
            *("--session-id", str(uuid5(NAMESPACE_OID, f"{ctx.life.slug()}/{ctx.session.id}"))),
        )
        env = {"HOME": ctx.home, "PATH": ctx.path, "TZ": ctx.zone, "SHELL": "/bin/bash"}
        return ProcessSpec(argv=argv, env=env, cwd=ctx.workdir)

    def channel(self, ctx: AgentContext) -> AgentChannel:
        return ClaudeCodeChannel(ctx.zone, f"{ctx.workdir}/.claude/scheduled_tasks.json")

    def durable_state(self, ctx: AgentContext) -> StateSpec:
        project = ctx.workdir.replace("/", "-")
        return StateSpec(
            harness=(_config_dir(ctx),), memory=(f"{_config_dir(ctx)}/projects/{project}/memory",)
        )

    def classify_call(self, record: CallRecord) -> CallClass:
        try:
            return classify(record.path, record.request or {})
        except (AttributeError, TypeError):
            return CallClass.SIDE  # built in another way: a program of the agent's own called the model

    def event_sources(self, memory: MemorySystem) -> Sequence[EventSource]:
        return (ClaudeCodeAlarms(),)


def classify(path: str, request: JsonDict) -> CallClass:
    """By the harness's own marks (2.1.332): its billing tag, then the shape of the request."""
    system = request.get("system") or []
    tag = system[0].get("text", "") if isinstance(system, list) and system else ""
    tools = request.get("tools") or []
    if "cc_is_subagent=true" in tag:
        return CallClass.SUBAGENT
    if path.partition("?")[0].endswith("/count_tokens") or not tools:
        return CallClass.SIDE
    if all(str(tool.get("type", "")).startswith("web_search") for tool in tools):
        return CallClass.SIDE
    if _last_user_text(request).startswith("CRITICAL: Respond with TEXT ONLY"):
        return CallClass.COMPACTION
    return CallClass.MAIN


def _last_user_text(request: JsonDict) -> str:
    for message in reversed(request.get("messages") or []):
        if message.get("role") == "user":
            content = message.get("content")
            if isinstance(content, str):
                return content
            texts = [b.get("text", "") for b in content or [] if b.get("type") == "text"]
            return texts[-1] if texts else ""
    return ""


def _config_dir(ctx: AgentContext) -> str:
    return f"{ctx.home}/.claude"


def _flags(ctx: AgentContext) -> str:
    return f"{ctx.home}/.claude-settings.json"


def _ask_version(program: Path) -> str:
    """What the program says that it is."""
    fix = f"leave agent.options.binary out to have {VERSION} fetched with npm"
    with tempfile.TemporaryDirectory() as home:
        try:
            done = subprocess.run(
                [program, "--version"],
                capture_output=True,
                text=True,
                errors="backslashreplace",
                timeout=60,
                env={"HOME": home, "PATH": os.environ.get("PATH", "")},
                check=False,
            )
        except (OSError, subprocess.SubprocessError) as error:
            raise PrerequisiteError("Claude Code does not run here", str(error), fix) from None
    number, _, rest = done.stdout.strip().partition(" ")
    if done.returncode != 0 or "Claude Code" not in rest:
        said = (done.stderr.strip() or done.stdout.strip())[:300]
        raise PrerequisiteError(
            "this program is not Claude Code",
            f"--version exits with {done.returncode} and says {said!r}",
            fix,
        )
    return number


def _settings(file: Path) -> bytes:
    """A user's settings file, checked against what a run decides itself."""
    fix = f"edit {file}"
    try:
        data = file.read_bytes()
        settings = json.loads(data)
        if not isinstance(settings, dict):
            raise ValueError("not a JSON object")
        for part in ("env", "permissions"):
            if not isinstance(settings.get(part, {}), dict):
                raise ValueError(f"{part} is not an object")
    except (OSError, ValueError) as error:
        raise PrerequisiteError(f"{file} cannot be used as settings", str(error), fix) from None
    for key, why in DECIDED_HERE.items():
        part, _, name = key.rpartition(".")
        if name in (settings.get(part, {}) if part else settings):
            raise PrerequisiteError(f"{file} sets {key}", why, f"{fix}: remove {key}")
    taken = sorted(name for name in settings.get("env", {}) if ENV_DECIDED_HERE.fullmatch(name))
    if taken:
        raise PrerequisiteError(
            f"{file} sets {', '.join(taken)} in env",
            "a run decides these itself",
            f"{fix}: remove {', '.join(taken)}",
        )
    return data
