"""Tars of trusted files: the same files, the same bytes, whoever packs them and in whatever order."""

from __future__ import annotations

import io
import tarfile

import pytest

from sclate.sandbox import build
from sclate.sandbox.archive import MTIME_S, pack
from sclate.sandbox.protocol import UIDS

FILES = {"/work/b.txt": b"2", "/work/a/ä\n.txt": b"\0\xff", "/home/agent/" + "n" * 200: b""}


def test_order_and_time_of_packing_do_not_show() -> None:
    assert pack(FILES) == pack(dict(reversed(FILES.items())))
    assert pack(FILES) != pack({**FILES, "/work/b.txt": b"3"})
    assert pack(FILES) != pack(FILES, 0o755)


def test_members_are_plain_files_of_a_fixed_age_and_no_owner() -> None:
    with tarfile.open(fileobj=io.BytesIO(pack(FILES, 0o640))) as tar:
        members = tar.getmembers()
        assert [m.name for m in members] == sorted(path.lstrip("/") for path in FILES)
        assert {(m.type, m.mode, m.mtime, m.uid, m.gid, m.uname) for m in members} == {
            (tarfile.REGTYPE, 0o640, MTIME_S, 0, 0, "")
        }
        for member in members:
            data = tar.extractfile(member)
            assert data is not None
            assert data.read() == FILES["/" + member.name]


def test_nothing_packs_to_an_empty_archive() -> None:
    with tarfile.open(fileobj=io.BytesIO(pack({}))) as tar:
        assert tar.getnames() == []


@pytest.mark.parametrize("user", ["agent", "memory", "proxy"])
def test_the_users_of_the_sandbox_are_those_of_the_image(user: str) -> None:
    assert UIDS[user] == getattr(build, f"{user.upper()}_UID")  # type: ignore[index]
