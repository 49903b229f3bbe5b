"""What a request asks for: which files to read, which to make or change, in which format, about what."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from sclate_benchmarks.apprentice.fields import Asked, parse_fields, sentences

_EXTENSIONS = r"json|md|markdown|py|csv|txt|ya?ml|sh|log|toml|ini|sql|js|ts"
_PATH = re.compile(rf"(?<![\w/.])(?:[\w-]+/)*[\w][\w.-]*?\.(?:{_EXTENSIONS})\b(?![\w/])")
_FOLDER = re.compile(r"(?<![\w/.])((?:[\w-]+/)+)(?=[\s.,;)]|$)")
_OUTPUT = re.compile(
    r"(?::|\b(?:as|at|named)|\bsav\w+(?: (?:it|them|the \w+))?(?: to)?"
    r"|\b(?:create|generate|write|draft|produce)"
    r"(?: (?:an?|the|separate|new|final|structured|python|utility|function|module|file|version|report))*)\s+`?$",
    re.I,
)
_CHANGE = re.compile(
    r"\b(?:update|fix|modify|refactor|correct|change|fill(?:ing)? in|edit|append|extend|convert|add\b.*\b(?:to|in))\b",
    re.I,
)
_ANEW = re.compile(
    r"\bsav(?:e|ed|ing)\b|\bnew file\b|\bcreate (?:an?|the|this|today)\b|\bgenerate\b|\bwrite\b",
    re.I,
)
_AGAIN = re.compile(r"\boverwrit\w+|\bsame file\b|\bin place\b", re.I)
_BASE = re.compile(
    r"\b(?:normali[sz]e|convert|correct|fill in|update|template|as a base|based? on|existing content)\b", re.I
)
_FORMATS = (
    ("py", r"\bpython\b"),
    ("csv", r"\bcsv\b"),
    ("json", r"\bjson\b"),
    ("md", r"\bmarkdown\b"),
    ("txt", r"\bplain text\b"),
)
_FILE_NOUN = r"(?:format|file|script|module|utility|helper|setup|document|report\b)"
_DEFAULT = "md"
_ASKS = re.compile(r"\b(?:please|could you|can you|i need you to)\b\s*", re.I)
_TOPIC_END = re.compile(
    r",?\s+(?:in|as|into)\s+(?:an?\s+)?(?:structured\s+)?(?:json|markdown|csv|python)\b"
    r"|,\s*(?:json|markdown|csv|python) format"
    r"|,?\s+(?:and\s+)?sav(?:e|ed|ing)\b|,\s|:\s|\s*\(|\.\s|\.$| by (?:adding|filling)\b|\s+—",
    re.I,
)
_DROP = frozenset(
    [
        "a",
        "an",
        "the",
        "of",
        "for",
        "to",
        "in",
        "on",
        "at",
        "by",
        "from",
        "with",
        "and",
        "or",
        "into",
        "this",
        "that",
        "these",
        "those",
        "it",
        "its",
        "our",
        "your",
        "my",
        "we",
        "is",
        "are",
        "be",
        "has",
        "have",
        "please",
        "could",
        "you",
        "create",
        "generate",
        "write",
        "draft",
        "prepare",
        "organize",
        "compile",
        "perform",
        "analyze",
        "process",
        "produce",
        "make",
        "save",
        "export",
        "update",
        "develop",
        "raw",
        "format",
        "standardize",
        "list",
        "based",
        "record",
        "recording",
        "content",
        "data-driven",
        "formal",
        "complete",
        "new",
        "current",
        "today",
        "todays",
        "yesterday",
        "yesterdays",
        "weeks",
        "days",
        "months",
        "next",
        "last",
        "also",
        "so",
        "json",
        "markdown",
        "csv",
        "python",
        "file",
        "files",
        "document",
        "directory",
        "folder",
        "format",
        "structured",
        "main",
        "brief",
        "short",
        "all",
        "each",
        "per",
        "main",
        "using",
        "use",
    ]
)


def extension(path: str) -> str:
    """A path's extension in lower case, without the point."""
    return path.rpartition("/")[2].rpartition(".")[2].lower() if "." in path else ""


@dataclass
class Task:
    """A request, parsed. `target` is the existing file to change, `outputs` the new files it names."""

    question: str
    folder: str = ""
    inputs: list[str] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)
    target: str | None = None
    formats: list[str] = field(default_factory=list)
    topic: list[str] = field(default_factory=list)
    asked: Asked = field(default_factory=Asked)
    again: bool = False

    @property
    def base(self) -> str | None:
        """The input that the new file is a changed copy of, if so asked."""
        if not self.outputs or not _BASE.search(self.question):
            return None
        ext = extension(self.outputs[0])
        return next((p for p in self.inputs if extension(p) == ext), None)


