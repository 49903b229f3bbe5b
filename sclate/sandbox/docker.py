"""The Docker sandbox: one container, our init as PID 1, no network, a read-only root, sized tmpfs.

Settings and their reasons: docs/design/sandbox.md.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal

import docker
import docker.types
import structlog
from docker.errors import APIError, ImageNotFound, NotFound
from docker.models.containers import Container

from sclate.errors import PrerequisiteError
from sclate.sandbox.archive import pack
from sclate.sandbox.channel import Event, InitChannel, to_bytes, to_text
from sclate.sandbox.clock_backend import ClockBackend, LibfaketimeBackend
from sclate.sandbox.freezer import Freezer, freezer_for
from sclate.sandbox.owner import this_owner
from sclate.sandbox.protocol import (
    DEFAULT_ENV,
    UIDS,
    CannotStart,
    DigestMismatch,
    Output,
    Process,
    RunResult,
    Sandbox,
    SandboxError,
    SandboxSpec,
    SavedTree,
    UnsafeArchive,
    User,
)
from sclate_adapters.agent import HARNESS_DIR

log = structlog.get_logger()

PYTHON = "/opt/sclate/bin/python"
PROGRAMS = "/opt/sclate/sclate"
STATETOOL = "statetool"  # what init runs in a fork of its own
START_TIMEOUT_S = 30.0
ASK_TIMEOUT_S = 20.0
STATE_TIMEOUT_S = 120.0
PROBE_TOLERANCE_NS = 50_000_000
AGENT_OOM = 500
MAX_FILES = 200_000
TAR_OVERHEAD = 4096
"""Bytes of headers and padding that a member of a saved tree takes, a long name aside."""
REFUSED = 3
PRIVATE_ROOT = Path("/run") if os.access("/run", os.W_OK) else Path(tempfile.gettempdir())
"""Short, since a Unix socket's path has at most 107 bytes; neutral, since mounts are visible inside."""
PREFIX = "sclate-"
"""Of the private folders' names; their owner's pid and start time follow."""


Data = Callable[[Literal["stdout", "stderr"], bytes], None]
"""Called with the stream and bytes as they come, to the byte."""


class DockerProcess(Process):
    """A process in a container. Its output goes to `on_output` by lines, to `on_data` as it comes."""

    def __init__(
        self, sandbox: DockerSandbox, key: str, on_output: Output | None, on_data: Data | None
    ) -> None:
        self.key = key
        self.pid = 0
        self.gone = False
        """Whether the sandbox went away under it; its exit code then says nothing."""
        self.dropped = 0
        """Bytes of output that were over a limit."""
        self._sandbox = sandbox
        self._on_output = on_output
        self._on_data = on_data
        self._partial = {"stdout": b"", "stderr": b""}
        self._dead: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._exited = asyncio.Event()

    async def write(self, data: bytes) -> None:
        if self._dead.done():
            raise BrokenPipeError("the process has ended")
        await self._sandbox.channel.tell("stdin", id=self.key, data=to_text(data))

    async def close_stdin(self) -> None:
        await self._sandbox.channel.tell("eof", id=self.key)

    async def signal(self, sig: int) -> None:
        await self._sandbox.channel.tell("signal", id=self.key, sig=int(sig))

    async def wait(self) -> int:
        return await asyncio.shield(self._dead)

    async def drained(self) -> None:
        await self._exited.wait()

    @property
    def ended(self) -> bool:
        """Whether it and its pipes have come to their end."""
        return self._exited.is_set()

    def on_event(self, event: Event) -> None:
        """What init tells of this process."""
        if event["ev"] == "out":
            data = to_bytes(event["d"])
            if self._on_data is not None:
                self._on_data(event["s"], data)
            self._lines(event["s"], data)
        elif event["ev"] == "dead":
            self._end(event["rc"])
        elif event["ev"] == "exit":
            for stream in ("stdout", "stderr"):
                self._lines(stream, b"", last=True)
            self.dropped = event["dropped"]
            self._end(event["rc"])
            self._exited.set()
        elif event["ev"] == "gone":
            self.gone = True
            self._end(-int(signal.SIGKILL))
            self._exited.set()

    def _end(self, rc: int) -> None:
        if not self._dead.done():
            self._dead.set_result(rc)

    def _lines(self, stream: Literal["stdout", "stderr"], data: bytes, last: bool = False) -> None:
        if self._on_output is None:
            return
        *lines, rest = (self._partial[stream] + data).split(b"\n")
        if last and rest:
            lines, rest = [*lines, rest], b""
        self._partial[stream] = rest
        if lines:
            self._on_output(stream, lines, time.monotonic_ns())


