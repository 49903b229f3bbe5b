"""What a sandbox is made of, built when it is missing: base image, sandbox image, runtime.

Everything is addressed by a digest of its build inputs, so "is it there?" is one look-up and a changed input
is never mistaken for a built one. docs/design/runtime.md says what is inside and why.

The runtime has two levels. Its heavy part (Python, capture proxy, clock library) is built in a container that
is then thrown away. A runtime is that part, hard-linked, and our own in-sandbox programs beside it in
`sclate/`: changing one of them costs a second, not a build.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import docker
from docker.errors import ImageNotFound

from sclate.sandbox import debian
from sclate.sandbox.assets import Files, digest, read_files
from sclate.sandbox.engine import Say, build, copy_out, docker_client, explained, pull
from sclate_adapters.agent import AgentAdapter

BASE = "debian:bookworm-slim"
AGENT_UID, MEMORY_UID, PROXY_UID = 64001, 64002, 64003
"""Users of the sandbox image: high numbers, since without user namespaces they are the host's too."""


@dataclass(frozen=True)
class Built:
    """`image`: tag of the default sandbox image. `runtime`: the folder to mount read-only at /opt/sclate."""

    image: str
    runtime: Path


def cache_dir() -> Path:
    """`SCLATE_CACHE`, else `~/.cache/sclate`."""
    return Path(os.environ.get("SCLATE_CACHE") or Path.home() / ".cache/sclate").absolute()


def ensure_all(say: Say) -> Built:
    """Image and runtime, built where missing. PrerequisiteError for what the user must mend."""
    client = docker_client()
    try:
        return Built(ensure_image(client, say), ensure_runtime(client, say))
    finally:
        client.close()


def ensure_base(client: docker.DockerClient, say: Say) -> None:
    """See that `debian:bookworm-slim` is there: pulled, else built from Debian's packages under that tag."""
    if _has(client, BASE):
        return
    with _sole_builder(say), explained(f"building {BASE}"):
        if _has(client, BASE):
            return
        repository, _, tag = BASE.partition(":")
        say(f"pulling {BASE}")
        refusal = pull(client, repository, tag)
        if refusal is None:
            return
        say(f"no {BASE} from a registry ({refusal[:160]})")
        with _scratch() as scratch:
            archive = scratch / "base.tar"
            debian.bootstrap(archive, scratch, say)
            changes = ['CMD ["bash"]', "LABEL sclate.build=1"]
            client.api.import_image_from_file(str(archive), repository=repository, tag=tag, changes=changes)


def ensure_image(client: docker.DockerClient, say: Say) -> str:
    """The tag of the default sandbox image, built if it is missing."""
    files = read_files("image")
    tag = f"sclate/sandbox:{digest(files, BASE)}"
    if _has(client, tag):
        return tag
    ensure_base(client, say)
    with _sole_builder(say), explained(f"building {tag}"):
        if not _has(client, tag):
            started = time.monotonic()
            say(f"building {tag}")
            context = {**files, **debian.host_files()}
            # The first stage holds this machine's certificates and sources: it gets a name so that it can go.
            stage = f"sclate/sandbox-stage:{tag.partition(':')[2]}"
            build(client, stage, context, "the sandbox image", target="prepared")
            build(client, tag, context, "the sandbox image")
            client.images.remove(stage)
            say(f"built {tag} in {time.monotonic() - started:.0f} s")
    return tag


def ensure_runtime(client: docker.DockerClient, say: Say) -> Path:
    """The folder to mount read-only at /opt/sclate, built if it is missing."""
    heavy = _heavy_inputs()
    heavy_digest = digest(heavy, BASE)
    own = read_files("runtime", "*.py")
    runtime = cache_dir() / "runtime" / digest(own, heavy_digest)
    if runtime.is_dir():
        return runtime
    base = runtime.parent / f"base-{heavy_digest}"
    if not base.is_dir():
        ensure_base(client, say)
    with _sole_builder(say), explained("building the runtime"):
        if not base.is_dir():
            _build_heavy(client, heavy, heavy_digest, base, say)
        if not runtime.is_dir():
            with _scratch() as scratch:
                new = scratch / "runtime"
                shutil.copytree(base, new, symlinks=True, copy_function=os.link)
                _write(new / "sclate", own)
                new.rename(runtime)
    return runtime


def ensure_harness(agent: AgentAdapter, say: Say) -> Path | None:
    """The folder with the harness's program, installed if it is missing; None for one that needs none.

    Its name says nothing of the harness: sandboxes see where their mounts come from.
    """
    program = agent.program()
    if program is None:
        return None
    folder = cache_dir() / "harness" / digest({}, program)
    if folder.is_dir():
        return folder
    with _sole_builder(say):
        if not folder.is_dir():
            say(f"installing {program}")
            with _scratch() as scratch:
                new = scratch / "harness"
                new.mkdir()
                new.chmod(0o755)
                agent.install(new)
                folder.parent.mkdir(parents=True, exist_ok=True)
                new.rename(folder)
    return folder


def _heavy_inputs() -> Files:
    clock = {f"clock/{name}": data for name, data in read_files("clock").items()}
    return {**read_files("runtime/build"), **clock}


def _build_heavy(client: docker.DockerClient, inputs: Files, address: str, dest: Path, say: Say) -> None:
    started = time.monotonic()
    say("building the sandbox runtime (Python, capture proxy, clock library)")
    # A source tarball that the mirror no longer carries can be laid there by hand; its hash is pinned.
    downloads = cache_dir() / "downloads"
    extra = {f"clock/downloads/{p.name}": p.read_bytes() for p in downloads.glob("*.orig.tar.gz")}
    image = f"sclate/runtime-build:{address}"
    build(client, image, {**inputs, **extra, **debian.host_files()}, "the sandbox runtime")
    with _scratch() as scratch:
        copy_out(client, image, "/opt/sclate", str(scratch))
        dest.parent.mkdir(parents=True, exist_ok=True)
        (scratch / "sclate").rename(dest)
    client.images.remove(image)
    say(f"built the sandbox runtime in {time.monotonic() - started:.0f} s")


def _has(client: docker.DockerClient, tag: str) -> bool:
    try:
        client.images.get(tag)
    except ImageNotFound:
        return False
    return True


def _write(folder: Path, files: Files) -> None:
    """Readable by every uid of a sandbox, whatever the caller's umask."""
    folder.mkdir()
    folder.chmod(0o755)
    for name, data in files.items():
        (folder / name).write_bytes(data)
        (folder / name).chmod(0o644)


@contextmanager
def _scratch() -> Iterator[Path]:
    """A temporary folder on the cache's file system, so that a result moves into place by one rename."""
    cache_dir().mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="build-", dir=cache_dir()) as name:
        yield Path(name)


@contextmanager
def _sole_builder(say: Say) -> Iterator[None]:
    """One builder a cache. Waits for another as long as it lives: the kernel drops a dead process's lock."""
    cache_dir().mkdir(parents=True, exist_ok=True)
    with (cache_dir() / "build.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("waiting for another build")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
