"""Files in full: structured data, prose, code and tables, with the header that a rule asks for."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Mapping
from typing import Any

from sclate_benchmarks.apprentice.fields import Field, sentences, slug, split_items
from sclate_benchmarks.apprentice.moment import find_clock, find_day
from sclate_benchmarks.apprentice.rules import metadata
from sclate_benchmarks.apprentice.values import Context, compose, is_time, value

_SECTIONS = re.compile(
    r"\b(?:includ\w+|cover\w*|contain\w*|sections for|describ\w+|summariz\w+)\b(?: sections)?(?: for)?:?\s+(.+)",
    re.I | re.S,
)
_CALL = re.compile(r"`?\b([a-z_]\w*)\(([\w, ]*)\)`?")
_CLASS = re.compile(r"\b((?:[A-Z]+[a-z0-9]+){2,}|[A-Z]{2,}[A-Z][a-z]+\w*)\b")
_DATED = re.compile(r"\b(?:date|time|period|window|timestamp|from)\b", re.I)


def build(ctx: Context, ext: str) -> str:
    """The whole text of a new file of a kind."""
    if ext == "json":
        return dump_json(ctx, compose(ctx))
    if ext == "csv":
        return with_header(ctx, ext, table(ctx))
    if ext == "py":
        return code(ctx)
    return with_header(ctx, ext, prose(ctx))


def dump_json(ctx: Context, data: Any) -> str:
    """Data as JSON; an object gets the header that a rule asks for, its own facts first."""
    if isinstance(data, dict) and ctx.rules.header and (form := ctx.rules.header.form_for("json")):
        wanted = ctx.rules.header.values(ctx.now, ctx.rules.time)
        own = data.get(form.label)
        header = {**wanted, **own} if isinstance(own, dict) else wanted
        data = {form.label: header, **{k: v for k, v in data.items() if k != form.label}}
    return json.dumps(data, indent=2, ensure_ascii=False) + "\n"


def with_header(ctx: Context, ext: str, body: str) -> str:
    """Text with the header that a rule asks for at its top; one that it has is completed."""
    style = ctx.rules.header
    form = style.form_for(ext) if style else None
    if style is None or form is None:
        return body
    wanted = style.values(ctx.now, ctx.rules.time)
    kind = metadata.FORMS[ext]
    if kind == "front" and body.startswith(form.label + "\n"):
        head, _, rest = body[len(form.label) + 1 :].partition(f"\n{form.label}\n")
        wanted = {**wanted, **metadata.read_pairs(head)}
        body = rest.lstrip("\n")
    return metadata.render(form, kind, wanted) + body


def prose(ctx: Context) -> str:
    """A document: a title, a section for each thing asked for, dated lines, and what the inputs say."""
    task = ctx.task
    lines = [f"# {' '.join(task.topic).title()}", ""]
    dated: list[str] = []
    sections: list[str] = []
    for phrase in asked_sections(task.question):
        (dated if _DATED.search(phrase) or is_time(slug(phrase)) else sections).append(phrase)
    for phrase in dated:
        label = re.sub(r"\s*\(.*", "", phrase)
        lines.append(f"- **{_cap(label)}**: {_span(ctx, phrase)}")
    if dated:
        lines.append("")
    found = ctx.records()
    for phrase in sections or ["overview", "details", "next steps"]:
        heading = re.sub(r"\s*\(.*", "", phrase)
        lines += [f"## {_cap(heading)}", ""]
        if re.search(r"checkbox|checklist", task.question, re.I):
            lines += [f"- [ ] {_cap(w)}" for w in task.topic]
        else:
            lines.append(f"Notes on {phrase} for {' '.join(task.topic)}.")
        lines.append("")
    if task.asked.each:
        for r in [*found, {}, {}, {}][: max(3, min(len(found), 10))]:
            lines += [f"- **{f.name}**: {value(ctx, f, r or None)}" for f in task.asked.each]
            lines.append("")
    elif found:
        lines += ["## From the sources", ""]
        lines += [f"- {r.get('title') or next(iter(r.values()), '')}" for r in found[:20]]
        lines.append("")
    return "\n".join(lines).rstrip() + "\n"


def asked_sections(question: str) -> list[str]:
    """Phrases that a document is to have a part for."""
    out: list[str] = []
    for sentence in sentences(question):
        if m := re.search(r"\b(?:add|include) (?:the|an?) ((?:[\w-]+ )*(?:date|time)s?)\b", sentence, re.I):
            out.append(m[1])
            continue
        if m := _SECTIONS.search(sentence):
            for item in split_items(m[1].strip(" .")):
                item = re.sub(r"^(?:the|an?|its|this week's|sections for)\s+", "", item.strip())
                if item and len(item) < 160:
                    out.append(item)
    return out


def _span(ctx: Context, phrase: str) -> str:
    """An instant, or two where the words give a beginning and an end."""
    ends = re.split(r"\bto\b", phrase)
    found = [w for e in ends if (find_clock(e) or find_day(e, ctx.now.day)) and (w := ctx.spoken(e))]
    return " to ".join(found[:2]) if found else ctx.instant(ctx.now)


def _cap(text: str) -> str:
    text = text.replace("_", " ").strip()
    return text[:1].upper() + text[1:]


def code(ctx: Context) -> str:
    """A Python module with the functions and classes that the request names."""
    task = ctx.task
    calls = [(m[1], m[2]) for m in _CALL.finditer(task.question)]
    doc = f"{_cap(' '.join(task.topic))}.\n\nTimes are written like {ctx.instant(ctx.now)}.\n"
    if ctx.rules.header and (form := ctx.rules.header.form_for("py")):
        doc += "\n" + metadata.render(form, "section", ctx.rules.header.values(ctx.now, ctx.rules.time))
    out = [
        f'"""\n{doc}"""',
        "",
        "from __future__ import annotations",
        "",
        "import json",
        "from pathlib import Path",
        "",
    ]
    named = _CLASS.search(task.question)
    inside = named is not None and re.search(r"\bclass\b", task.question) is not None
    indent = "    " if inside else ""
    if inside and named:
        out += ["", f"class {named[1]}:", f'    """{_cap(" ".join(task.topic))}."""', ""]
    for name, args in calls or [("run", "path")]:
        params = ", ".join(["self", *([args] if args.strip() else [])]) if inside else args
        values = [a.strip() for a in args.split(",") if a.strip()]
        out += ["" if inside else "\n", f"{indent}def {name}({params}):", f'{indent}    """{_cap(name)}."""']
        out += [f"{indent}    {line}" for line in _body(ctx, name, values)]
    if not inside:
        out += ["", "", 'if __name__ == "__main__":', '    print(Path.cwd(), json.dumps({"ok": True}))']
    return "\n".join(out) + "\n"


def _body(ctx: Context, name: str, args: list[str]) -> list[str]:
    if re.search(r"valid|check|is_", name) and args:
        return [f"return bool({args[0]})"]
    if re.search(r"format|log", name) and len(args) > 1:
        shown = "".join(f"[{{{a}}}] " for a in args[:-1]) + f"{{{args[-1]}}}"
        return [
            f"# e.g. [{ctx.instant(ctx.now)}] {' '.join(args)}",
            f'return f"[{ctx.instant(ctx.now)}] {shown}"',
        ]
    if re.search(r"now", name):
        return [f'return "{ctx.instant(ctx.now)}"']
    if re.search(r"export|write|generate|save", name) and len(args) > 1:
        return [f"Path({args[1]}).write_text(json.dumps({args[0]}, indent=2))", f"return {args[1]}"]
    return [f"return {{{', '.join(f'{a!r}: {a}' for a in args)}}}"]


def table(ctx: Context) -> str:
    """Rows under the columns asked for."""
    columns = [*ctx.task.asked.fields, *ctx.task.asked.each] or [Field("name"), Field("value")]
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([c.name for c in columns])
    for i, r in enumerate([*ctx.records()[:20]] or [None, None, None]):
        writer.writerow([_cell(value(ctx, c, r, i)) for c in columns])
    return out.getvalue()


def _cell(v: Any) -> str:
    return json.dumps(v) if isinstance(v, Mapping | list) else str(v)
