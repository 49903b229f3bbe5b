"""`sclate sandbox exec` and `sclate clean`."""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import queue
import signal
import threading
import time
from datetime import datetime
from typing import Annotated, Any, Literal

import typer

from sclate.cli.console import err, out
from sclate.config import ConfigurationError
from sclate.errors import ExitCode, LifeFailure
from sclate.progress import plain
from sclate.run import owner_labels
from sclate.sandbox.build import ensure_all
from sclate.sandbox.docker import DockerSandbox
from sclate.sandbox.engine import docker_client
from sclate.sandbox.protocol import CannotStart, SandboxSpec
from sclate.sandbox.reaper import reap

app = typer.Typer(no_args_is_help=True, help="Sandboxes by hand.")

NOT_FOUND, NO_PROGRAM, NO_READER = 127, 126, 128 + signal.SIGPIPE
"""What shells exit with when a command is not there, is no program, or writes to a pipe without a reader."""


@app.callback()
def _group() -> None:
    """Sandboxes by hand."""


@app.command("exec", context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
def exec_(
    command: Annotated[list[str], typer.Argument(help="The command and its arguments.")],
    at: Annotated[str, typer.Option(help="Simulated instant, ISO 8601 with an offset.")],
    timeout_s: Annotated[float, typer.Option(help="Real seconds.")] = 600.0,
) -> int:
    """Run a command in a fresh sandbox at a simulated instant."""
    instant_ns = parse_instant(at)
    if not 0 < timeout_s < math.inf:
        raise ConfigurationError(
            f"--timeout-s {timeout_s:g} is no time limit", "it must be more than 0", "--timeout-s 600"
        )
    built = ensure_all(err)
    client = docker_client()

    async def main() -> int:
        _cancelled_by_signals()
        outlet = Outlet()
        spec = SandboxSpec(built.image, built.runtime, "agent", labels=owner_labels())
        sandbox = DockerSandbox(spec, client)
        try:
            sandbox.set_offset(instant_ns - time.time_ns())
            await sandbox.start()
            sandbox.set_offset(instant_ns - time.time_ns())
            code = await _carry_out(sandbox, command, outlet, timeout_s)
        except CannotStart as error:
            missing = f"{command[0]}: not found in the sandbox"
            err(f"error: {missing if error.missing else error.message}")
            code = NOT_FOUND if error.missing else NO_PROGRAM
        except LifeFailure as error:
            err(f"error: {error.message}")
            code = ExitCode.FAILED
        finally:
            await sandbox.close()
        return NO_READER if await outlet.end() else code

    try:
        return asyncio.run(main())
    except (asyncio.CancelledError, KeyboardInterrupt):
        err("interrupted")
        return ExitCode.INTERRUPTED
    finally:
        client.close()


async def _carry_out(sandbox: DockerSandbox, command: list[str], outlet: Outlet, timeout_s: float) -> int:
    """Until the command ends, overruns, or nobody takes its output; what it left running is killed."""
    process = await sandbox.spawn(
        "command", command, user="agent", cwd=sandbox.spec.workdir, on_data=outlet, stdin=False
    )
    dead = asyncio.ensure_future(process.wait())
    either: set[asyncio.Future[Any]] = {dead, outlet.closed}
    await asyncio.wait(either, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
    overran = not dead.done() and not outlet.closed.done()
    await sandbox.kill_user("agent")
    rc = await dead
    await process.drained()
    if process.gone:
        err("error: the sandbox went away")
    elif overran:
        err(f"killed after {timeout_s:g} s")
    elif process.dropped:
        err(f"error: {process.dropped} bytes of output are lost: there was too much of it")
    else:
        return rc if rc >= 0 else ExitCode.FAILED
    return ExitCode.FAILED


def _cancelled_by_signals() -> None:
    """An interrupt, a termination and a hang-up cancel the task that calls this, so that it cleans up."""
    task = asyncio.current_task()
    assert task is not None
    for sig in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(sig) is not signal.SIG_IGN:
            asyncio.get_running_loop().add_signal_handler(sig, task.cancel)


class Outlet:
    """Passes output on as it comes, in a thread of its own: a reader that takes his time, as a pager does, holds
    up neither the time limit nor an interrupt."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._queue: queue.SimpleQueue[tuple[int, bytes] | None] = queue.SimpleQueue()
        self._error: OSError | None = None
        self.closed: asyncio.Future[None] = self._loop.create_future()
        """Done when nothing more will be written: all was, or it could not be."""
        threading.Thread(target=self._write, daemon=True).start()

    def __call__(self, stream: Literal["stdout", "stderr"], data: bytes) -> None:
        self._queue.put((1 if stream == "stdout" else 2, data))

    async def end(self) -> bool:
        """Wait until all is written; whether its reader went away before. Raises OSError, as for a full disk."""
        self._queue.put(None)
        await self.closed
        if self._error is not None and not isinstance(self._error, BrokenPipeError):
            raise self._error
        return self._error is not None

    def _write(self) -> None:
        try:
            while (item := self._queue.get()) is not None:
                fd, data = item
                rest = memoryview(data)
                while rest:
                    rest = rest[os.write(fd, rest) :]
        except OSError as error:
            self._error = error
        with contextlib.suppress(RuntimeError):  # the loop has ended: nobody asks
            self._loop.call_soon_threadsafe(self.closed.set_result, None)


def parse_instant(text: str) -> int:
    """ISO 8601 with an offset -> ns since the epoch. Raises `ConfigurationError`."""
    try:
        instant = datetime.fromisoformat(text)
    except ValueError:
        instant = None
    if instant is None or instant.tzinfo is None:
        raise ConfigurationError(
            f"{text!r} is no instant", "it needs a date, a time and an offset", "--at 2031-02-28T09:00+08:00"
        )
    return round(instant.timestamp() * 1e9)


def clean(
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be removed.")] = False,
) -> None:
    """Remove sandboxes whose owner is dead, and folders of such sandboxes."""
    client = docker_client()
    try:
        for name in reap(client, dry_run=dry_run):
            out.print(plain(f"{'would remove' if dry_run else 'removed'} {name}"))
    finally:
        client.close()
