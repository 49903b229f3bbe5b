"""Shared by all tests: the seed, and what a test needs of the machine."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from hypothesis import settings

SEED = int(os.environ.get("SCLATE_TEST_SEED", "20310303"))
DATA = Path(__file__).parents[1].parent / "shared" / "data"

settings.register_profile("repeatable", derandomize=True, print_blob=True, deadline=None)
settings.load_profile("repeatable")


# Whoever starts the tests in the background may have them ignore these, and what is ignored is inherited.
for ignored, handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
    if signal.getsignal(ignored) is signal.SIG_IGN:
        signal.signal(ignored, handler)


def pytest_report_header() -> str:
    return f"SCLATE_TEST_SEED={SEED}"


@pytest.fixture(scope="session")
def metaclaw_data() -> Path:
    """The user's MetaClaw-Bench data, used in place."""
    folder = DATA / "metaclaw-bench"
    assert folder.is_dir(), (
        f"test data is missing: {folder} (MetaClaw-Bench, see docs/benchmarks/metaclaw.md)"
    )
    return folder
