"""The apprentice as a model backend: one request in, one step of work out."""

from __future__ import annotations

from sclate_adapters.models import ModelBackend, ModelReply, ModelRequest, Part, StopReason, TextPart
from sclate_benchmarks.apprentice import choices, direct, documents, edits, notes, shell, text_edits
from sclate_benchmarks.apprentice.rules import Rules, learn
from sclate_benchmarks.apprentice.shell import Work
from sclate_benchmarks.apprentice.task import Task, content_words, extension, parse_task
from sclate_benchmarks.apprentice.values import Context
from sclate_benchmarks.apprentice.view import View

_MOST_CALLS = 40
_LEADING = ("weekly", "daily", "monthly", "final", "full")


class Apprentice(ModelBackend):
    """A deterministic worker: a pure function of the request.

    It reads the files that a request speaks of, makes or changes what is asked for through the harness's
    own tools, and keeps to a format rule only where the request's text states that rule before it.
    """

    name = "apprentice"

    async def respond(self, request: ModelRequest) -> ModelReply:
        """The next step of the work, or the closing words. Raises nothing for any well-formed request."""
        return step(View(request))


def step(view: View) -> ModelReply:
    """One step, from what is in view."""
    rules = learn((view.memory_text, *view.prose_read, *view.earlier_feedback, view.feedback))
    noted = _note(view)
    if not view.request.tools or len(view.calls) >= _MOST_CALLS:
        return _say(choices.answer(view.question, rules, view.now) or "Done.")
    if (boxed := choices.answer(view.question, rules, view.now)) or not view.question:
        words = boxed or "Thank you, understood."
        return (_act(view, noted, view.seen) if noted else None) or _say(words)
    if call := direct.asked(view.question, view.request.tools, view.calls, view.results, view.told):
        return _say("Done.") if call is True else ModelReply(parts=(call,), stop_reason=StopReason.TOOL_USE)
    if (command := direct.command(view.question, view.calls)) and (parts := shell.run(command, view.request)):
        return ModelReply(parts=parts, stop_reason=StopReason.TOOL_USE)
    return _work(view, rules, noted)


def _work(view: View, rules: Rules, noted: Work) -> ModelReply:
    """A task on files: look first where there is something to see, then write, then report."""
    task = parse_task(view.question)
    seen = view.seen
    wanted = _to_read(task, seen)
    if view.wrote:
        return _say(f"Done: {_summary(task)}.")
    if wanted and not _asked(view, wanted):
        noted.reads += wanted
        if task.again and not task.target:
            noted.listings.append(task.folder or ".")
        return _act(view, noted, seen) or _say("I have no tool to read with.")
    work = _deliver(Context(task, rules, view.now, seen), seen)
    work.appends += noted.appends
    return _act(view, work, seen) or _say("There was nothing that I could write.")


def _to_read(task: Task, seen: dict[str, str]) -> list[str]:
    """Files to look at that have not been seen."""
    paths = [p for p in (task.target, *task.inputs) if p]
    if task.again and not task.target:
        found = _listed(task, seen)
        paths += [found] if found else [task.folder + "/"]
    return [p for p in paths if p not in seen]


def _listed(task: Task, seen: dict[str, str]) -> str | None:
    """The file of a listing that a request describes in words."""
    names = seen.get(task.folder.rstrip("/") + "/", "").split()
    words = set(content_words(task.question))
    scored = [
        (len(words & set(content_words(n.rpartition(".")[0].replace("_", " ").replace("-", " ")))), n)
        for n in names
    ]
    scored = [(s, n) for s, n in scored if s and extension(n) in ("json", *task.formats)]
    return f"{task.folder}/{max(scored)[1]}" if scored else None


def _deliver(ctx: Context, seen: dict[str, str]) -> Work:
    """The files of a task, with copies and log lines as the rules want them."""
    task, work = ctx.task, Work()
    target = task.target or (_listed(task, seen) if task.again else None)
    if target:
        if target not in seen:
            return work
        if ctx.rules.backup:
            work.copies.append((target, ctx.rules.backup.path(target)))
        work.writes.append((target, edits.edit(ctx, target, seen[target])))
    elif task.outputs:
        path = task.outputs[0]
        work.writes.append((path, _based(ctx, task, path, seen)))
    else:
        for ext in task.formats:
            folder = task.folder + "/" if task.folder else ""
            work.writes.append((folder + _name(ctx, ext), documents.build(ctx, ext)))
    if ctx.rules.log:
        words = task.topic[1:] if len(task.topic) > 1 and task.topic[0] in _LEADING else task.topic
        line = ctx.rules.log.line(ctx.now, ctx.rules.time, "_".join(words[:4]), _summary(task))
        work.appends.append((ctx.rules.log.file, line + "\n"))
    return work


def _based(ctx: Context, task: Task, path: str, seen: dict[str, str]) -> str:
    """A named new file: a changed copy of its base where it has one, else built anew."""
    ext = extension(path)
    if task.base and task.base in seen:
        return (
            text_edits.fill_template(ctx, seen[task.base])
            if "template" in task.base and ext == "md"
            else edits.edit(ctx, task.base, seen[task.base])
        )
    return documents.build(ctx, ext)


def _name(ctx: Context, ext: str) -> str:
    words = [w for w in ctx.task.topic if w[0].isalpha()][:6] or ["notes"]
    return ctx.rules.name.write(words, ctx.now.day, ext) if ctx.rules.name else f"{'-'.join(words)}.{ext}"


def _summary(task: Task) -> str:
    return ("Updated " if task.target else "Prepared ") + " ".join(w for w in task.topic if w != "update")


def _note(view: View) -> Work:
    """What the feedback taught, to be appended to memory; nothing where no memory directory is named."""
    work = Work()
    if view.memory_dir and view.feedback and not view.noted:
        learnt = notes.lessons(view.feedback, (view.memory_text, *view.earlier_feedback))
        if learnt:
            work.appends.append((view.notebook, notes.as_text(learnt)))
    return work


def _asked(view: View, wanted: list[str]) -> bool:
    """Whether calls for these files went out in this turn (what has not been seen since does not exist)."""
    calls = " ".join(str(c.input) for c in view.calls)
    return all(p in calls for p in wanted)


def _act(view: View, work: Work, seen: dict[str, str]) -> ModelReply | None:
    """The calls for a piece of work; without a shell, what is to be appended to has to be read before."""
    if not shell.has_shell(view.request):
        unread = [path for path, _ in work.appends if path not in seen and not _asked(view, [path])]
        work = Work(reads=[*work.reads, *unread]) if unread else work
    parts: tuple[Part, ...] = shell.render(work, view.request, seen, view.work_dir) if work else ()
    return ModelReply(parts=parts, stop_reason=StopReason.TOOL_USE) if parts else None


def _say(text: str) -> ModelReply:
    return ModelReply(parts=(TextPart(text=text),))
