"""Changes to prose, code and configuration: replacements spelt out, lines to add, else a new part."""

from __future__ import annotations

import re

from sclate_benchmarks.apprentice.documents import asked_sections
from sclate_benchmarks.apprentice.moment import find_clock, find_day
from sclate_benchmarks.apprentice.values import Context

_FROM_TO = re.compile(
    r"[\"'`]?(?P<a>\[ \]|[^\s\"'`]+)[\"'`]?\s+to\s+[\"'`]?(?P<b>\[x\]|[^\s\"'`,()]+)[\"'`]?",
    re.I,
)
_QUOTED_TO = re.compile(
    r"[\"'`](?P<a>[^\"'`]+)[\"'`] (?:should be (?:changed|renamed) )?to [\"'`](?P<b>[^\"'`]+)[\"'`]"
)


def edit_text(ctx: Context, ext: str, text: str) -> str:
    """The text after the replacements and additions asked for; where none can be made out, with a new part."""
    question = ctx.task.question
    out = text
    for m in (*_QUOTED_TO.finditer(question), *_FROM_TO.finditer(question)):
        a, b = m["a"], m["b"].rstrip(".;")
        if a == "[ ]":
            for n in re.findall(r"\d+", question.partition("items")[2].partition("as")[0]):
                out = out.replace(f"{a} {n}.", f"{b} {n}.")
        elif a in out and a.lower() not in ("to", "it", "field"):
            out = _replace(out, a, b, question[max(0, m.start() - 60) : m.start()])
    for m in re.finditer(
        r"\b([A-Z_]{3,}|\w+_\w+)(?: field)? to (the current \w+|today\S* \w+|\S+?)(?=,|\s|\.?$)", question
    ):
        out = _assign(ctx, out, m[1], m[2].strip("."))
    if added := re.findall(r"\b[\w-]+==[\w.]+\w", question):
        out = out.rstrip("\n") + "\n" + "\n".join(a for a in added if a not in out) + "\n"
    if ctx.rules.time and re.search(r"\bdates?\b[^.]*\bformat|\bnormali[sz]e\b|\bunify\b", question, re.I):
        out = _dates(ctx, out)
    if out == text:
        out = _extended(ctx, ext, text)
    return out


def _replace(text: str, a: str, b: str, lead: str) -> str:
    """`a` by `b`, only in the lines that hold a name spoken of just before, if there are any."""
    words = [
        w
        for w in re.findall(r"[\w.-]{3,}", lead)
        if w.lower() not in ("the", "from", "update", "change", "upgrade", "and")
    ]
    lines = text.split("\n")
    for word in reversed(words):
        hit = [i for i, line in enumerate(lines) if word in line and a in line]
        if hit:
            for i in hit:
                lines[i] = lines[i].replace(a, b)
            return "\n".join(lines)
    return text.replace(a, b)


def _assign(ctx: Context, text: str, name: str, words: str) -> str:
    new = ctx.spoken(words) or words.strip("\"'")
    return re.sub(
        rf"(?m)^(\s*{re.escape(name)}\s*[:=]\s*)([\"']?)[^\n\"']*\2",
        lambda m: f"{m[1]}{m[2]}{new}{m[2]}",
        text,
    )


def _dates(ctx: Context, text: str) -> str:
    """Every day written out in the wanted style, at the hour that the request gives."""
    hour = find_clock(ctx.task.question)
    months = (
        r"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[a-z]*\.?\s+\d{1,2}(?:st|nd|rd|th)?,\s*\d{4}"
    )

    def put(m: re.Match[str]) -> str:
        return ctx.spoken(m[0], (hour[0], hour[1]) if hour else None) or m[0]

    return re.sub(rf"\b{months}|\b\d{{4}}[-/]\d{{2}}[-/]\d{{2}}\b(?!T)", put, text)


def _extended(ctx: Context, ext: str, text: str) -> str:
    topic = " ".join(ctx.task.topic)
    mark = {"md": "", "txt": "# ", "yaml": "# ", "yml": "# ", "py": "# ", "sh": "# "}.get(ext)
    if mark is None:
        return text
    if mark:
        return f"{text.rstrip()}\n{mark}{topic}: {ctx.instant(ctx.now)}\n"
    parts = asked_sections(ctx.task.question) or [topic]
    detail = ctx.task.question.partition(":")[2].strip() or topic
    body = "\n".join(f"### {p[:1].upper() + p[1:]}\n\nAdded {ctx.instant(ctx.now)}.\n" for p in parts)
    return f"{text.rstrip()}\n\n## {topic.capitalize()}\n\n{detail}\n\n{body}"


def fill_template(ctx: Context, text: str) -> str:
    """A prose template with its blanks told: the times that the request gives, then its own parts."""
    lines = [
        f"- **{p.partition(' (')[0]}**: {s}"
        for p in asked_sections(ctx.task.question)
        if (s := _times_of(ctx, p))
    ]
    told = "\n".join(lines)
    out, n = re.subn(
        r"_\[[^\]\n]*time[^\]\n]*\]_", lambda _: told or ctx.instant(ctx.now), text, count=1, flags=re.I
    )
    out = re.sub(r"_?\[[^\]\n]*(?:time|date)[^\]\n]*\]_?", ctx.instant(ctx.now), out, flags=re.I)
    return out if n or not told else f"{out.rstrip()}\n\n{told}\n"


def _times_of(ctx: Context, phrase: str) -> str:
    ends = re.split(r"\bto\b", phrase)
    return " to ".join(
        w for e in ends if (find_clock(e) or find_day(e, ctx.now.day)) and (w := ctx.spoken(e))
    )
