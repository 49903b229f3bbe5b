"""Changes to existing files: the ones that a request spells out, and nothing silently lost."""

from __future__ import annotations

import json

from sclate_benchmarks.apprentice.documents import dump_json, with_header
from sclate_benchmarks.apprentice.json_edits import JsonEdit
from sclate_benchmarks.apprentice.task import extension
from sclate_benchmarks.apprentice.text_edits import edit_text
from sclate_benchmarks.apprentice.values import Context


def edit(ctx: Context, path: str, text: str) -> str:
    """The text of an existing file after the change asked for."""
    ext = extension(path)
    if ext == "json":
        try:
            data = json.loads(text)
        except ValueError:
            return text
        return dump_json(ctx, JsonEdit(ctx, data).apply())
    changed = edit_text(ctx, ext, text)
    return with_header(ctx, ext, changed) if ext == "md" else changed
