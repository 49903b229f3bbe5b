"""Protects laws that the checks keep over all inputs, not only over the listed ones."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from sclate_benchmarks.metaclaw import check

stamps = st.builds(
    "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}{}+08:00".format,
    st.integers(0, 9999),
    *[st.integers(0, 99)] * 5,
    st.sampled_from(["", ".5", ".000", ".123456789"]),
)
words = st.from_regex(r"\A[a-z][a-z0-9_]{0,20}\Z")
free = st.text(st.characters(exclude_categories=("Cc", "Cs", "Zl", "Zp")), max_size=90)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8) | stamps,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=12,
)
paths = st.lists(st.sampled_from(["a", "b", "c", "a[]", "b[]"]), min_size=1, max_size=3).map(".".join)


@contextmanager
def file(name: str, content: str | bytes) -> Iterator[str]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        yield str(path)


@given(st.lists(st.fixed_dictionaries({"at": stamps}), max_size=5))
def test_every_stamp_of_a_list_passes(items: list[dict[str, str]]) -> None:
    with file("a.json", json.dumps({"x": items})) as path:
        assert check.main(["iso8601", path, "x[].at"]) == check.PASS


@given(st.lists(stamps, min_size=1, max_size=5), st.data())
def test_one_bad_stamp_fails_the_list(items: list[str], data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(items) - 1))
    items[at] = items[at].replace("T", " ")
    with file("a.json", json.dumps({"x": items})) as path:
        assert check.main(["iso8601", path, "x[]"]) == check.FAIL


@given(json_values, paths, paths)
def test_fields_are_judged_one_by_one(data: object, one: str, other: str) -> None:
    with file("a.json", json.dumps(data)) as path:
        apart = [check.main(["iso8601", path, p]) for p in (one, other)]
        assert check.main(["iso8601", path, one, other]) == max(apart)


@given(st.binary(max_size=200), st.sampled_from(["json", "md", "py", "csv", "txt"]))
def test_no_content_of_a_file_is_a_usage_error(content: bytes, ext: str) -> None:
    with file(f"a.{ext}", content) as path:
        for argv in (["metadata", path], ["iso8601", path, "a[].b"], ["done_log", path], ["backup", path]):
            assert check.main(argv) in (check.PASS, check.FAIL)


@given(st.integers(0, 99_999_999), words, st.sampled_from(["md", "json", "py", "7z"]))
def test_well_formed_names_pass_and_their_upper_case_fails(date: int, name: str, ext: str) -> None:
    good = f"{date:08}_{name}.{ext}"
    assert check.main(["filename", good]) == check.PASS
    assert check.main(["filename", good.upper()]) == check.FAIL
    assert check.main(["filename", f"x/{good}"]) == check.PASS


@given(st.binary(max_size=50), st.binary(max_size=50))
def test_a_backup_passes_exactly_when_it_differs(now: bytes, before: bytes) -> None:
    with file("f", now) as path:
        Path(path + ".bak").write_bytes(before)
        assert (check.main(["backup", path]) == check.PASS) == (now != before)


@given(st.lists(st.tuples(stamps, words, free.filter(lambda s: s.strip())), max_size=5))
def test_a_log_has_as_many_entries_as_lines(entries: list[tuple[str, str, str]]) -> None:
    log = "".join(f"[DONE] {t} | {task} | {summary}\n" for t, task, summary in entries)
    fits = all(len(summary.strip()) <= 80 for *_, summary in entries)
    with file("done.log", log) as path:
        assert (check.main(["done_log", path, "--min-entries", str(len(entries))]) == check.PASS) == fits
        assert check.main(["done_log", path, "--min-entries", str(len(entries) + 1)]) == check.FAIL


@given(stamps, words, st.sampled_from(["pending", "in_progress", "done"]))
def test_the_four_kinds_of_metadata_agree(stamp: str, author: str, status: str) -> None:
    fields = {"created_at": stamp, "author": author, "status": status}
    lines = "\n".join(f"{k}: {v}" for k, v in fields.items())
    forms = {
        "json": json.dumps({"meta": fields}),
        "md": f"---\n{lines}\n---\n",
        "py": f'"""Meta:\n{lines}\n"""\n',
        "csv": "# meta: " + " ".join(f"{k}={v}" for k, v in fields.items()) + "\n",
    }
    for ext, content in forms.items():
        with file(f"a.{ext}", content) as path:
            assert check.main(["metadata", path]) == check.PASS
        with file(f"a.{ext}", content.replace("created_at", "created")) as path:
            assert check.main(["metadata", path]) == check.FAIL
