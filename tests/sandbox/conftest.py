"""The built image and runtime, the engine's client, and sandboxes made of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import docker
import pytest

from sclate.sandbox.build import Built, ensure_all
from sclate.sandbox.engine import docker_client
from tests.sandbox.kit import Box, spec

NewBox = Callable[..., Box]


@pytest.fixture(scope="session")
def sandbox_parts() -> Built:
    return ensure_all(print)


@pytest.fixture(scope="session")
def client() -> Iterator[docker.DockerClient]:
    client = docker_client()
    yield client
    client.close()


@pytest.fixture(scope="module")
def box(sandbox_parts: Built, client: docker.DockerClient) -> Iterator[Box]:
    """A sandbox that the tests of one module share: each leaves no process and no file that matters."""
    made = Box(spec(sandbox_parts), client)
    yield made
    made.close()


@pytest.fixture
def new_box(sandbox_parts: Built, client: docker.DockerClient) -> Iterator[NewBox]:
    """Makes sandboxes of a test's own."""
    made: list[Box] = []

    def make(**settings: Any) -> Box:
        made.append(Box(spec(sandbox_parts, **settings), client))
        return made[-1]

    yield make
    for each in made:
        each.close()
