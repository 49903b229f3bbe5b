"""Fetching a harness's program from where its makers publish it: help for `AgentAdapter.install`."""

from __future__ import annotations

import base64
import hashlib
import json
import shutil
import subprocess
import tarfile
import tempfile
from pathlib import Path

from sclate_adapters.errors import PrerequisiteError

FETCH_S = 1800
"""Real seconds for one package; the largest are hundreds of MB."""


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
        raise PrerequisiteError(f"{wanted} cannot be fetched", "npm is not on PATH", "apt-get install npm")
    with tempfile.TemporaryDirectory(prefix="fetch-", dir=to.parent) as folder:
        argv = [npm, "pack", wanted, "--json", "--pack-destination", folder]
        try:
            done = subprocess.run(
                argv, capture_output=True, text=True, timeout=FETCH_S, cwd=folder, check=False
            )
        except subprocess.TimeoutExpired:
            raise PrerequisiteError(
                f"{wanted} cannot be fetched", f"npm took more than {FETCH_S} s", f"npm pack {wanted}"
            ) from None
        if done.returncode != 0:
            said = (done.stderr.strip() or done.stdout.strip()).splitlines()
            raise PrerequisiteError(
                f"{wanted} cannot be fetched",
                " / ".join(said[:4])[:400],
                f"npm pack {wanted}   # see what it says",
            )
        tarball = Path(folder) / json.loads(done.stdout)[0]["filename"]
        if integrity is not None and _integrity(tarball) != integrity:
            raise PrerequisiteError(
                f"{wanted} is not what it was",
                f"its digest is {_integrity(tarball)}, known is {integrity}",
                "check the registry that npm is set to: npm config get registry",
            )
        with tarfile.open(tarball) as tar:
            try:
                source = tar.extractfile(member)
            except KeyError:
                source = None
            if source is None:
                raise PrerequisiteError(
                    f"{wanted} has no {member}", "it is laid out in another way", "choose a known version"
                )
            with source, to.open("wb") as out:
                shutil.copyfileobj(source, out, 1 << 20)
    to.chmod(0o755)


def _integrity(path: Path) -> str:
    with path.open("rb") as file:
        return "sha512-" + base64.b64encode(hashlib.file_digest(file, "sha512").digest()).decode()
