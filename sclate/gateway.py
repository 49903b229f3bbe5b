# LEAD: this file is built, committed and in use (sclate/life.py runs on it). Do NOT rewrite it or change its API; fix bugs only, add tests; then report.
"""The host end of a model call: the only way out of a sandbox.

An HTTP server on a Unix socket that only the sandbox's proxy can reach. It checks who calls (uid and
container of the peer), lets known paths through, and either serves a keyless `ModelBackend` or forwards to a
provider with the key, which never enters a sandbox. Faults of a provider are held and retried here.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import socket
import struct
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import aiohttp
import structlog
from aiohttp import web

from sclate.capture import dialect_messages
from sclate_adapters.models import ModelBackend, ModelFault, ModelProfile, ModelReply, ModelRequest

log = structlog.get_logger()

DIALECTS = {"/v1/messages": dialect_messages}
"""Dialect by path; the other two sit beside `dialect_messages` and are added here."""
COUNT_TOKENS = "/v1/messages/count_tokens"
ROUTES = ("agent", "memory")
FORWARDED_HEADERS = {"content-type", "accept", "anthropic-version", "anthropic-beta", "user-agent"}
RETRY_STATUS = {408, 409, 429, 500, 502, 503, 504, 529}
MAX_BODY = 64 << 20

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass(frozen=True)
class CallTicket:
    """One call under way. `id` counts from 1 in a life."""

    id: int
    route: str
    path: str


@dataclass(frozen=True)
class CallOutcome:
    """How it ended: HTTP status, how often it was tried again, and the provider's fault, if any."""

    status: int | None
    retries: int = 0
    error: str | None = None


class CallObserver(Protocol):
    """What the engine wants to know, and may hold back."""

    async def call_started(self, ticket: CallTicket) -> None: ...
    async def upstream_waiting(self, ticket: CallTicket) -> None: ...
    async def upstream_resumed(self, ticket: CallTicket) -> None: ...
    async def release(self, ticket: CallTicket) -> None:
        """Returns when the end of the response may be let go."""

    async def call_finished(self, ticket: CallTicket, outcome: CallOutcome) -> None: ...


class UpstreamError(Exception):
    """The provider did not answer, after all retries."""


@dataclass(frozen=True)
class RetryPolicy:
    """Waits `base_s * 2**n` real seconds between tries, or what the provider asks for."""

    attempts: int = 6
    base_s: float = 1.0
    deadline_s: float = 240.0

    def waits(self) -> Iterator[float]:
        return (self.base_s * 2**n for n in range(self.attempts - 1))


