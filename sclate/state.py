"""The three states of a life, by digest, and the workspace as hooks see it, live or at rest.

Agent-made trees are kept as the tar files that the sandbox saved; the host hashes them and never unpacks
them. A state's digest is the sha256 of that tar; a workspace at rest with files waiting to be laid over it
has a digest of both.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path

from sclate.sandbox.protocol import Sandbox, SavedTree
from sclate_adapters.benchmark import WorkspaceAccess

MIN_HOME_FREE = 1 << 20
"""Bytes."""
EMPTY = "sha256:" + sha256(b"").hexdigest()


def tree_digest(root: Path) -> str:
    """Digest of a trusted folder of the host: relative paths and contents, in order."""
    total = sha256()
    for path in sorted(p for p in root.rglob("*") if p.is_file()):
        total.update(str(path.relative_to(root)).encode() + b"\0" + sha256(path.read_bytes()).digest())
    return "sha256:" + total.hexdigest()


async def home_is_full(sandbox: Sandbox, home: str) -> str | None:
    """Says how full the agent's home is, when harness and memory can write next to nothing more there: they
    would not tell, and what they keep would be cut off unseen."""
    looked = await sandbox.run(["df", "--output=avail,size", "-B1", home], user="agent")
    if looked.rc != 0:
        return None  # an agent can take it away from itself; the state tool will say so
    free, size = map(int, looked.stdout.split()[-2:])
    if free >= MIN_HOME_FREE:
        return None
    return (
        f"the agent's home is full: {free} of {size} bytes are free; home_mb of the environment sets its size"
    )


class StateStore:
    """Saved trees by digest, in one folder: `<hex>.tar`."""

    def __init__(self, root: Path) -> None:
        self.root = root
        root.mkdir(parents=True, exist_ok=True)

    def adopt(self, tree: SavedTree) -> str:
        """Take a saved tree in; the same tree twice is kept once."""
        target = self.path(tree.digest)
        if not target.exists():
            partial = target.with_suffix(".partial")
            shutil.move(tree.path, partial)
            partial.rename(target)
        else:
            Path(tree.path).unlink()
        return tree.digest

    def path(self, digest: str) -> Path:
        return self.root / f"{digest.removeprefix('sha256:')}.tar"


class Workspace(WorkspaceAccess):
    """The workspace of a life. Between sessions, files to add wait as layers over the saved tree."""

    def __init__(self, store: StateStore, initial: Mapping[str, bytes], workdir: str) -> None:
        self.workdir = workdir
        self._store = store
        self._base: str | None = None
        self._layers: list[Mapping[str, bytes]] = [initial] if initial else []
        self._sandbox: Sandbox | None = None

    @property
    def live(self) -> bool:
        return self._sandbox is not None

    @property
    def base(self) -> str | None:
        """Digest of the saved tree, without the layers; None before the first session."""
        return self._base

    def digest(self) -> str:
        """Digest of the state at rest."""
        if not self._layers:
            return self._base or EMPTY
        total = sha256((self._base or EMPTY).encode())
        for layer in self._layers:
            for path in sorted(layer):
                total.update(path.encode() + b"\0" + sha256(layer[path]).digest())
        return "sha256:" + total.hexdigest()

    async def put_files(self, files: Mapping[str, bytes]) -> None:
        if self._sandbox is None:
            self._layers.append(dict(files))
        else:
            await self._sandbox.put_files(self._absolute(files), "agent")

    async def replace(self, files: Mapping[str, bytes]) -> None:
        if self._sandbox is None:
            self._base, self._layers = None, [dict(files)]
            return
        await self._sandbox.run(["find", self.workdir, "-mindepth", "1", "-delete"], user="agent")
        await self.put_files(files)

    async def read_file(self, path: str, max_bytes: int = 1 << 20) -> bytes | None:
        if self._sandbox is None:
            return None
        return await self._sandbox.read_file(f"{self.workdir}/{path}", "agent", max_bytes)

    async def attach(self, sandbox: Sandbox) -> None:
        """Bring the state into a fresh sandbox."""
        if self._base is not None:
            await sandbox.restore(self._store.path(self._base), self._base, "agent", wipe=[self.workdir])
        layers, self._layers = self._layers, []
        merged: dict[str, bytes] = {}
        for layer in layers:
            merged.update(layer)
        self._sandbox = sandbox
        if merged:
            await self.put_files(merged)

    async def save(self, sandbox: Sandbox) -> SavedTree:
        """The workspace as it is now, for a grader's private copy or for the boundary."""
        return await sandbox.save([self.workdir], "agent")

    async def detach(self) -> None:
        """Save the state; the sandbox may go."""
        if self._sandbox is None:
            return
        self._base = self._store.adopt(await self.save(self._sandbox))
        self._sandbox = None

    def _absolute(self, files: Mapping[str, bytes]) -> dict[str, bytes]:
        return {f"{self.workdir}/{path}": data for path, data in files.items()}
