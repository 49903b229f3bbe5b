"""What the engine needs of a sandbox, whatever carries it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from sclate.errors import FailureClass, LifeFailure

User = Literal["root", "agent", "memory", "proxy"]
UIDS: Mapping[User, int] = {"root": 0, "agent": 64001, "memory": 64002, "proxy": 64003}
"""High, unused numbers: without user namespaces they are uids of the host too."""

Output = Callable[[Literal["stdout", "stderr"], list[bytes], int], None]
"""Called with the stream, whole lines without their ends, and CLOCK_MONOTONIC in ns."""

DEFAULT_ENV: Mapping[str, str] = {
    "PATH": "/usr/local/bin:/usr/bin:/bin",
    "HOME": "/home/agent",
    "LANG": "C.UTF-8",
    "TZ": "UTC",
}


class SandboxError(LifeFailure):
    """The sandbox failed, not who lives in it."""

    def __init__(self, message: str) -> None:
        super().__init__(FailureClass.SANDBOX, message)


class CannotStart(SandboxError):
    """A command that is not there, or is no program."""

    def __init__(self, command: str, reason: str) -> None:
        super().__init__(f"cannot start {command}: {reason}")
        self.missing = reason.startswith("FileNotFoundError")


class UnsafeArchive(LifeFailure):
    """A tree that the agent made is refused: it holds what cannot be kept or would leave its place."""

    def __init__(self, message: str) -> None:
        super().__init__(FailureClass.AGENT, f"unsafe_archive: {message}")


class DigestMismatch(LifeFailure):
    """A saved state is not what it was when it was saved."""

    def __init__(self, path: Path, want: str, got: str) -> None:
        super().__init__(FailureClass.SUBSTRATE, f"state {path.name}: digest is {got}, recorded is {want}")


@dataclass(frozen=True)
class Limits:
    """Sizes in MiB; processes in number. Writable places are tmpfs and count as memory."""

    memory_mb: int = 2048
    pids: int = 256
    workspace_mb: int = 256
    home_mb: int = 256
    tmp_mb: int = 256


@dataclass(frozen=True)
class SandboxSpec:
    """What to make. Nothing in it may tell the agent what it is evaluated on."""

    image: str
    runtime: Path
    role: Literal["agent", "grader"]
    limits: Limits = Limits()
    labels: Mapping[str, str] = field(default_factory=dict)
    workdir: str = "/work"
    zone: str = "UTC"
    harness: Path | None = None
    """The folder to mount read-only at `HARNESS_DIR`."""


@dataclass(frozen=True)
class RunResult:
    rc: int | None
    stdout: bytes
    stderr: bytes
    timed_out: bool = False
    truncated: bool = False


@dataclass(frozen=True)
class SavedTree:
    """A tar on the host; `digest` is `sha256:...` of its bytes."""

    path: Path
    digest: str
    size: int
    left_out: str = ""
    """How many pipes and sockets the tree had, which no tar can keep, and the first of them; else empty."""


class Process(ABC):
    """A process in a sandbox."""

    pid: int

    @abstractmethod
    async def write(self, data: bytes) -> None:
        """Raises OSError when the process cannot take it any more."""

    @abstractmethod
    async def close_stdin(self) -> None: ...

    @abstractmethod
    async def signal(self, sig: int) -> None: ...

    @abstractmethod
    async def wait(self) -> int:
        """The exit code (minus the signal's number for a killed process), once it is reaped."""

    @abstractmethod
    async def drained(self) -> None:
        """Returns when all of its output was handed over."""


class Sandbox(ABC):
    """One sandbox: made, started, used, closed. Simulated time inside is set by `set_offset`."""

    spec: SandboxSpec
    gateway_dir: Path
    """Host folder in which the gateway's socket is made; the proxy's user reaches it from inside."""
    capture_dir: Path
    """Host folder to which the proxy writes its records."""

    @property
    @abstractmethod
    def container_id(self) -> str | None:
        """What the gateway checks its callers against; None before the start."""

    @abstractmethod
    async def start(self) -> None: ...

    @abstractmethod
    async def close(self) -> None:
        """Kill everything and remove everything; may be called at any time, twice too. Who is cancelled
        while he waits for it waits on: it is done to the end."""

    @abstractmethod
    async def spawn(
        self,
        key: str,
        argv: Sequence[str],
        *,
        user: User,
        cwd: str = "/",
        env: Mapping[str, str] | None = None,
        on_output: Output | None = None,
        stdin: bool = True,
    ) -> Process:
        """Start a process that lives on. Raises `CannotStart`, and `SandboxError` for what is not its fault.

        Those of `agent` and `memory`, with all their children, are what `freeze` stops.
        """

    @abstractmethod
    async def run(
        self,
        argv: Sequence[str],
        *,
        user: User,
        cwd: str = "/",
        env: Mapping[str, str] | None = None,
        timeout_s: float = 60.0,
        max_output: int = 1 << 20,
    ) -> RunResult:
        """Run a command of the engine to its end, also while frozen; at the time limit the process tree is
        killed and seen to be gone."""

    @abstractmethod
    async def kill_user(self, user: User) -> None:
        """Kill every process of a user. Raises `SandboxError` unless all of them are gone."""

    @abstractmethod
    async def save(self, paths: Sequence[str], user: User, without: Sequence[str] = ()) -> SavedTree:
        """Raises `UnsafeArchive` for a tree that cannot be kept. `without`: paths that are left out. Pipes and
        sockets are left out too, and named in what is returned."""

    @abstractmethod
    async def restore(self, tar: Path, digest: str, user: User, wipe: Sequence[str] = ()) -> None:
        """Raises `DigestMismatch`, `UnsafeArchive`."""

    @abstractmethod
    async def put_files(self, files: Mapping[str, bytes], user: User, mode: int = 0o644) -> None:
        """Files by absolute path; missing folders are made."""

    @abstractmethod
    async def read_file(self, path: str, user: User, max_bytes: int = 1 << 20) -> bytes | None:
        """Contents as that user may read them, or None where there is no such plain file."""

    @abstractmethod
    def set_offset(self, offset_ns: int) -> None:
        """Simulated minus real time, for every process inside, from its next look at the clock on."""

    @abstractmethod
    async def probe_clock(self) -> int:
        """How far programs inside are from the clock that was set, at most, in ns. Raises `SandboxError`
        when that is more than they can honestly be off."""

    @abstractmethod
    def freeze(self) -> None:
        """Stop the agent's and the memory's processes where they are; proxy and init go on."""

    @abstractmethod
    def thaw(self) -> None: ...