class Gateway:
    """Serves one life; `open` and `close` go with each session's sandbox.

    Args:
        profile: where calls go; with `backend` set they are answered here.
        allowed: whether a peer (host pid, uid) is the proxy of the sandbox that is open now.
    """

    def __init__(
        self,
        profile: ModelProfile,
        backend: ModelBackend | None,
        observer: CallObserver,
        retry: RetryPolicy | None = None,
    ) -> None:
        self.profile = profile
        self.backend = backend
        self._observer = observer
        self._retry = retry or RetryPolicy()
        self._ids = itertools.count(1)
        self._allowed: Callable[[int, int], bool] = lambda pid, uid: False
        self._runner: web.AppRunner | None = None
        self._session: aiohttp.ClientSession | None = None

    async def open(self, folder: Path, uid: int, allowed: Callable[[int, int], bool]) -> None:
        """Listen on `folder/gateway.sock`, for `uid` only."""
        self._allowed = allowed
        path = folder / "gateway.sock"
        await web.UnixSite(await self._server(self._handle), str(path)).start()
        os.chown(path, uid, uid)
        path.chmod(0o600)

    async def open_tcp(self, port: int) -> int:
        """Listen on a loopback port instead, for anybody on this machine; returns the port."""
        site = web.TCPSite(await self._server(self._handle_local), "127.0.0.1", port)
        await site.start()
        assert self._runner is not None
        return int(self._runner.addresses[0][1])

    async def _server(self, handler: Handler) -> web.AppRunner:
        app = web.Application(client_max_size=MAX_BODY)
        app.router.add_route("*", "/{tail:.*}", handler)
        self._runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=1.0)
        await self._runner.setup()
        return self._runner

    async def close(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None
        if self._session is not None:
            await self._session.close()
            self._session = None

    # --- a call -----------------------------------------------------------------------------------------

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        if not self._peer_allowed(request):
            log.warning("gateway refused a caller", path=request.path)
            return self._error(403, "this socket is not yours")
        route, _, tail = request.path.lstrip("/").partition("/")
        return await self._call(request, route, "/" + tail)

    async def _handle_local(self, request: web.Request) -> web.StreamResponse:
        return await self._call(request, "agent", request.path)

    async def _call(self, request: web.Request, route: str, path: str) -> web.StreamResponse:
        if route not in ROUTES or request.method != "POST" or path not in (*DIALECTS, COUNT_TOKENS):
            return self._error(404, f"no route for {request.method} {request.path}")
        body = await request.read()
        ticket = CallTicket(next(self._ids), route, path)
        await self._observer.call_started(ticket)
        response: web.StreamResponse | None = None
        call = _Upstream(self, ticket, request, body)
        try:
            response = await (self._serve(call) if self.backend is not None else call.forward())
        except UpstreamError as error:
            call.error = str(error)
            response = self._error(502, str(error))
            await response.prepare(request)
            await response.write_eof()
        finally:
            status = response.status if response is not None else None
            await self._observer.call_finished(ticket, CallOutcome(status, call.retries, call.error))
        return response

    def _peer_allowed(self, request: web.Request) -> bool:
        transport = request.transport
        peer: socket.socket | None = transport.get_extra_info("socket") if transport else None
        if peer is None:
            return False
        raw = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
        pid, uid, _ = struct.unpack("3i", raw)
        return self._allowed(pid, uid)

    @staticmethod
    def _error(status: int, message: str) -> web.Response:
        return web.json_response(dialect_messages.error_body(status, message), status=status)

    # --- keyless models ---------------------------------------------------------------------------------

    async def _serve(self, call: _Upstream) -> web.StreamResponse:
        assert self.backend is not None
        try:
            body = await call.request.json()
            request = dialect_messages.parse_request(body)
        except (ValueError, KeyError, TypeError) as error:
            return self._error(400, f"not a Messages request: {type(error).__name__}: {error}")
        if call.ticket.path == COUNT_TOKENS:
            return web.json_response({"input_tokens": max(1, len(request.all_text()) // 4)})
        waits = self._retry.waits()
        while True:
            reply = await self.backend.respond(request)
            if reply.delay_s:
                await asyncio.sleep(reply.delay_s)  # the model's own latency, asked for by the script
            fault = reply.fault
            if fault is None or fault.after_parts is not None or not _retryable(fault):
                return await self._answer(call, request, reply)
            await call.hold(waits, fault.message or f"HTTP {fault.status}", fault.retry_after_s)

    async def _answer(self, call: _Upstream, request: ModelRequest, reply: ModelReply) -> web.StreamResponse:
        fault = reply.fault
        message_id = f"msg_{call.ticket.id:08d}"
        if fault is not None and fault.after_parts is None:
            return self._error(fault.status, fault.message)
        if not request.stream:
            await self._observer.release(call.ticket)
            return web.json_response(dialect_messages.render(reply, request, message_id))
        response = web.StreamResponse(
            headers={"content-type": "text/event-stream", "cache-control": "no-cache"}
        )
        await response.prepare(call.request)
        *pieces, last = dialect_messages.stream(reply, request, message_id)
        for number, piece in enumerate(pieces):
            if fault is not None and fault.after_parts is not None and number > fault.after_parts:
                break
            await response.write(piece)
        if fault is not None:
            call.error = fault.message or "the stream broke off"
            if call.request.transport is not None:
                call.request.transport.close()
            return response
        await self._observer.release(call.ticket)
        await response.write(last)
        await response.write_eof()
        return response


class _Upstream:
    """One call on its way to a provider."""

    def __init__(self, gateway: Gateway, ticket: CallTicket, request: web.Request, body: bytes) -> None:
        self._gateway = gateway
        self.ticket = ticket
        self.request = request
        self._body = body
        self.retries = 0
        self.error: str | None = None

    async def hold(self, waits: Iterator[float], why: str, asked_s: float | None = None) -> None:
        """Wait before the next try, time standing still.

        Raises:
            UpstreamError: there is no next try.
        """
        observer, policy = self._gateway._observer, self._gateway._retry
        wait = next(waits, None)
        if wait is None:
            raise UpstreamError(f"{why} (after {self.retries + 1} tries)")
        self.retries += 1
        log.info("provider fault, trying again", call=self.ticket.id, why=why, retries=self.retries)
        await observer.upstream_waiting(self.ticket)
        try:
            await asyncio.sleep(min(asked_s if asked_s is not None else wait, policy.deadline_s))
        finally:
            await observer.upstream_resumed(self.ticket)

    async def forward(self) -> web.StreamResponse:
        """To the provider and back, streamed through; only a fault before the first byte is retried."""
        gateway = self._gateway
        if gateway._session is None:
            timeout = aiohttp.ClientTimeout(total=None, connect=30)
            gateway._session = aiohttp.ClientSession(timeout=timeout, auto_decompress=False, trust_env=True)
        headers = {k: v for k, v in self.request.headers.items() if k.lower() in FORWARDED_HEADERS}
        headers["accept-encoding"] = "identity"
        profile = gateway.profile
        if profile.key_env:
            headers["x-api-key"] = os.environ.get(profile.key_env, "")
        url = (profile.base_url or "").rstrip("/") + self.ticket.path
        waits = gateway._retry.waits()
        while True:
            try:
                upstream = await gateway._session.post(url, data=self._body, headers=headers)
            except (aiohttp.ClientError, OSError) as error:
                await self.hold(waits, f"{type(error).__name__}: {error}")
                continue
            async with upstream:
                if upstream.status not in RETRY_STATUS:
                    return await self._pass_on(upstream)
                why = f"HTTP {upstream.status}: {(await upstream.text())[:200]}"
                asked = upstream.headers.get("retry-after", "")
            await self.hold(waits, why, float(asked) if asked.replace(".", "", 1).isdigit() else None)

    async def _pass_on(self, upstream: aiohttp.ClientResponse) -> web.StreamResponse:
        response = web.StreamResponse(status=upstream.status)
        response.headers["content-type"] = upstream.headers.get("content-type", "application/json")
        await response.prepare(self.request)
        held = b""
        try:
            async for piece in upstream.content.iter_any():
                if held:
                    await response.write(held)
                held = piece  # the last piece waits for the clock
        except (aiohttp.ClientError, OSError) as error:
            self.error = f"the stream broke off: {error}"
            if self.request.transport is not None:
                self.request.transport.close()
            return response
        await self._gateway._observer.release(self.ticket)
        await response.write(held)
        await response.write_eof()
        return response


def _retryable(fault: ModelFault) -> bool:
    return fault.status == 0 or fault.status in RETRY_STATUS
