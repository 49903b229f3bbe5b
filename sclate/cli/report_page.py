"""`sclate report`: the summary of a run again, and its page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from pydantic import ValidationError

from sclate.cli.console import out
from sclate.cli.report import print_summary
from sclate.config import ConfigurationError
from sclate.errors import PrerequisiteError
from sclate.progress import plain
from sclate.report import NoRunError, write_report
from sclate.run import RunSummary


def report(
    folders: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Run folders.")],
    out_file: Annotated[
        Path | None,
        typer.Option("--out", help="Where the page goes; default: report.html in the run's folder."),
    ] = None,
) -> None:
    """Write the page of a run and print its summary; also of a run that broke off."""
    if out_file is not None and len(folders) > 1:
        raise ConfigurationError(
            "--out names one file and there are several runs",
            "each run has a page of its own",
            "leave --out away",
        )
    for folder in folders:
        report_one(folder, out_file)


def report_one(folder: Path, out_file: Path | None) -> None:
    """The page and the summary of one run.

    Raises:
        PrerequisiteError: nobody ran there, its result is damaged, or the page cannot be written.
    """
    summary = _summary(folder)
    try:
        page = write_report(folder, out_file)
    except NoRunError as error:
        raise PrerequisiteError(
            f"{folder} holds no finished run and none that broke off",
            str(error),
            "name a folder that `sclate run` made",
        ) from None
    except OSError as error:
        raise PrerequisiteError(
            f"the page about {folder} cannot be written", str(error), "name a writable place with --out"
        ) from None
    if summary is not None:
        print_summary(summary, folder)
    else:
        out.print(plain(f"{folder} broke off: it has no result.json"), soft_wrap=True)
    say_where(page)


def say_where(page: Path) -> None:
    out.print(plain(f"report: {page}"), soft_wrap=True)


def _summary(folder: Path) -> RunSummary | None:
    """What the run came to, or None where it did not come to its end."""
    path = folder / "result.json"
    try:
        return RunSummary.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        return None
    except OSError as error:
        raise PrerequisiteError(
            f"{folder} cannot be read", str(error), "name a folder that `sclate run` made"
        ) from None
    except ValidationError as error:
        raise PrerequisiteError(
            f"{path} is damaged", str(error.errors()[0]["msg"]), "delete it: then the lives are reported"
        ) from None
