"""`sclate run`."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import structlog
import typer
from docker.errors import ImageNotFound

from sclate import config as configuration
from sclate import logs, registry
from sclate.cli import toml
from sclate.cli.console import err, out
from sclate.cli.report import print_summary
from sclate.cli.report_page import say_where
from sclate.config import RunConfig
from sclate.errors import ExitCode, PrerequisiteError
from sclate.gateway import provider_key
from sclate.progress import Quiet, local_time, make_progress, plain
from sclate.report import write_report
from sclate.run import Run, RunSummary
from sclate.sandbox.build import ensure_all, ensure_harness
from sclate.sandbox.engine import docker_client
from sclate_adapters.benchmark import ScenarioContext
from sclate_adapters.events import PlannedEvent
from sclate_adapters.records import LifeKey
from sclate_adapters.sources import SessionStartSource


def run(
    file: Annotated[Path | None, typer.Argument(help="A TOML file with the settings below.")] = None,
    benchmark: Annotated[str | None, typer.Option(help="Name, or package.module:attribute.")] = None,
    data: Annotated[Path | None, typer.Option(help="The benchmark's data folder.")] = None,
    agent: Annotated[str | None, typer.Option(help="harness+memory, e.g. reference+native.")] = None,
    model: Annotated[str | None, typer.Option(help="A profile of the file, or a keyless model.")] = None,
    limit: Annotated[int | None, typer.Option(help="How many of the benchmark's units.")] = None,
    split: Annotated[str | None, typer.Option(help="Which part of the benchmark.")] = None,
    scenarios: Annotated[str | None, typer.Option(help="Glob over scenario ids.")] = None,
    seed: Annotated[int | None, typer.Option(help="All that is random comes from it.")] = None,
    samples: Annotated[int | None, typer.Option(help="Lives per scenario.")] = None,
    sandbox: Annotated[str | None, typer.Option(help="docker")] = None,
    out_folder: Annotated[Path | None, typer.Option("--out", help="Run folder; must not exist.")] = None,
    overrides: Annotated[list[str] | None, typer.Option("--set", help="a.b=value, as in TOML.")] = None,
    print_config: Annotated[
        bool, typer.Option("--print-config", help="Show each value and where it came from.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the timeline, start nothing.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress, no summary.")] = False,
    log_level: Annotated[logs.Level, typer.Option(help="What goes into run.log.")] = "info",
) -> int:
    """Live a benchmark with an agent."""
    flags: dict[str, Any] = {
        "benchmark.name": benchmark,
        "benchmark.data": data,
        "benchmark.limit": limit,
        "benchmark.split": split,
        "benchmark.scenarios": scenarios,
        "model": model,
        "seed": seed,
        "samples": samples,
        "sandbox.backend": sandbox,
        "out": out_folder,
    }
    if agent is not None:
        harness, plus, memory = agent.partition("+")
        flags["agent.name"] = harness
        flags["memory.name"] = memory if plus else "none"
    given = {key: value for key, value in flags.items() if value is not None}
    config, origins = configuration.load(file, os.environ, given, overrides or [])
    if print_config:
        for key, value, origin in configuration.provenance(config, origins):
            out.print(plain(logs.redact(f"{key} = {value!r}  # {origin}")), soft_wrap=True)
        return ExitCode.OK
    if dry_run:
        planned = Run(config, Quiet())
        check(planned)
        print_timeline(planned)
        return ExitCode.OK
    progress = make_progress(out, quiet)
    try:
        prepared = Run(config, progress)
        check(prepared)
        folder = make_folder(config)
        try:
            ensure_all(progress.note)
            check_images(prepared)
            program = ensure_harness(prepared.agent, progress.note)
            remarks = prepared.agent.remarks(program) if program is not None else ()
        except BaseException:
            shutil.rmtree(folder)  # nothing was lived in it
            raise
        for remark in remarks:
            err(f"warning: {remark}")
        try:
            summary = carry_out(prepared, folder, log_level, remarks)
        except KeyboardInterrupt:
            progress.close()
            err(f"interrupted: {folder} has what was lived by then; sclate report {folder} shows it")
            return ExitCode.INTERRUPTED
        except BaseException as error:
            error.log_path = folder / "run.log"  # type: ignore[attr-defined]
            raise
    finally:
        progress.close()
    page = make_page(folder)
    if not quiet:
        print_summary(summary, folder)
        if page is not None:
            say_where(page)
    if prepared.interrupted is not None:
        return ExitCode.INTERRUPTED
    return ExitCode.OK if summary.ok else ExitCode.FAILED


def check(prepared: Run) -> None:
    """What can be known to be wrong before anything is made.

    Raises:
        PrerequisiteError: the benchmark's data, the choice of scenarios, the model or its key, a plug-in.
    """
    scenarios = prepared.scenarios()
    if not scenarios:
        settings = prepared.config.benchmark
        raise PrerequisiteError(
            f"no scenario of {settings.name} matches {settings.scenarios!r}",
            "a run without a life would look like one that went well",
            f"sclate run --benchmark {settings.name} --dry-run shows their ids",
        )
    profile = prepared.profile
    if profile.backend is not None:
        registry.make_model(profile.backend, profile.options)
    else:
        provider_key(profile)
    for scenario in scenarios:
        prepared.rehearse(scenario)


def check_images(prepared: Run) -> None:
    """Raises PrerequisiteError: an image that the run or its benchmark names is not there."""
    asked = prepared.config.sandbox.image
    wanted = [asked or prepared.benchmark.environment(s).image for s in prepared.scenarios()]
    images = {image for image in wanted if image is not None}
    if not images:
        return
    client = docker_client()
    try:
        for image in images:
            client.images.get(image)
    except ImageNotFound:
        whose = "sandbox.image names it" if asked else f"{prepared.config.benchmark.name} asks for it"
        raise PrerequisiteError(
            f"image {image} is missing",
            f"{whose}, and every sandbox is made from it",
            f"docker pull {image}" + (", or leave sandbox.image out" if asked else ""),
        ) from None
    finally:
        client.close()


def make_folder(config: RunConfig) -> Path:
    """The run's folder, made now, never one that exists."""
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    name = f"{config.benchmark.name}-{config.agent.name}+{config.memory.name}-{stamp}".replace(":", "_")
    folder = config.out or Path("runs") / name
    try:
        folder.mkdir(parents=True)
        settings = config.model_dump(mode="json", exclude={"out"})
        (folder / "config.toml").write_text(logs.redact(toml.dumps(settings)))
    except FileExistsError:
        raise PrerequisiteError(
            f"{folder} exists", "a run folder is never written over", "name another with --out"
        ) from None
    except OSError as error:
        raise PrerequisiteError(
            f"{folder} cannot be written", str(error), "name a writable place with --out"
        ) from None
    return folder


