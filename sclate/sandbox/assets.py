"""Where the files under `containers/` are, and digests over them."""

from __future__ import annotations

import hashlib
from pathlib import Path

import sclate

Files = dict[str, bytes]
"""File contents by relative POSIX path, as a build context or a digest takes them."""


def containers_dir() -> Path:
    """The `containers/` tree: inside the package in a wheel, beside it in an editable install."""
    package = Path(sclate.__file__).resolve().parent
    bundled = package / "_containers"
    return bundled if bundled.is_dir() else package.parent / "containers"


def read_files(folder: str, pattern: str = "**/*") -> Files:
    """The files of `containers/<folder>` that match `pattern`, by path relative to it."""
    top = containers_dir() / folder
    return {
        path.relative_to(top).as_posix(): path.read_bytes()
        for path in sorted(top.glob(pattern))
        if path.is_file() and "__pycache__" not in path.parts
    }


def digest(files: Files, *extra: str) -> str:
    """16 hex digits over names, contents and `extra`: the address of what is built from them."""
    sha = hashlib.sha256()
    parts = [part.encode() for part in extra]
    for name, data in sorted(files.items()):
        parts += [name.encode(), data]
    for part in parts:
        sha.update(len(part).to_bytes(8, "big") + part)
    return sha.hexdigest()[:16]
