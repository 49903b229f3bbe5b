"""The apprentice: a deterministic, keyless worker that obeys only the format rules it has read."""

from __future__ import annotations

from sclate_benchmarks.apprentice.model import Apprentice

__all__ = ["Apprentice"]
