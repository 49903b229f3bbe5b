"""Fetching a harness's program from where its makers publish it: help for `AgentAdapter.install`."""

from __future__ import annotations

import base64
import hashlib
import json
import shutil
import subprocess
import tarfile
import tempfile
import zlib
from pathlib import Path
from typing import IO

from sclate_adapters.errors import PrerequisiteError

FETCH_S = 1800
"""Real seconds for one package; the largest are hundreds of MB."""
PATIENCE = ("--fetch-retry-mintimeout=1000", "--fetch-retry-maxtimeout=3000")
"""Without these npm is silent for more than a minute before it says that there is no connection."""


def npm_member(package: str, version: str, integrity: str | None, member: str, to: Path) -> None:
    """One file of an npm package, as published: nothing is run, no dependency is fetched.

    Args:
        integrity: the registry's `sha512-...` of the tarball; None for a version that is not known, which
            npm then checks against the registry alone.
        member: path inside the tarball, `package/...`.

    Raises:
        PrerequisiteError: no npm, no such version, no connection, or not the known bytes.
    """
    wanted = f"{package}@{version}"
    npm = shutil.which("npm")
    if npm is None:
        raise PrerequisiteError(
            f"{wanted} cannot be fetched", "npm is not on PATH", "install npm, e.g. apt-get install npm"
        )
    with tempfile.TemporaryDirectory(prefix="fetch-", dir=to.parent) as folder:
        argv = [npm, "pack", wanted, "--json", "--pack-destination", folder, *PATIENCE]
        try:
            done = subprocess.run(
                argv, capture_output=True, text=True, timeout=FETCH_S, cwd=folder, check=False
            )
        except subprocess.TimeoutExpired:
            raise PrerequisiteError(
                f"{wanted} cannot be fetched", f"npm took more than {FETCH_S} s", f"npm pack {wanted}"
            ) from None
        if done.returncode != 0:
            raise PrerequisiteError(
                f"{wanted} cannot be fetched",
                _complaint(done.stdout, done.stderr),
                f"npm pack {wanted}   # see what it says",
            )
        tarball = _packed(Path(folder), wanted)
        if integrity is not None and _integrity(tarball) != integrity:
            raise PrerequisiteError(
                f"{wanted} is not what it was",
                f"its digest is {_integrity(tarball)}, known is {integrity}",
                "check the registry that npm is set to: npm config get registry",
            )
        try:
            with tarfile.open(tarball) as tar:
                source = _read(tar, member)
                if source is None:
                    raise PrerequisiteError(
                        f"{wanted} has no {member}", "it is laid out in another way", "choose a known version"
                    )
                with source, to.open("wb") as out:
                    shutil.copyfileobj(source, out, 1 << 20)
        except (tarfile.TarError, EOFError, zlib.error) as error:
            raise PrerequisiteError(
                f"{wanted} is no whole package", str(error), f"npm cache clean --force; npm pack {wanted}"
            ) from None
    to.chmod(0o755)


def _read(tar: tarfile.TarFile, member: str) -> IO[bytes] | None:
    """A file of the tarball; None where there is no such file."""
    try:
        return tar.extractfile(member)
    except KeyError:  # also a link to what is not in it
        return None


def _complaint(stdout: str, stderr: str) -> str:
    """Why npm failed, in one line: its own summary, else its first words."""
    try:
        return str(json.loads(stdout)["error"]["summary"])[:400]
    except (ValueError, KeyError, TypeError):
        lines = [x for x in (stderr.strip() or stdout.strip()).splitlines() if "npm notice" not in x]
        return " / ".join(lines[:4])[:400] or "npm says nothing"


def _packed(folder: Path, wanted: str) -> Path:
    """The one tarball that npm left."""
    tarballs = list(folder.glob("*.tgz"))
    if len(tarballs) != 1:
        raise PrerequisiteError(
            f"{wanted} cannot be fetched",
            f"npm left {len(tarballs)} packages",
            f"npm pack {wanted}   # see what it says",
        )
    return tarballs[0]


def _integrity(path: Path) -> str:
    with path.open("rb") as file:
        return "sha512-" + base64.b64encode(hashlib.file_digest(file, "sha512").digest()).decode()
