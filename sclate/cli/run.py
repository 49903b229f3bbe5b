"""`sclate run`."""

from __future__ import annotations

import asyncio
import os
import signal
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from sclate import config as configuration
from sclate import logs
from sclate.cli.console import out
from sclate.cli.report import print_summary
from sclate.config import RunConfig
from sclate.errors import ExitCode, PrerequisiteError
from sclate.progress import local_time, make_progress, plain
from sclate.run import Run, RunSummary
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
    seed: Annotated[int | None, typer.Option()] = None,
    samples: Annotated[int | None, typer.Option(help="Lives per scenario.")] = None,
    sandbox: Annotated[str | None, typer.Option(help="docker")] = None,
    out_folder: Annotated[Path | None, typer.Option("--out", help="Run folder; must not exist.")] = None,
    overrides: Annotated[list[str] | None, typer.Option("--set", help="a.b=value, as in TOML.")] = None,
    print_config: Annotated[bool, typer.Option(help="Show each value and where it came from.")] = False,
    dry_run: Annotated[bool, typer.Option(help="Print the timeline, start nothing.")] = False,
    quiet: Annotated[bool, typer.Option(help="No progress.")] = False,
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
            out.print(plain(f"{key} = {value!r}  # {origin}"), soft_wrap=True)
        return ExitCode.OK
    progress = make_progress(out, quiet)
    try:
        prepared = Run(config, progress)
        if dry_run:
            print_timeline(prepared)
            return ExitCode.OK
        prepared.scenarios()  # data is looked at before anything is made
        folder = make_folder(config)
        try:
            summary = carry_out(prepared, folder)
        except BaseException as error:
            error.log_path = folder / "run.log"  # type: ignore[attr-defined]
            raise
    finally:
        progress.close()
    if not quiet:
        print_summary(summary, folder)
    if prepared.interrupted is not None:
        return ExitCode.INTERRUPTED
    return ExitCode.OK if summary.ok else ExitCode.FAILED


def make_folder(config: RunConfig) -> Path:
    """The run's folder, made now, never one that exists."""
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    name = f"{config.benchmark.name}-{config.agent.name}+{config.memory.name}-{stamp}".replace(":", "_")
    folder = config.out or Path("runs") / name
    try:
        folder.mkdir(parents=True)
        (folder / "config.toml").write_text(as_toml(config))
    except FileExistsError:
        raise PrerequisiteError(
            f"{folder} exists", "a run folder is never written over", "name another with --out"
        ) from None
    except OSError as error:
        raise PrerequisiteError(
            f"{folder} cannot be written", str(error), "name a writable place with --out"
        ) from None
    return folder


def as_toml(config: RunConfig) -> str:
    """The whole configuration as a file that `sclate run` reads again."""
    import json

    lines: list[str] = []

    def walk(prefix: str, table: dict[str, Any]) -> None:
        plain_values = {k: v for k, v in table.items() if not isinstance(v, dict) and v is not None}
        if prefix and plain_values:
            lines.append(f"[{prefix}]")
        lines.extend(f"{k} = {json.dumps(v)}" for k, v in plain_values.items())
        for key, value in table.items():
            if isinstance(value, dict):
                walk(f"{prefix}.{key}" if prefix else key, value)

    walk("", config.model_dump(mode="json", exclude={"out"}))
    return "\n".join(lines) + "\n"


def carry_out(prepared: Run, folder: Path) -> RunSummary:
    """Run it; the first interrupt ends it at a safe point, the second at once."""
    with logs.open_log(folder / "run.log"):

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
            return await prepared.execute(folder)

        try:
            return asyncio.run(main())
        except asyncio.CancelledError:
            raise KeyboardInterrupt from None
        finally:
            logs.silence()


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
