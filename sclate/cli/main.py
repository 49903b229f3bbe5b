"""`sclate`: the command line. One module a group of commands; errors become messages here and only here."""

from __future__ import annotations

import sys
import tempfile
import traceback
from importlib.metadata import version
from pathlib import Path
from typing import Annotated

import typer
from typer.exceptions import TyperException

from sclate import logs
from sclate.cli import models, plugins, report, run, sandbox
from sclate.cli.console import err
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
app.command("report")(report.report)
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
    """Entry point. Exit codes: `sclate.errors.ExitCode`, documented in docs/cli.md."""
    logs.silence()
    try:
        code = app(standalone_mode=False)
        sys.exit(int(code or 0))
    except PrerequisiteError as error:
        err(f"error: {error.what}\n  why: {error.why}\n  fix: {error.fix}")
        sys.exit(ExitCode.PREREQUISITE)
    except TyperException as error:
        err(f"error: {error.format_message()}\n  fix: sclate --help")
        sys.exit(ExitCode.USAGE)
    except (typer.Abort, KeyboardInterrupt):
        err("interrupted")
        sys.exit(ExitCode.INTERRUPTED)
    except Exception as error:
        sys.exit(_bug(error))


def _bug(error: Exception) -> int:
    """A traceback belongs into a file, not on the screen."""
    text = logs.redact("".join(traceback.format_exception(error)))
    where = getattr(error, "log_path", None)
    if where is None:
        with tempfile.NamedTemporaryFile("w", prefix="sclate-", suffix=".log", delete=False) as out:
            out.write(text)
            where = out.name
    else:
        with Path(where).open("a") as out:
            out.write(text)
    err(f"error: a bug in sclate: {type(error).__name__}: {str(error)[:300]}\n  the traceback is in {where}")
    return ExitCode.BUG


if __name__ == "__main__":
    main()
