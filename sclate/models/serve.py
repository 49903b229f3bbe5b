"""A keyless model on a loopback port, with the gateway's own handlers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from sclate.gateway import CallOutcome, CallTicket, Gateway, RetryPolicy
from sclate_adapters.models import ModelBackend, ModelProfile


class NobodyWatches:
    """An observer for calls that belong to no life."""

    async def call_started(self, ticket: CallTicket) -> None: ...
    async def upstream_waiting(self, ticket: CallTicket) -> None: ...
    async def upstream_resumed(self, ticket: CallTicket) -> None: ...
    async def release(self, ticket: CallTicket) -> None: ...
    async def call_finished(self, ticket: CallTicket, outcome: CallOutcome) -> None: ...


@asynccontextmanager
async def serve(backend: ModelBackend, port: int = 0) -> AsyncIterator[str]:
    """Serve until the block ends; gives the base URL. Faults are shown to the caller, not retried."""
    profile = ModelProfile(name=backend.name, backend=backend.name)
    gateway = Gateway(profile, backend, NobodyWatches(), RetryPolicy(attempts=1))
    try:
        yield f"http://127.0.0.1:{await gateway.open_tcp(port)}"
    finally:
        await gateway.close()