class DockerSandbox(Sandbox):
    """A container of its own, with a private folder on the host for what is mounted into it."""

    def __init__(self, spec: SandboxSpec, client: docker.DockerClient) -> None:
        if os.geteuid() != 0:
            raise PrerequisiteError(
                "the Docker sandbox must be run as root",
                "it owns folders for the sandbox's users and freezes their processes",
                "sudo -E sclate ...",
            )
        self.spec = spec
        self._client = client
        prefix = "-".join((PREFIX.rstrip("-"), *this_owner(), ""))
        self._folder = Path(tempfile.mkdtemp(prefix=prefix, dir=PRIVATE_ROOT))
        self.gateway_dir = self._folder / "gw"
        self.capture_dir = self._folder / "proxy"
        self.clock: ClockBackend = LibfaketimeBackend()
        self._binds: dict[str, str] = {}
        try:
            self._folder.chmod(0o711)
            for name, user in (("ctl", "root"), ("x", "root"), ("gw", "proxy"), ("proxy", "proxy")):
                self._make(name, UIDS[user])  # type: ignore[index]
            self._clock_binds = self.clock.prepare(self._folder)
            self.channel = InitChannel(self._folder / "ctl", self._on_event)
        except BaseException:  # nobody gets the sandbox, to close it
            shutil.rmtree(self._folder, ignore_errors=True)
            raise
        self._offset_ns = 0
        self._container: Container | None = None
        self._freezer: Freezer | None = None
        self._processes: dict[str, DockerProcess] = {}
        self._counter = 0

    def _make(self, name: str, uid: int) -> None:
        path = self._folder / name
        path.mkdir(mode=0o700)
        os.chown(path, uid, uid)
        self._binds[str(path)] = f"/run/sclate/{name}"

    # --- life -------------------------------------------------------------------------------------------

    @property
    def container_id(self) -> str | None:
        return self._container.id if self._container is not None else None

    async def start(self) -> None:
        try:
            await to_the_end(self._create)  # else a container is made that nobody knows of
        except ImageNotFound:
            raise PrerequisiteError(
                f"image {self.spec.image} is missing",
                "every sandbox is made from it",
                "run again to build the default image, or `docker pull` your own",
            ) from None
        except APIError as error:
            raise SandboxError(f"the Docker engine refused the container: {error.explanation}") from error
        await self.channel.connect(START_TIMEOUT_S)
        assert self._container is not None
        self._freezer = freezer_for(self._container.attrs["State"]["Pid"])

    def _create(self) -> None:
        limits = self.spec.limits
        options = "rw,nosuid,nodev,exec"

        def tmpfs(size_mb: int, user: User, mode: int) -> str:
            uid = UIDS[user]
            return f"{options},size={size_mb}m,uid={uid},gid={uid},mode={mode:o}"

        read_only = {str(self.spec.runtime): "/opt/sclate", **self._clock_binds}
        if self.spec.harness is not None:
            read_only[str(self.spec.harness)] = HARNESS_DIR
        mounts = [
            docker.types.Mount(target, source, type="bind", read_only=False)
            for source, target in self._binds.items()
        ] + [
            docker.types.Mount(target, source, type="bind", read_only=True)
            for source, target in read_only.items()
        ]
        self._container = self._client.containers.create(
            self.spec.image,
            [PYTHON, "-I", f"{PROGRAMS}/init.py"],
            user="0",
            working_dir="/",
            network_mode="none",
            read_only=True,
            cap_drop=["ALL"],
            cap_add=["SETUID", "SETGID", "KILL"],
            security_opt=["no-new-privileges"],
            pids_limit=limits.pids,
            mem_limit=f"{limits.memory_mb}m",
            memswap_limit=f"{limits.memory_mb}m",
            shm_size="16m",
            tmpfs={
                "/run": f"{options},size=16m,mode=755",
                "/run/mitmproxy": tmpfs(16, "proxy", 0o700),
                "/tmp": f"{options},size={limits.tmp_mb}m,mode=1777",
                "/home/agent": tmpfs(limits.home_mb, "agent", 0o700),
                "/home/memory": tmpfs(limits.home_mb, "memory", 0o700),
                self.spec.workdir: tmpfs(limits.workspace_mb, "agent", 0o755),
            },
            mounts=mounts,
            labels={**self.spec.labels},
            log_config=docker.types.LogConfig(
                type="local", config={"max-size": "1m", "max-file": "1", "compress": "false"}
            ),
            hostname="sandbox",
            stop_signal="SIGTERM",
        )
        self._container.start()
        self._container.reload()

    async def close(self) -> None:
        with contextlib.suppress(SandboxError, OSError):
            self.thaw()
        try:
            await self.channel.close()
        finally:
            await to_the_end(self._remove)

    def _remove(self) -> None:
        if self._container is not None:
            container, self._container = self._container, None
            with contextlib.suppress(NotFound):
                container.remove(force=True, v=True)
        if self._freezer is not None:
            self._freezer.remove()
            self._freezer = None
        shutil.rmtree(self._folder, ignore_errors=True)

    # --- processes --------------------------------------------------------------------------------------

    async def spawn(
        self,
        key: str,
        argv: Sequence[str],
        *,
        user: User,
        cwd: str = "/",
        env: Mapping[str, str] | None = None,
        on_output: Output | None = None,
        on_data: Data | None = None,
        stdin: bool = True,
    ) -> DockerProcess:
        process = await self._spawn(
            key, argv, on_output=on_output, on_data=on_data, user=user, cwd=cwd, env=env, stdin=stdin
        )
        if user in ("agent", "memory") and self._freezer is not None:
            self._freezer.confine(process.pid)
        return process

    async def _spawn(
        self,
        key: str,
        argv: Sequence[str],
        *,
        on_output: Output | None = None,
        on_data: Data | None = None,
        user: User,
        cwd: str,
        env: Mapping[str, str] | None,
        **fields: Any,
    ) -> DockerProcess:
        process = self._processes[key] = DockerProcess(self, key, on_output, on_data)
        try:
            started = await self.channel.ask(
                "spawn",
                "started",
                key=key,
                timeout_s=ASK_TIMEOUT_S,
                argv=list(argv),
                env={**DEFAULT_ENV, "TZ": self.spec.zone, **(env or {})},
                cwd=cwd,
                uid=UIDS[user],
                oom=0 if user in ("root", "proxy") else AGENT_OOM,
                **fields,
            )
        except BaseException:  # who waits was cancelled: it must not run without anybody who knows of it
            self._processes.pop(key, None)
            with contextlib.suppress(SandboxError):
                self.channel.send("kill_tree", id=key)
            raise
        if started["pid"] is None:
            del self._processes[key]
            raise SandboxError(f"cannot start {argv[0]}: {started['error']}")
        if started["error"]:
            raise CannotStart(argv[0], started["error"])
        process.pid = started["pid"]
        return process

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
        return await self._run(argv, user=user, cwd=cwd, env=env, timeout_s=timeout_s, max_output=max_output)

    async def _run(
        self,
        argv: Sequence[str],
        *,
        user: User,
        cwd: str = "/",
        env: Mapping[str, str] | None = None,
        timeout_s: float,
        max_output: int = 1 << 20,
        **fields: Any,
    ) -> RunResult:
        output: dict[str, bytearray] = {"stdout": bytearray(), "stderr": bytearray()}

        def keep(stream: Literal["stdout", "stderr"], data: bytes) -> None:
            if len(output[stream]) <= max_output:
                output[stream] += data

        self._counter += 1
        key = f"run-{self._counter}"
        process = await self._spawn(
            key, argv, on_data=keep, user=user, cwd=cwd, env=env, stdin=False, tree=True, **fields
        )
        timed_out = False
        rc: int | None = None
        try:
            async with asyncio.timeout(timeout_s):
                rc = await process.wait()
                await process.drained()  # a child that keeps the pipe open counts as not ended
        except TimeoutError:
            timed_out = True
            killed = await self.channel.ask("kill_tree", "killed", key=key, timeout_s=ASK_TIMEOUT_S)
            if killed["left"]:
                raise SandboxError(f"{killed['left']} processes of {argv[0]} survive SIGKILL") from None
        finally:
            self._processes.pop(key, None)
            if not process.ended:  # who waited for it was cancelled
                with contextlib.suppress(SandboxError):
                    self.channel.send("kill_tree", id=key)
        if process.gone:
            raise SandboxError(f"the sandbox went away under {argv[0]}")
        truncated = process.dropped > 0 or any(len(data) > max_output for data in output.values())
        return RunResult(
            rc,
            bytes(output["stdout"][:max_output]),
            bytes(output["stderr"][:max_output]),
            timed_out,
            truncated,
        )

    async def kill_user(self, user: User) -> None:
        self.thaw()  # a frozen process does not die
        self._counter += 1
        key = f"kill-{self._counter}"
        killed = await self.channel.ask(
            "kill_uid", "killed", key=key, uid=UIDS[user], timeout_s=ASK_TIMEOUT_S
        )
        if killed["left"]:
            raise SandboxError(f"{killed['left']} processes of user {user} survive SIGKILL")

    def _on_event(self, event: Event) -> None:
        if event["ev"] == "gone":
            for process in list(self._processes.values()):
                process.on_event(event)
            return
        known = self._processes.get(event.get("id") or "")
        if known is not None:
            known.on_event(event)
            if event["ev"] == "exit":
                self._processes.pop(known.key, None)

    # --- files ------------------------------------------------------------------------------------------

    def _exchange(self, suffix: str) -> tuple[str, Path]:
        self._counter += 1
        name = f"{self._counter}-{suffix}"
        return name, self._folder / "x" / name

    @property
    def _max_bytes(self) -> int:
        """What a tree may hold: an honest one fits into the places that it lies in."""
        limits = self.spec.limits
        return (limits.workspace_mb + limits.home_mb + limits.tmp_mb) << 20

    def _state_limits(self) -> list[str]:
        return ["--max-bytes", str(self._max_bytes), "--max-files", str(MAX_FILES)]

    async def save(self, paths: Sequence[str], user: User, without: Sequence[str] = ()) -> SavedTree:
        name, path = self._exchange("save.tar")
        argv = [STATETOOL, "save", *self._state_limits()]
        for other in without:
            argv += ["--without", other]
        argv += paths
        room = self._max_bytes + MAX_FILES * TAR_OVERHEAD
        try:
            result = await self._run(
                argv, user=user, timeout_s=STATE_TIMEOUT_S, stdout_file=name, stdout_max=room
            )
            self._check_state_tool(result, "save")
        except BaseException:
            path.unlink(missing_ok=True)
            raise
        digest = await asyncio.to_thread(file_digest, path)
        left_out = result.stderr.decode("utf-8", "backslashreplace").strip()
        if left_out:
            log.warning("a saved state is without its pipes and sockets", paths=list(paths), said=left_out)
        return SavedTree(path, digest, path.stat().st_size, left_out)

    async def restore(self, tar: Path, digest: str, user: User, wipe: Sequence[str] = ()) -> None:
        found = await asyncio.to_thread(file_digest, tar)
        if found != digest:
            raise DigestMismatch(tar, digest, found)
        name, path = self._exchange("restore.tar")
        await asyncio.to_thread(shutil.copyfile, tar, path)
        await self._restore(name, path, user, wipe, [self.spec.workdir, "/home/agent", "/home/memory"])

    async def _restore(
        self, name: str, path: Path, user: User, wipe: Sequence[str], roots: Sequence[str], *options: str
    ) -> None:
        argv = [STATETOOL, "restore", *self._state_limits(), *options]
        for root in wipe:
            argv += ["--wipe", root]
        try:
            result = await self._run([*argv, *roots], user=user, timeout_s=STATE_TIMEOUT_S, stdin_file=name)
        finally:
            path.unlink()
        self._check_state_tool(result, "restore")

    @staticmethod
    def _check_state_tool(result: RunResult, action: str) -> None:
        message = result.stderr.decode("utf-8", "backslashreplace").strip()
        if result.rc == REFUSED:
            raise UnsafeArchive(message)
        if result.rc != 0 or result.timed_out or result.truncated:
            raise SandboxError(f"state {action} failed (exit {result.rc}): {message[-500:]}")

    async def put_files(self, files: Mapping[str, bytes], user: User, mode: int = 0o644) -> None:
        name, path = self._exchange("put.tar")
        path.write_bytes(pack(files, mode))
        await self._restore(name, path, user, (), ["/"], "--replaced-now")

    async def read_file(self, path: str, user: User, max_bytes: int = 1 << 20) -> bytes | None:
        name, kept = self._exchange("read")
        plain = 'test -f "$1" && exec head -c "$2" -- "$1"'  # to open a pipe would wait for its writer
        argv = ["sh", "-c", plain, "sh", path, str(max_bytes)]
        result = await self._run(
            argv, user=user, timeout_s=ASK_TIMEOUT_S, stdout_file=name, stdout_max=max_bytes
        )
        data = kept.read_bytes()
        kept.unlink()
        return data if result.rc == 0 else None

    # --- time -------------------------------------------------------------------------------------------

    def set_offset(self, offset_ns: int) -> None:
        self._offset_ns = offset_ns
        self.clock.set_offset(offset_ns)

    async def probe_clock(self) -> int:
        script = "env -i date +%s%N; bash -c 'printf \"%(%s)T\\n\" -1'"
        before = time.time_ns() + self._offset_ns
        result = await self.run(["sh", "-c", script], user="agent")
        after = time.time_ns() + self._offset_ns
        try:
            date, bash = (int(word) for word in result.stdout.split())
        except ValueError:
            raise SandboxError(f"the clock probe failed: {result.stderr[-500:]!r}") from None
        off = max(before - date, date - after, 0)
        whole = bash * 1_000_000_000
        off = max(off, before - whole - 1_000_000_000, whole - after)
        if off > PROBE_TOLERANCE_NS:
            raise SandboxError(f"the sandbox's clock is off by {off / 1e9:.3f} s")
        return off

    def freeze(self) -> None:
        if self._freezer is not None:
            self._freezer.freeze()

    def thaw(self) -> None:
        if self._freezer is not None:
            self._freezer.thaw()


async def to_the_end(work: Callable[[], None]) -> None:
    """Do blocking work in a thread, which cannot be broken off: who is cancelled meanwhile sees its end first.

    Raises:
        CancelledError: whatever came of the work.
    """
    done = asyncio.get_running_loop().run_in_executor(None, work)
    cancelled: asyncio.CancelledError | None = None
    while not done.done():
        try:
            await asyncio.wait([done])
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        done.exception()  # seen, so that asyncio does not complain
        raise cancelled
    done.result()


def file_digest(path: Path) -> str:
    """sha256 of a file's bytes, read in pieces."""
    total = sha256()
    with path.open("rb") as data:
        while piece := data.read(1 << 20):
            total.update(piece)
    return "sha256:" + total.hexdigest()
