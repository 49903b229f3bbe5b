"""The Docker engine: reaching it, building with it, and saying plainly what is wrong with it."""

from __future__ import annotations

import errno
import io
import os
import socket
import tarfile
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import docker
import requests
from docker.errors import APIError, DockerException

from sclate.sandbox.assets import Files
from sclate_adapters.errors import PrerequisiteError, SclateError

Say = Callable[[str], None]
"""Takes one line of progress."""

LABELS = {"sclate.build": "1"}
MIN_API = (1, 41)  # Docker 20.10: what the sandbox's options were measured on
PULL_SILENCE_S = 20.0  # a registry that says nothing for so long is taken for unreachable
STEP_SILENCE_S = 1800  # a build step may well say nothing while it downloads
LOG_TAIL = 30  # lines of a failed build that are shown


class BuildError(SclateError):
    """A build step failed; the message ends with the last lines of its log."""


def docker_client() -> docker.DockerClient:
    """A client of the engine that `DOCKER_HOST` names, else of the local socket.

    Raises:
        PrerequisiteError: no engine answers, its socket is not ours to open, or it is too old.
    """
    _knock()
    try:
        client = docker.from_env(version="auto", timeout=120)
    except DockerException as error:
        raise _unreachable(error) from error
    version: str = client.api.api_version
    if tuple(int(part) for part in version.split(".")) < MIN_API:
        client.close()
        raise PrerequisiteError(
            f"the Docker engine is too old: it speaks API {version}",
            "sandboxes need API 1.41, that is Docker 20.10 or later",
            "install a newer Docker engine",
        )
    return client


def _host() -> str:
    return os.environ.get("DOCKER_HOST") or "unix:///var/run/docker.sock"


def _knock() -> None:
    """Opens the engine's Unix socket and closes it again: the SDK hides which error stopped it."""
    scheme, _, path = _host().partition("://")
    if scheme != "unix":
        return
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(path)
        except PermissionError as error:
            raise PrerequisiteError(
                f"no permission to use the Docker engine at {_host()}",
                "sandboxes are Docker containers",
                'sudo usermod -aG docker "$USER", then log in again',
            ) from error
        except OSError as error:
            raise _unreachable(error) from error


def _unreachable(error: Exception) -> PrerequisiteError:
    return PrerequisiteError(
        f"no Docker engine answers at {_host()}",
        f"sandboxes are Docker containers ({str(error)[:200]})",
        "start it (sudo systemctl start docker), or point DOCKER_HOST at a running one",
    )


def _disk_full(where: str) -> PrerequisiteError:
    return PrerequisiteError(
        f"the disk is full ({where})",
        "the sandbox image and its runtime take about 1.5 GB while they are built",
        "free some space (docker system df shows what Docker holds), then try again",
    )


@contextmanager
def explained(where: str) -> Iterator[None]:
    """Turns a full disk or an engine that went away during `where` into a PrerequisiteError."""
    try:
        yield
    except (APIError, BuildError) as error:
        if "no space left on device" in str(error).lower():
            raise _disk_full(where) from error
        raise
    except requests.ConnectionError as error:
        raise _unreachable(error) from error
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise _disk_full(where) from error
        raise


def pull(client: docker.DockerClient, repository: str, tag: str) -> str | None:
    """Pull an image. None if it is there now, else why not; gives up after 20 s without a word."""
    api = docker.from_env(version=client.api.api_version, timeout=int(PULL_SILENCE_S)).api
    try:
        for event in api.pull(repository, tag=tag, stream=True, decode=True):
            if "error" in event:
                return str(event["error"])
    except (APIError, requests.RequestException, DockerException) as error:
        return str(error)
    finally:
        api.close()
    return None


def build(client: docker.DockerClient, tag: str, context: Files, what: str, target: str = "") -> None:
    """Build `tag` from `context` (with its `Dockerfile`) by the classic builder.

    Proxy variables of the host's environment reach the build; the engine keeps them out of the image.

    Raises:
        BuildError: a step failed.
    """
    variables = ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy")
    stream = client.api.build(
        fileobj=_tar(context),
        custom_context=True,
        tag=tag,
        target=target,
        rm=True,
        forcerm=True,
        timeout=STEP_SILENCE_S,
        labels=LABELS,
        buildargs={name: os.environ[name] for name in variables if name in os.environ},
        decode=True,
    )
    log: deque[str] = deque(maxlen=LOG_TAIL)
    for event in stream:
        log.extend(str(event.get("stream", "")).splitlines())
        if "error" in event:
            raise BuildError("\n".join([f"building {what} failed: {event['error']}", *log]))


def _tar(files: Files) -> io.BytesIO:
    """A build context; times are zero, so that an unchanged file never misses the engine's build cache."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for name, data in sorted(files.items()):
            info = tarfile.TarInfo(name)
            info.size, info.mode = len(data), 0o644
            tar.addfile(info, io.BytesIO(data))
    out.seek(0)
    return out


class _Chunks(io.RawIOBase):
    """A byte iterator as a readable file."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks = chunks
        self._rest = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._rest:
            try:
                self._rest = next(self._chunks)
            except StopIteration:
                return 0
        size = min(len(buffer), len(self._rest))
        buffer[:size] = self._rest[:size]
        self._rest = self._rest[size:]
        return size


def copy_out(client: docker.DockerClient, image: str, path: str, dest: str) -> None:
    """Unpack `path` of `image` into the folder `dest` on this machine, as the caller's own files."""
    container = client.containers.create(image, ["-"], labels=LABELS)
    try:
        chunks, _stat = container.get_archive(path)
        with tarfile.open(fileobj=io.BufferedReader(_Chunks(chunks), 1 << 20), mode="r|") as tar:
            if hasattr(tarfile, "tar_filter"):
                tar.extractall(dest, filter="tar")
            else:
                tar.extractall(dest)
    finally:
        container.remove(force=True)
