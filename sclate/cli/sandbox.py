"""`sclate sandbox exec` and `sclate clean`."""

from __future__ import annotations

import asyncio
import sys
import time
from datetime import datetime
from typing import Annotated

import typer

from sclate.cli.console import err, out
from sclate.config import ConfigurationError
from sclate.errors import ExitCode
from sclate.progress import plain
from sclate.run import owner_labels
from sclate.sandbox.build import ensure_all
from sclate.sandbox.docker import DockerSandbox
from sclate.sandbox.engine import docker_client
from sclate.sandbox.protocol import SandboxSpec
from sclate.sandbox.reaper import reap

app = typer.Typer(no_args_is_help=True, help="Sandboxes by hand.")


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
    built = ensure_all(err)
    client = docker_client()

    async def main() -> int:
        spec = SandboxSpec(built.image, built.runtime, "agent", labels=owner_labels())
        sandbox = DockerSandbox(spec, client)
        try:
            sandbox.set_offset(instant_ns - time.time_ns())
            await sandbox.start()
            sandbox.set_offset(instant_ns - time.time_ns())
            result = await sandbox.run(
                command, user="agent", cwd=spec.workdir, timeout_s=timeout_s, max_output=64 << 20
            )
        finally:
            await sandbox.close()
        sys.stdout.buffer.write(result.stdout)
        sys.stdout.buffer.flush()
        sys.stderr.buffer.write(result.stderr)
        sys.stderr.buffer.flush()
        if result.timed_out:
            err(f"killed after {timeout_s:g} s")
            return ExitCode.FAILED
        return result.rc if result.rc is not None and result.rc >= 0 else ExitCode.FAILED

    try:
        return asyncio.run(main())
    finally:
        client.close()


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
    """Remove sandboxes whose owner is dead."""
    client = docker_client()
    try:
        for name in reap(client, dry_run=dry_run):
            out.print(plain(f"{'would remove' if dry_run else 'removed'} {name}"))
    finally:
        client.close()
