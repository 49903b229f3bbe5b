"""The contract between SCLATE's engine and the benchmarks, agents and memories that plug into it."""

from sclate_adapters.base import CONTRACT_VERSION, NS_PER_S, seconds

__all__ = ["CONTRACT_VERSION", "NS_PER_S", "seconds"]
