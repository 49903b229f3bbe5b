"""The charts. Colours are classes of the page's style sheet, so that light, print and legend agree."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import date, timedelta
from zoneinfo import ZoneInfo

from markupsafe import Markup

from sclate.report.figures import Family
from sclate.report.rounds import Round
from sclate.report.svg import WIDTH, line, rect, second_ticks, svg, tag, text, ticks
from sclate.report.text import duration, instant, local, number, shown
from sclate.report.times import MOTIONS, Span, Stretch, within

LEFT, RIGHT = 78, 12
INNER = WIDTH - LEFT - RIGHT
MOST_ROWS = 400
DAY_NS = 86_400_000_000_000


def elapsed(found: Sequence[Stretch], sessions: Sequence[Span], zone: ZoneInfo) -> Markup:
    """Simulated (upwards) against real time: what the clock did as a line, the sessions as bands."""
    end_s = max((one.to_s for one in found), default=0.0)
    first = min((one.from_ns for one in found), default=0)
    last = max((one.to_ns for one in found), default=0)
    if not end_s or last <= first:
        return Markup("")
    top, height, strip = 10.0, 300.0, 12.0
    bottom = top + height

    def x(s: float) -> float:
        return LEFT + INNER * s / end_s

    def y(ns: int) -> float:
        return bottom - height * (ns - first) / (last - first)

    parts = [
        rect(
            x(one.from_s),
            top,
            max(x(one.to_s) - x(one.from_s), 0.8),
            height,
            _band(one) + (" odd" if i % 2 else ""),
            _about(one, zone),
        )
        for i, one in enumerate(sessions)
    ]
    parts += _date_grid(first, last, y, zone)
    for at in second_ticks(end_s, 8):
        parts.append(line(x(at), bottom, x(at), bottom + strip + 8, "axis"))
        parts.append(text(x(at), bottom + strip + 22, duration(at) if at else "0", anchor="middle"))
    paths: dict[str, list[str]] = {kind: [] for kind in ("jump", *MOTIONS)}
    for one in found:
        paths[one.kind].append(
            f"M{x(one.from_s):.1f} {y(one.from_ns):.1f}L{x(one.to_s):.1f} {y(one.to_ns):.1f}"
        )
    parts += [tag("path", d="".join(paths[kind]), class_=f"line {kind}") for kind in paths if paths[kind]]
    parts += _strip(found, x, bottom + 4, strip)
    parts.append(text(LEFT + INNER, bottom + strip + 38, "real time", anchor="end"))
    label = f"{duration((last - first) / 1e9)} of simulated time in {duration(end_s)} of real time"
    return svg(bottom + strip + 44, label, *parts, class_="chart elapsed")


def _date_grid(first: int, last: int, y: Callable[[int], float], zone: ZoneInfo) -> list[Markup]:
    days = (last - first) / DAY_NS
    parts = []
    if days >= 2:
        step = next(n for n in (1, 2, 7, 14, 28, 91, 182, 364, 10**6) if days / n <= 8)
        day = local(first, zone).replace(hour=0, minute=0, second=0, microsecond=0) + timedelta(days=1)
        while (at := round(day.timestamp() * 1e9)) <= last:
            parts.append(line(LEFT, y(at), LEFT + INNER, y(at), "grid"))
            parts.append(text(LEFT - 6, y(at) + 4, day.strftime("%a %-d %b"), anchor="end"))
            day += timedelta(days=step)
    else:
        for at in (first, last):
            parts.append(text(LEFT - 6, y(at) + 4, local(at, zone).strftime("%-d %b %H:%M"), anchor="end"))
    return parts


def _strip(found: Sequence[Stretch], x: Callable[[float], float], top: float, height: float) -> list[Markup]:
    """What the clock did, as a strip of colour along real time: a flow of seconds is no slope to be seen."""
    return [
        tag(
            "path",
            d="".join(
                f"M{x(one.from_s):.2f} {top:.0f}H{x(one.to_s):.2f}V{top + height:.0f}H{x(one.from_s):.2f}Z"
                for one in found
                if one.kind == kind
            ),
            class_=f"fill {kind}",
        )
        for kind in MOTIONS
    ]


def _band(span: Span) -> str:
    return "band wake" if span.wake else "band"


def _about(span: Span, zone: ZoneInfo) -> str:
    kind = "wake session" if span.wake else "session"
    real = duration(span.to_s - span.from_s)
    return shown(f"{kind} {span.id}\n{instant(span.from_ns, zone)}, {real} of real time\n{span.title[:200]}")


def session_bars(found: Sequence[Stretch], sessions: Sequence[Span]) -> Markup:
    """Real seconds of each session by what simulated time did."""
    if not sessions:
        return Markup("")
    most = max(one.to_s - one.from_s for one in sessions) or 1.0
    top, height = 8.0, 110.0
    wide = INNER / len(sessions)
    parts = []
    for at in second_ticks(most, 4):
        y = top + height * (1 - at / most)
        parts += [
            line(LEFT, y, LEFT + INNER, y, "grid"),
            text(LEFT - 6, y + 4, duration(at) if at else "0", anchor="end"),
        ]
    every = max(1, round(len(sessions) / 30))
    for i, one in enumerate(sessions):
        sums = dict.fromkeys(MOTIONS, 0.0)
        for stretch in within(found, one.from_s, one.to_s):
            if stretch.kind in sums:
                sums[stretch.kind] += stretch.to_s - stretch.from_s
        said = ", ".join(f"{kind} {duration(s)}" for kind, s in sums.items() if s)
        y = top + height
        left, bar = LEFT + wide * (i + 0.14), wide * 0.72
        for kind, seconds in sums.items():
            tall = height * seconds / most
            y -= tall
            parts.append(rect(left, y, bar, tall, f"fill {kind}", shown(f"{one.id}: {said}")))
        if one.wake:
            parts.append(rect(left, top + height + 2, bar, 4, "fill wake", shown(one.id)))
        if i % every == 0:
            parts.append(text(left + bar / 2, top + height + 18, str(i + 1), anchor="middle"))
    return svg(top + height + 24, "Real time of each session", *parts)


def share_bar(shares: Mapping[str, float]) -> Markup:
    """Parts of a whole, side by side."""
    total = sum(shares.values())
    if not total:
        return Markup("")
    parts, x = [], 0.0
    for name, seconds in shares.items():
        wide = WIDTH * seconds / total
        parts.append(rect(x, 0, wide, 26, f"fill by-{name}", f"{name}: {duration(seconds)}"))
        if wide > 90:
            parts.append(text(x + 8, 17, f"{name} {seconds / total:.0%}", "label on"))
        x += wide
    return svg(26, "Where real time went", *parts, class_="chart share")


def calendar(sessions: Sequence[Span], rounds: Sequence[Sequence[Round]], zone: ZoneInfo) -> Markup:
    """The life in the scenario's own time: a row a day, broken where days are empty. Left the hours, with
    sessions as bands and turns as marks; right the day's turns in order, in the colour of their verdict."""
    rows: dict[date, list[Markup]] = {}
    turns: dict[date, list[Round]] = {}
    high, head, hours_wide = 16, 22.0, INNER * 0.62

    def place(ns: int) -> tuple[date, float]:
        at = local(ns, zone)
        return at.date(), (at.hour + at.minute / 60 + at.second / 3600) / 24

    def bar(day: date, a: float, b: float, span: Span) -> None:
        x, wide = LEFT + a * hours_wide, max((b - a) * hours_wide, 4)
        rows.setdefault(day, []).append(rect(x, 2, wide, high - 4, _band(span), _about(span, zone)))

    for span in sessions:
        (day, a), (last, b) = place(span.from_ns), place(span.to_ns)
        while day < last and len(rows) < MOST_ROWS:
            bar(day, a, 1.0, span)
            day, a = day + timedelta(days=1), 0.0
        if day == last:
            bar(day, a, b, span)
    for one in (one for many in rounds for one in many):
        if one.turn is not None:
            day, a = place(one.turn.started_sim_ns)
            turns.setdefault(day, []).append(one)
            mark = rect(LEFT + a * hours_wide - 1, 2, 2, high - 4, "turn", _about_round(one))
            rows.setdefault(day, []).append(mark)
    if not rows or len(rows) >= MOST_ROWS:
        return Markup("")
    left = LEFT + hours_wide + 34
    wide = min(17.0, (LEFT + INNER - left) / max(len(many) for many in turns.values())) if turns else 0.0
    parts, y = [], head
    before: date | None = None
    for day in sorted(rows):
        if before is not None and (gap := (day - before).days - 1):
            days = f"{gap} day{'s' if gap > 1 else ''} without a session"
            parts += [text(LEFT + 4, y + 10, f"⋮ {days}", "label faint")]
            y += 14
        squares = [
            rect(left + i * wide, 3, wide * 0.8, high - 6, f"sq v-{_css(one.verdict)}", _about_round(one))
            for i, one in enumerate(turns.get(day, ()))
        ]
        parts.append(tag("g", *rows[day], *squares, transform=f"translate(0 {y:.0f})"))
        parts.append(text(LEFT - 6, y + high - 4, day.strftime("%a %-d %b"), anchor="end"))
        parts.append(line(LEFT, y + high, LEFT + INNER, y + high, "grid"))
        before, y = day, y + high
    axis = [text(left, head - 8, "turns of the day, in order")]
    for hour in range(0, 25, 3):
        x = LEFT + hours_wide * hour / 24
        axis += [line(x, head - 4, x, y, "grid"), text(x, head - 8, f"{hour}:00", anchor="middle")]
    said = "Sessions and turns by day and hour of simulated time"
    return svg(y + 4, said, *axis, *parts, class_="chart calendar")


