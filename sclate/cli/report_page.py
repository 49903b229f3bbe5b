"""`sclate report`: the summary of a run again, and its page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import orjson
import typer
from pydantic import ValidationError

from sclate.cli.console import out
from sclate.cli.report import life_lines, print_summary
from sclate.config import ConfigurationError
from sclate.errors import PrerequisiteError
from sclate.progress import plain
from sclate.report import NoRunError, write_report
from sclate.report.reading import LifeFiles, read_run
from sclate.run import LifeSummary, RunSummary


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
        if (folder / "config.toml").is_file():
            raise PrerequisiteError(
                f"the run of {folder} ended before a life began",
                "there is nothing to report",
                f"sclate run {folder / 'config.toml'} does it again",
            ) from None
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
        for line in broken_off(folder):
            out.print(plain(line), soft_wrap=True)
    say_where(page)


def broken_off(folder: Path) -> list[str]:
    """What a run came to that did not come to its end: lives that ended, and what is recorded of the last."""
    run = read_run(folder)
    lines = ["this run broke off: it was killed or interrupted before its end"]
    for life in run.lives:
        if life.result is None:
            lines += _unfinished(life)
            continue
        try:
            lines += life_lines(LifeSummary.model_validate_json(orjson.dumps(life.result)))
        except ValidationError:
            lines += _unfinished(life)
    return [*lines, f"run folder: {folder}"]


def _unfinished(life: LifeFiles) -> list[str]:
    closed = [one for one in life.sessions if one.record is not None]
    judged = [one for session in life.sessions for one in session.judgments]
    passed, missing = sum(j.passed is True for j in judged), sum(j.score is None for j in judged)
    turns = sum(len(session.turns) for session in life.sessions)
    ended = f"{len(closed)} of {len(life.sessions)} begun sessions ended"
    return [
        f"life {Path(life.path).name}, broken off",
        f"  judged {len(judged)}, passed {passed}, missing {missing} by then",
        f"  {ended}, {turns} turns",
    ]


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
