"""`sclate`: the command line. One module a group of commands; errors become messages here and only here."""

from __future__ import annotations

import errno
import signal
import sys
import tempfile
import traceback
from importlib.metadata import version
from pathlib import Path
from typing import Annotated

import structlog
import typer
from typer.exceptions import TyperException

from sclate import logs
from sclate.cli import models, plugins, report_page, run, sandbox
from sclate.cli.console import err
from sclate.config import ConfigurationError
from sclate.errors import ExitCode, PrerequisiteError

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    help="Evaluate and train continual-learning agents on a hybrid simulated clock.",
)
app.command("run")(run.run)
app.command("list")(plugins.list_plugins)
app.command("report")(report_page.report)
app.command("clean")(sandbox.clean)
app.add_typer(sandbox.app, name="sandbox")
app.add_typer(models.app, name="model")


@app.callback(invoke_without_command=True)
def _root(
    show_version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    if show_version:
        typer.echo(f"sclate {version('sclate')}")
        raise typer.Exit


def main() -> None:
    """Carry out the command line. Exit codes: `sclate.errors.ExitCode`, documented in docs/cli.md."""
    logs.silence()
    try:
        for sig in (signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(sig) is not signal.SIG_IGN:  # as nohup leaves it
                signal.signal(sig, signal.default_int_handler)  # an end in order, not a death
        code = app(standalone_mode=False, prog_name="sclate")
        sys.exit(int(code or 0))
    except PrerequisiteError as error:
        err(f"error: {error}")
        sys.exit(ExitCode.USAGE if isinstance(error, ConfigurationError) else ExitCode.PREREQUISITE)
    except TyperException as error:
        sys.exit(_misuse(error))
    except (typer.Abort, KeyboardInterrupt):
        err("interrupted")
        sys.exit(ExitCode.INTERRUPTED)
    except Exception as error:
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
            err(f"error: the disk is full\n  why: {error}\n  fix: free some space, then run again")
            sys.exit(ExitCode.PREREQUISITE)
        sys.exit(_bug(error))


def _misuse(error: TyperException) -> int:
    """A command line that cannot be parsed; a group without a command shows its help."""
    text = error.format_message()
    if text.startswith("Usage: "):
        err(text)
    else:
        context = getattr(error, "ctx", None)
        err(f"error: {text}\n  fix: {context.command_path if context else 'sclate'} --help")
    return ExitCode.USAGE


def _bug(error: Exception) -> int:
    """A traceback belongs into a file, not on the screen: the run's log, else one of its own."""
    text = logs.redact("".join(traceback.format_exception(error)))
    path: Path | None = getattr(error, "log_path", None)
    if path is not None:
        with logs.open_log(path):
            structlog.get_logger().error("bug", exception=text)
    else:
        with tempfile.NamedTemporaryFile("w", prefix="sclate-", suffix=".log", delete=False) as file:
            file.write(text)
        path = Path(file.name)
    said = logs.redact(str(error))[:300]
    err(f"error: a bug in sclate: {type(error).__name__}: {said}\n  the traceback is in {path}")
    return ExitCode.BUG