def _about_round(one: Round) -> str:
    return shown(f"{one.key}: {one.verdict}\n{one.when}")


def _css(verdict: str) -> str:
    return verdict.replace(" ", "-")


def family_chart(family: Family) -> Markup:
    """A numbered family as lines, a gap where a value is missing; empty where a table says it better."""
    known = [
        value for (_, figure), value in family.values.items() if figure in family.drawn and value is not None
    ]
    if not known:
        return Markup("")
    low = min(0.0, *known)
    most = 1.0 if all(map(family.is_share, family.drawn)) else max(*known, low + 1e-9)
    top, height = 10.0, 150.0
    wide = INNER / len(family.labels)

    def y(value: float) -> float:
        return top + height * (1 - (value - low) / (most - low))

    parts = []
    for at in ticks(most, 5):
        parts += [
            line(LEFT, y(at), LEFT + INNER, y(at), "grid"),
            text(LEFT - 6, y(at) + 4, f"{at:g}", anchor="end"),
        ]
    every = max(1, round(len(family.labels) / 16))
    for i, label in enumerate(family.labels):
        if i % every == 0:
            said = shown(label[:14])
            parts.append(text(LEFT + wide * (i + 0.5), top + height + 18, said, anchor="middle"))
    for figure in family.drawn:
        colour = f"c{family.figures.index(figure) % 6}"
        path, dots, pen = [], [], "M"
        for i, label in enumerate(family.labels):
            value = family.values.get((label, figure))
            if value is None:
                pen = "M"
                continue
            x = LEFT + wide * (i + 0.5)
            path.append(f"{pen}{x:.1f} {y(value):.1f}")
            pen = "L"
            about = tag("title", shown(f"{figure}/{label}: {number(value)}"))
            dots.append(tag("circle", about, cx=x, cy=y(value), r=3, class_=f"dot {colour}"))
        parts += [tag("path", d="".join(path), class_=f"curve {colour}"), *dots]
    return svg(top + height + 26, f"Figures by {family.name}", *parts)
