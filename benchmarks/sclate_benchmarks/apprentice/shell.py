"""Tool calls: what is to be read and written, rendered through whatever tools the harness offers."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from shlex import quote
from typing import Any

from sclate_adapters.models import ModelRequest, Part, ToolCallPart, ToolSpec

MARK = "@@@"
WRITTEN = "echo ok"
"""The last line of every script that makes or changes files: by it a later step knows that this is done."""
_SECTION = re.compile(rf"^{MARK} ([^\n]+)\n", re.M)
_SHELLS = ("bash", "shell", "exec", "exec_command", "shell_command", "run_command", "terminal")
_READERS = ("read", "read_file")
_WRITERS = ("write", "write_file")
_MAX_FILE = 40_000


@dataclass
class Work:
    """What one step does in the world, in this order: reads, copies, writes, appends."""

    reads: list[str] = field(default_factory=list)
    listings: list[str] = field(default_factory=list)
    copies: list[tuple[str, str]] = field(default_factory=list)
    writes: list[tuple[str, str]] = field(default_factory=list)
    appends: list[tuple[str, str]] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.reads or self.listings or self.copies or self.writes or self.appends)


def sections(text: str) -> dict[str, str]:
    """The files that a reading script printed, by path; a listing's key ends in `/`."""
    parts = _SECTION.split(text)
    return {path: body.removesuffix("\n") for path, body in zip(parts[1::2], parts[2::2], strict=True)}


def read_and_written(
    calls: Sequence[ToolCallPart], results: Mapping[str, str]
) -> tuple[dict[str, str], frozenset[str]]:
    """What a turn's calls have read, by path, and the paths they wrote; `results` by call id.

    A script that made files counts as having written `*`.
    """
    seen: dict[str, str] = {}
    wrote: set[str] = set()
    for call in calls:
        name = call.name.lower()
        path = str(call.input.get("path", call.input.get("file_path", "")))
        if name in _SHELLS:
            seen |= sections(results.get(call.id, ""))
            if WRITTEN in " ".join(map(str, call.input.values())):
                wrote.add("*")
        elif name in _READERS and call.id in results:
            seen[path] = results[call.id]
        elif name in _WRITERS:
            wrote.add(path)
    return seen, frozenset(wrote)


def has_shell(request: ModelRequest) -> bool:
    """Whether the harness offers a shell."""
    return _find(request.tools, *_SHELLS) is not None


def render(work: Work, request: ModelRequest, seen: dict[str, str], work_dir: str | None) -> tuple[Part, ...]:
    """The tool calls that do `work`: one script where there is a shell, single reads and writes otherwise.

    `seen` holds contents already read; copies and appends without a shell need them.
    """
    if tool := _find(request.tools, *_SHELLS):
        return (_call(request, 0, tool, _command(tool, script(work, work_dir))),)
    read, write = _find(request.tools, *_READERS), _find(request.tools, *_WRITERS)
    calls: list[Part] = []
    if read:
        for path in work.reads:
            calls.append(_call(request, len(calls), read, {_arg(read, "path", "file_path"): path}))
    if write:
        whole = [(dst, seen[src]) for src, dst in work.copies if src in seen]
        whole += work.writes
        whole += [(path, seen.get(path, "") + text) for path, text in work.appends]
        for path, content in whole:
            args = {_arg(write, "path", "file_path"): path, _arg(write, "content", "text"): content}
            calls.append(_call(request, len(calls), write, args))
    return tuple(calls)


def run(command: str, request: ModelRequest) -> tuple[Part, ...]:
    """The call of a command as it stands; none where there is no shell."""
    tool = _find(request.tools, *_SHELLS)
    return (_call(request, 0, tool, _command(tool, command)),) if tool else ()


def script(work: Work, work_dir: str | None) -> str:
    """One POSIX shell script for `work`."""
    lines = [f"cd {quote(work_dir)} || exit 1"] if work_dir else []
    for folder in work.listings:
        shown = folder.rstrip("/") + "/"
        lines.append(
            f"printf '\\n{MARK} %s\\n' {quote(shown)}; ls -1p {quote(folder)} 2>/dev/null | head -n 200"
        )
    for path in work.reads:
        lines.append(
            f"[ -f {quote(path)} ] && printf '\\n{MARK} %s\\n' {quote(path)}"
            f" && head -c {_MAX_FILE} {quote(path)}"
        )
    for src, dst in work.copies:
        lines.append(f"{_parent(dst)}cp -p {quote(src)} {quote(dst)}")
    for path, content in work.writes:
        lines.append(f"{_parent(path)}{_heredoc(path, content, '>')}")
    for path, content in work.appends:
        lines.append(f"{_parent(path)}{_heredoc(path, content, '>>')}")
    lines.append(WRITTEN if work.writes else "true")
    return "\n".join(lines)


def _parent(path: str) -> str:
    folder = path.rpartition("/")[0]
    return f"mkdir -p {quote(folder)} && " if folder else ""


def _heredoc(path: str, content: str, redirect: str) -> str:
    end = "EOF"
    while end in content.splitlines():
        end += "_"
    body = content if content.endswith("\n") else content + "\n"
    return f"cat {redirect} {quote(path)} <<'{end}'\n{body}{end}"


def _find(tools: tuple[ToolSpec, ...], *names: str) -> ToolSpec | None:
    for name in names:
        for tool in tools:
            if tool.name.lower() == name:
                return tool
    return None


def _properties(tool: ToolSpec) -> dict[str, Any]:
    found = tool.schema_.get("properties", {})
    return found if isinstance(found, dict) else {}


def _arg(tool: ToolSpec, *names: str) -> str:
    return next((n for n in names if n in _properties(tool)), names[0])


def _command(tool: ToolSpec, text: str) -> dict[str, Any]:
    name = _arg(tool, "command", "cmd", "script")
    wants_list = _properties(tool).get(name, {}).get("type") == "array"
    args: dict[str, Any] = {name: ["bash", "-lc", text] if wants_list else text}
    if "description" in tool.schema_.get("required", ()):
        args["description"] = "work on the files"
    return args


def _call(request: ModelRequest, n: int, tool: ToolSpec, args: dict[str, Any]) -> ToolCallPart:
    return ToolCallPart(id=f"call_{len(request.messages)}_{n}", name=tool.name, input=args)
