"""The page: what was read, arranged for the template. Nothing in it comes from a network."""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from importlib import resources
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from sclate.report import charts
from sclate.report.figures import Family, families, headline
from sclate.report.inside import AGREES, UNSEEN, Inside, inside
from sclate.report.reading import Json, LifeFiles, RunFiles, SessionFiles, read_run
from sclate.report.rounds import VERDICTS, Round, rounds
from sclate.report.tallies import TOKENS, TokenRow, Trouble, tokens_of, troubles
from sclate.report.text import Passage, choose_limit, duration, instant, number, one_line, shown, zone_of
from sclate.report.times import Span, Stretch, real_by_kind, spans, stretches
from sclate_adapters.records import Snapshot

TEXT_BUDGET = 5_500_000
"""Bytes of the page for the texts of all rounds."""
MOST_UNFOLDED = 12
"""Rows of the table of clocks that are shown at once."""
CHARGES = {
    "agent": "the agent at work, time flows",
    "model": "model calls while time stands still",
    "hooks": "the benchmark's hooks and its grading",
    "sessions": "start, restoring and saving of sessions",
    "engine": "scheduling, recording, copies for graders",
}
MOTIONS = {
    "flow": "flow: simulated time runs with real time",
    "frozen": "frozen: it stands still while something works that a deployed agent would not see",
    "idle": "idle: the engine's own steps",
    "jump": "jump: an idle gap, passed at once",
}


def write_report(folder: Path, out: Path | None = None) -> Path:
    """Write the page about a run, `report.html` in its folder unless `out` says where; gives its path.

    Raises:
        NoRunError: nobody ran in the folder.
        OSError: it cannot be read, or the page not be written.
    """
    page = render(read_run(folder))
    path = out or folder / "report.html"
    partial = path.with_name(path.name + ".partial")
    partial.write_text(page, encoding="utf-8")
    partial.rename(path)
    return path


