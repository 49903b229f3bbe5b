"""One distribution of plug-ins for all tests of the command line."""

from __future__ import annotations

import pytest

from .kit import install


@pytest.fixture(scope="session")
def probes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment in which the tests' plug-ins are installed."""
    return install(tmp_path_factory.mktemp("site"))
