"""Protects what is fetched with npm: the known bytes or a message that says what is wrong, and nothing else."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import os
import tarfile
from pathlib import Path

import pytest

from sclate_adapters.errors import PrerequisiteError
from sclate_adapters.install import npm_member

PROGRAM = b"#!/bin/sh\necho hello\n"
NAME = "some-package-1.2.3.tgz"


def tarball(path: Path, **members: bytes) -> str:
    """A package as npm packs it; its integrity."""
    with tarfile.open(path, "w:gz") as tar:
        for name, data in members.items():
            info = tarfile.TarInfo(f"package/{name}")
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return "sha512-" + base64.b64encode(hashlib.sha512(path.read_bytes()).digest()).decode()


@pytest.fixture
def npm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An `npm` on PATH that does what the script beside it says; its tarball is beside it too."""
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "npm").write_text('#!/bin/sh\necho "$@" > "$0.args"\n. "$0.script"\n')
    (folder / "npm").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    packs(folder)
    return folder


def packs(folder: Path, say: str = "[]") -> None:
    """As `npm pack --pack-destination FOLDER` does: the last but its flags."""
    (folder / "npm.script").write_text(
        f'while [ "$1" != --pack-destination ]; do shift; done\ncp {folder}/{NAME} "$2" && echo \'{say}\'\n'
    )


def fetch(tmp_path: Path, integrity: str | None = None, member: str = "package/claude") -> Path:
    to = tmp_path / "fetched" / "claude"
    to.parent.mkdir(exist_ok=True)
    npm_member("@scope/some-package", "1.2.3", integrity, member, to)
    return to


def refused(tmp_path: Path, integrity: str | None = None) -> str:
    """What is said; and nothing is left."""
    with pytest.raises(PrerequisiteError) as error:
        fetch(tmp_path, integrity)
    assert not list((tmp_path / "fetched").iterdir())
    assert "@scope/some-package@1.2.3" in error.value.what
    return str(error.value)


def test_one_file_of_the_package_and_nothing_else(tmp_path: Path, npm: Path) -> None:
    known = tarball(npm / NAME, claude=PROGRAM, postinstall=b"exit 1")
    program = fetch(tmp_path, known)
    assert program.read_bytes() == PROGRAM
    assert program.stat().st_mode & 0o777 == 0o755
    assert [p.name for p in program.parent.iterdir()] == ["claude"]
    asked = (npm / "npm.args").read_text().split()
    assert asked[:2] == ["pack", "@scope/some-package@1.2.3"], "packed, not installed: none of its code runs"


def test_a_version_whose_bytes_are_not_known_is_taken_as_it_comes(tmp_path: Path, npm: Path) -> None:
    tarball(npm / NAME, claude=PROGRAM)
    assert fetch(tmp_path).read_bytes() == PROGRAM


def test_other_bytes_than_the_known_ones(tmp_path: Path, npm: Path) -> None:
    known = tarball(npm / NAME, claude=PROGRAM)
    tarball(npm / NAME, claude=PROGRAM + b"# and more\n")
    said = refused(tmp_path, known)
    assert "is not what it was" in said
    assert known in said
    assert "npm config get registry" in said


def test_a_package_without_the_file(tmp_path: Path, npm: Path) -> None:
    assert "has no package/claude" in refused(tmp_path, tarball(npm / NAME, other=PROGRAM))


def test_a_folder_where_the_file_should_be(tmp_path: Path, npm: Path) -> None:
    with tarfile.open(npm / NAME, "w:gz") as tar:
        info = tarfile.TarInfo("package/claude")
        info.type = tarfile.DIRTYPE
        tar.addfile(info)
    assert "has no package/claude" in refused(tmp_path)


def test_a_link_out_of_the_package(tmp_path: Path, npm: Path) -> None:
    with tarfile.open(npm / NAME, "w:gz") as tar:
        info = tarfile.TarInfo("package/claude")
        info.type, info.linkname = tarfile.SYMTYPE, "/bin/true"
        tar.addfile(info)
    assert "has no package/claude" in refused(tmp_path)


@pytest.mark.parametrize("keep", [0, 10, 200])
def test_a_package_that_was_cut_off(keep: int, tmp_path: Path, npm: Path) -> None:
    tarball(npm / NAME, claude=os.urandom(4096))
    (npm / NAME).write_bytes((npm / NAME).read_bytes()[:keep])
    assert "no whole package" in refused(tmp_path)


def test_npm_that_packs_nothing(tmp_path: Path, npm: Path) -> None:
    (npm / "npm.script").write_text("exit 0")
    assert "left 0 packages" in refused(tmp_path)


@pytest.mark.parametrize(
    ("stdout", "stderr", "words"),
    [
        (
            json.dumps({"error": {"code": "E404", "summary": "404 Not Found"}}),
            "npm error 404",
            "why: 404 Not Found",
        ),
        (
            "",
            "npm notice new version\nnpm error code EAI\nnpm error more",
            "why: npm error code EAI / npm error more",
        ),
        ("not json", "", "why: not json"),
        ("", "", "why: npm says nothing"),
    ],
)
def test_npm_that_fails(stdout: str, stderr: str, words: str, tmp_path: Path, npm: Path) -> None:
    (npm / "out").write_text(stdout)
    (npm / "err").write_text(stderr)
    (npm / "npm.script").write_text(f"cat {npm}/out; cat {npm}/err >&2; exit 1")
    said = refused(tmp_path)
    assert words in said
    assert "fix: npm pack @scope/some-package@1.2.3" in said


def test_npm_that_never_ends(tmp_path: Path, npm: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sclate_adapters.install.FETCH_S", 0.2)
    (npm / "npm.script").write_text("exec sleep 60")
    assert "more than 0.2 s" in refused(tmp_path)


def test_without_npm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "npm is not on PATH" in refused(tmp_path)