def render(run: RunFiles) -> str:
    """The page as text."""
    lives = [LifeView(run, life, i) for i, life in enumerate(run.lives, 1)]
    limit = choose_limit(
        (p for life in lives for one in life.all_rounds() for p in one.passages()), TEXT_BUDGET
    )
    environment = Environment(
        loader=PackageLoader("sclate.report", "assets"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
    )
    environment.filters |= {
        "shown": lambda value: shown(str(value)),
        "number": number,
        "duration": duration,
        "line": one_line,
        "short": _short,
    }
    script = _asset("page.js")
    return environment.get_template("page.html.j2").render(
        run=run,
        head=_head(run),
        lives=lives,
        limit=limit,
        style=Markup(_asset("page.css")),
        script=Markup(script),
        script_hash=base64.b64encode(sha256(script.encode()).digest()).decode(),
        token_kinds=TOKENS,
        verdicts=VERDICTS,
        charges=CHARGES,
        motions=MOTIONS,
        config=Passage(run.config_text, "config.toml"),
    )


@dataclass
class SessionView:
    """A row of the sessions' table, and the rounds of the session."""

    id: str
    anchor: str
    value: str
    n: int
    files: SessionFiles
    span: Span | None
    start: str
    real_s: float | None
    rounds: list[Round]
    tokens: TokenRow | None
    inside: Inside

    @property
    def wake(self) -> bool:
        return self.files.record.wake if self.files.record else bool(self.span and self.span.wake)

    @property
    def verdicts(self) -> dict[str, int]:
        found = Counter(one.verdict for one in self.rounds)
        return {word: found[word] for word in VERDICTS if found[word]}

    @property
    def digests(self) -> list[tuple[str, str, bool]]:
        """What the session left: name, digest, and whether the session changed it."""
        record = self.files.record
        if record is None:
            return []
        return [
            (name, getattr(record.after, name), getattr(record.after, name) != getattr(record.before, name))
            for name in Snapshot.model_fields
        ]


class LifeView:
    """One life as the template sees it."""

    def __init__(self, run: RunFiles, life: LifeFiles, n: int) -> None:
        self.n = n
        self.life = life
        self.result: Json = life.result or {}
        self.zone: ZoneInfo = zone_of(life.zone)
        self.key: Json = life.about.get("key", {})
        self.title = str(life.about.get("scenario", {}).get("title", ""))
        self.stretches: list[Stretch] = stretches(life.trace, life.last)
        self.spans = spans(life.trace, life.last)
        self.sessions = self._sessions(many=len(run.lives) > 1)
        self.troubles: list[Trouble] = troubles(life)
        self.tokens = tokens_of(call for files in life.sessions for call in files.calls)
        figures = self.result.get("figures", {})
        self.headline: dict[str, float | None] = headline(figures)
        self.families: list[Family] = families(figures)
        self.real_by_kind = real_by_kind(self.stretches)
        self.real_s_by: dict[str, float] = self.result.get("real_s_by", {})

    def _sessions(self, many: bool) -> list[SessionView]:
        found = []
        first = next(iter(self.life.trace), None)
        for i, (files, many_rounds) in enumerate(zip(self.life.sessions, rounds(self.life), strict=True)):
            span = self.spans[i] if i < len(self.spans) else None
            record = files.record
            start_ns = record.started_sim_ns if record else span.from_ns if span else None
            real_s = record.real_ns / 1e9 if record else span.to_s - span.from_s if span else None
            found.append(
                SessionView(
                    id=span.id if span else files.id,
                    anchor=f"s{self.n}-{i + 1}",
                    value=f"{self.n}:{files.id}" if many else files.id,
                    n=i + 1,
                    files=files,
                    span=span,
                    start=instant(start_ns, self.zone) if start_ns is not None else "unknown",
                    real_s=real_s,
                    rounds=many_rounds,
                    tokens=tokens_of(files.calls)[-1] if files.calls else None,
                    inside=inside(files, span, first["real_ns"] if first else None, self.zone),
                )
            )
        return found

    @property
    def inside(self) -> dict[str, int]:
        """How many sessions' clocks were seen to agree, to differ, to leak, or not seen."""
        return dict(Counter(session.inside.word for session in self.sessions))

    @property
    def inside_seen(self) -> bool:
        """Whether any clock was seen."""
        return bool(self.inside.keys() - {UNSEEN})

    @property
    def inside_folded(self) -> bool:
        """Whether the table of clocks is long, and has nothing that needs to be looked at."""
        return len(self.sessions) > MOST_UNFOLDED and not self.inside.keys() - {AGREES, UNSEEN}

    def all_rounds(self) -> Iterator[Round]:
        for session in self.sessions:
            yield from session.rounds

    @property
    def facts(self) -> list[tuple[str, str]]:
        """What the engine counted; where the life broke off, what its files have."""
        wakes = sum(s.wake for s in self.sessions)
        found = Counter(one.verdict for one in self.all_rounds())
        judged = sum(found[word] for word in VERDICTS[:-1])
        sessions = f"{len(self.sessions) - wakes:,}" + (f" + {wakes:,} wake" if wakes else "")
        calls = sum(len(s.files.calls) for s in self.sessions)
        facts = [
            ("rounds judged", f"{judged:,}"),
            ("passed", f"{found['pass']:,}"),
            ("missing", f"{found['missing']:,}"),
            ("sessions", sessions),
            ("turns", f"{sum(len(s.files.turns) for s in self.sessions):,}"),
            ("model calls", f"{calls:,}"),
            ("simulated time", duration(self.simulated_s)),
            ("real time", duration(self.real_s)),
        ]
        if self.compression:
            facts.append(("compression", f"{self.compression:,.0f}×"))
        return facts

    @property
    def costs(self) -> list[tuple[str, str]]:
        """Smaller facts: lateness, what the substrate itself took."""
        found = []
        late = self.result.get("lateness_p99_ms")
        if late is not None:
            found.append(("lateness of dispatches, p99", f"{late:.1f} ms"))
        if self.real_s_by and self.sessions:
            found.append(
                (
                    "the substrate's own, a session",
                    duration(self.real_s_by.get("sessions", 0) / len(self.sessions)),
                )
            )
        turns = sum(len(s.files.turns) for s in self.sessions)
        if self.real_s_by and turns:
            found.append(("the substrate's own, a turn", duration(self.real_s_by.get("engine", 0) / turns)))
        return found

    @property
    def real_s(self) -> float | None:
        if "real_s" in self.result:
            return float(self.result["real_s"])
        return self.stretches[-1].to_s if self.stretches else None

    @property
    def simulated_s(self) -> float | None:
        if "simulated_s" in self.result:
            return float(self.result["simulated_s"])
        return (self.stretches[-1].to_ns - self.stretches[0].from_ns) / 1e9 if self.stretches else None

    @property
    def compression(self) -> float | None:
        return self.simulated_s / self.real_s if self.simulated_s and self.real_s else None

    def chart(self, name: str) -> Markup:
        """By name, for the template."""
        if name == "elapsed":
            return charts.elapsed(self.stretches, self.spans, self.zone)
        if name == "share":
            return charts.share_bar(self.real_s_by)
        if name == "sessions":
            return charts.session_bars(self.stretches, self.spans)
        return charts.calendar(self.spans, [s.rounds for s in self.sessions], self.zone)

    def family_chart(self, family: Family) -> Markup:
        return charts.family_chart(family)


def _head(run: RunFiles) -> dict[str, Any]:
    """What the run was, from its lock, else from its configuration."""
    result, lock, config = run.result or {}, run.lock, run.config
    agent, memory, model = (
        _table(lock, name) or _table(config, name) for name in ("agent", "memory", "model")
    )
    benchmark = _table(lock, "benchmark") or _table(config, "benchmark")
    arm = result.get("arm") or f"{agent.get('name', '?')}+{memory.get('name', '?')}"
    name = str(result.get("model") or model.get("name") or config.get("model") or "?")
    versions = {
        "sandbox": _table(config, "sandbox").get("backend"),
        "seed": lock.get("seed", config.get("seed")),
        "latency": lock.get("latency", _table(config, "clock").get("latency")),
        "benchmark version": benchmark.get("version"),
        "licence of its data": benchmark.get("licence"),
        "agent version": agent.get("version"),
        "memory": " ".join(str(v) if k == "name" else f"{k}={v}" for k, v in memory.items()),
        "model endpoint": model.get("base_url"),
        "model": model.get("model"),
        "sclate": lock.get("sclate"),
        "contract": lock.get("contract"),
        "python": lock.get("python"),
        "image": lock.get("image"),
        "runtime": lock.get("runtime"),
    }
    return {
        "benchmark": str(result.get("benchmark") or benchmark.get("name") or "?"),
        "citation": str(benchmark.get("citation") or ""),
        "arm": str(arm),
        "model": name,
        "keyless": bool(result["keyless"] if "keyless" in result else model.get("backend")),
        "interrupted": any((life.result or {}).get("interrupted") for life in run.lives),
        "versions": {key: str(value) for key, value in versions.items() if value not in (None, "")},
    }


def _table(values: Json, name: str) -> Json:
    found = values.get(name)
    return found if isinstance(found, dict) else {}


def _short(digest: str) -> str:
    """The first six characters of a digest."""
    return shown(digest.partition(":")[2][:6] or digest[:6])


def _asset(name: str) -> str:
    return resources.files("sclate.report").joinpath("assets", name).read_text(encoding="utf-8")
