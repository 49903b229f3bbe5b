"""How a copy is to be kept before a file is changed: the copy's name, from examples."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from sclate_benchmarks.apprentice.rules.evidence import Statement, majority

_ABOUT = re.compile(
    r"\bback(?:ed)?[ -]?(?:it |them )?up\b|\bbackup|\bcop(?:y|ied)\b"
    r"|\bbefore (?:\w+ ){0,3}?(?:modif|updat|chang|edit|fix|refactor)",
    re.I,
)
_PATH = re.compile(r"(?<![\w/.])(?:[\w.-]+/)*(?:<[\w ]+>|[\w-]+)(?:[\w./~-]|<[\w ]+>)*")
_SUFFIX = re.compile(r"(?<![\w)>])\.[A-Za-z]\w*(?![\w.(])")


@dataclass(frozen=True)
class BackupStyle:
    """`template` is the copy's path beside the original, with {name}, or {stem} and {ext}."""

    template: str

    def path(self, original: str) -> str:
        """Where the copy of `original` goes."""
        folder, slash, name = original.rpartition("/")
        stem, dot, ext = name.rpartition(".")
        if not dot:
            stem, ext = name, ""
        made = (
            self.template.replace("{name}", name)
            .replace("{stem}", stem)
            .replace("{ext}", f".{ext}" if ext else "")
        )
        return f"{folder}{slash}{made}"


@lru_cache(maxsize=4096)
def _votes(s: Statement) -> tuple[tuple[BackupStyle, float], ...]:
    """Styles that a statement shows, an original beside its copy weighing more than a bare suffix."""
    if not _ABOUT.search(s.text) or not s.obliges:
        return ()
    named = [p for m in _PATH.finditer(s.text) if "." in (p := m[0].rstrip(".,:")) or "~" in p]
    found = [t for p in named for q in named if (t := _relation(p, q))]
    found = found or [t for p in named if (t := _doubled(p))]
    bare = ["{name}" + m[0].rstrip(".") for m in _SUFFIX.finditer(s.text)]
    return (*((BackupStyle(t), 3.0) for t in found), *((BackupStyle(t), 1.0) for t in bare))


def _relation(original: str, copy: str) -> str | None:
    """The template by which `copy` is named after `original`."""
    if original == copy:
        return None
    folder, _, name = original.rpartition("/")
    if folder:
        if "/" in copy and not copy.startswith(folder + "/"):
            return None
        beside = copy.removeprefix(folder + "/")
    else:
        beside = copy.rpartition("/")[2]
    if "." not in name or name.startswith("<"):
        return None
    stem, _, ext = name.rpartition(".")
    if name in beside and beside != name:
        return beside.replace(name, "{name}")
    if beside.startswith(stem) and beside.endswith("." + ext) and beside != name:
        return "{stem}" + beside[len(stem) : -len(ext) - 1] + "{ext}"
    return None


def _doubled(copy: str) -> str | None:
    """The template shown by a copy's name alone: a placeholder, or a second extension."""
    name = copy.rpartition("/")[2]
    if m := re.fullmatch(r"(.*)<[\w ]+>(.*)", name):
        return f"{m[1]}{{name}}{m[2]}" if m[1] or m[2] else None
    if m := re.fullmatch(r"[\w-]+\.[a-z]{1,5}([.~][A-Za-z]*\w?)", name):
        return "{name}" + m[1]
    return None


def learn_backup(said: Sequence[Statement]) -> BackupStyle | None:
    """The style of copies that the statements ask for."""
    return majority(v for s in said for v in _votes(s))