def carry_out(prepared: Run, folder: Path, log_level: logs.Level, remarks: Sequence[str]) -> RunSummary:
    """Run it; the first interrupt ends it at a safe point, the second at once."""
    with logs.open_log(folder / "run.log", log_level):
        for remark in remarks:
            structlog.get_logger().warning(remark)

        async def main() -> RunSummary:
            task = asyncio.current_task()
            loop = asyncio.get_running_loop()

            def interrupt() -> None:
                if prepared.interrupted is None:
                    prepared.progress.note("stopping at the next session boundary; once more stops now")
                    prepared.interrupt("interrupted")
                elif task is not None:
                    task.cancel()

            for sig in (signal.SIGINT, signal.SIGTERM):
                loop.add_signal_handler(sig, interrupt)
            loop.add_signal_handler(signal.SIGUSR1, dump_tasks, folder / "tasks.txt")
            return await prepared.execute(folder)

        try:
            return asyncio.run(main())
        except asyncio.CancelledError:
            raise KeyboardInterrupt from None
        finally:
            logs.silence()


def make_page(folder: Path) -> Path | None:
    """The run's page; where it fails, that is said and the run stays what it is."""
    try:
        return write_report(folder)
    except Exception as error:
        with logs.open_log(folder / "run.log"):
            structlog.get_logger().exception("the page was not written")
        logs.silence()
        err(f"the page was not written: {type(error).__name__}: {logs.redact(str(error))[:300]}")
        return None


def dump_tasks(path: Path) -> None:
    """Where every task stands, for a run that seems stuck (`kill -USR1 PID`)."""
    with path.open("a") as out:
        for task in asyncio.all_tasks():
            task.print_stack(file=out)


def print_timeline(prepared: Run) -> None:
    """What is known of every life's timeline beforehand."""
    for scenario in prepared.scenarios():
        out.print(plain(f"scenario {scenario.id}: {scenario.title}"), soft_wrap=True)
        key = LifeKey(scenario=scenario.id, arm=prepared.arm)
        context = ScenarioContext(life=key, scenario=scenario, seed=prepared.config.seed)
        sources = list(prepared.benchmark.event_sources(context))
        manifest = prepared.benchmark.source_manifest(context)
        if manifest is not None:
            sources.append(SessionStartSource(manifest.sessions))
        events = [event for source in sources for event in source.planned()]
        for event in sorted(events, key=_order):
            when = local_time(event.due_ns, scenario.zone)
            line = f"  {when}  {event.phase.name.lower():<8} {event.kind:<16} {event.source}  {event.label}"
            out.print(plain(line), soft_wrap=True)


def _order(event: PlannedEvent) -> tuple[int, int, str]:
    return event.due_ns, int(event.phase), event.source