def parse_task(question: str) -> Task:
    """Read a request."""
    task = Task(question, asked=parse_fields(question))
    folders = [m[1].rstrip("/") for m in _FOLDER.finditer(question)]
    outputs: list[str] = []
    others: list[str] = []
    for m in _PATH.finditer(question):
        path = m[0].rstrip(".")
        if path in outputs or path in others:
            continue
        lead = question[max(0, m.start() - 60) : m.start()]
        made = "/" in path and _OUTPUT.search(lead) and not re.search(r"\bexisting\b", lead, re.I)
        (outputs if made else others).append(path)
    with_folder = [p for p in (*outputs, *others) if "/" in p]
    task.folder = next(iter([*folders, *(p.rpartition("/")[0] for p in with_folder)]), "")
    beside = [p if "/" in p or not task.folder else f"{task.folder}/{p}" for p in others]
    others = list(dict.fromkeys([*beside, *others]))
    task.again = bool(_AGAIN.search(question))
    instruction = _instruction(question)
    if (
        others
        and not outputs
        and _CHANGE.search(instruction)
        and not re.match(r"\s*based on\b", instruction, re.I)
    ):
        plain = re.sub(r"\([^)]*\)", "", question)
        if task.again or not _ANEW.search(plain.replace("pre-existing", "")):
            task.target = others[0]
    task.inputs = [p for p in others if p != task.target]
    task.outputs = outputs
    task.formats = _formats(question)
    if task.target:
        task.topic = [*content_words(_stem(task.target)), "update"]
    else:
        task.topic = topic(question, [*outputs, *task.inputs])
    if (
        not outputs
        and task.formats == [_DEFAULT]
        and task.asked.fields
        and not re.search(r"\bmarkdown\b", question, re.I)
    ):
        task.formats = ["json"]
    return task


def _instruction(question: str) -> str:
    found = [s for s in sentences(question) if _ASKS.search(s)]
    text = found[0] if found else question
    asks = _ASKS.search(text)
    return text[asks.end() :] if asks else text


def _formats(question: str) -> list[str]:
    """Extensions asked for: an explicit format, else the first named; then that of a file wanted as well."""
    low = question.lower()
    explicit: list[tuple[int, str]] = []
    for ext, name in _FORMATS:
        for m in re.finditer(
            rf"(?:in|as|to)\s+(?:an?\s+)?(?:structured\s+)?{name}|{name}\s+{_FILE_NOUN}", low
        ):
            explicit.append((m.start(), ext))
    out = [min(explicit)[1]] if explicit else []
    if not out:
        named = [(low.index(found[0]), ext) for ext, name in _FORMATS if (found := re.findall(name, low))]
        out = [min(named)[1]] if named else [_DEFAULT]
    for ext, name in _FORMATS:
        if ext not in out and re.search(rf"\bsave the {name}[^.]*\b(?:as well|too|also)\b", low):
            out.append(ext)
    return out


def topic(question: str, paths: Iterable[str] = ()) -> list[str]:
    """The words that say what the thing is about, in lower case, numbers joined to the word before."""
    text = _PATH.sub(lambda m: f" {_stem(m[0])} ", re.sub(r"\([^)]*\)", "", _instruction(question)))
    text = _FOLDER.sub(" ", text)
    text = re.sub(r"^(?:based on|using)[^,]*,\s*(?:please\s+)?", "", text.strip(), flags=re.I)
    cut = _TOPIC_END.search(text)
    words = content_words(text[: cut.start()] if cut and cut.start() > 8 else text[:80])
    if len(words) < 2:
        for path in paths:
            words += [w for w in content_words(_stem(path)) if w not in words]
    return words[:7] or ["notes"]


def _stem(path: str) -> str:
    return path.rpartition("/")[2].rpartition(".")[0].replace("_", " ")


def content_words(text: str) -> list[str]:
    """Words that carry meaning; `Phase 8` becomes `phase8`, `v1.2` becomes `v12`."""
    text = re.sub(r"(\w)'s\b", r"\1", text.lower())
    text = re.sub(r"(?<=\d)\.(?=\d)", "", text)
    out: list[str] = []
    for w in re.findall(r"[a-z]+\d*[a-z0-9]*|\d+", text):
        if w.isdigit():
            if out and out[-1].isalpha() and len(w) < 4:
                out[-1] += w
            continue
        if w not in _DROP and w not in out:
            out.append(w)
    return out
