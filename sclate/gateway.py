"""The host end of a model call: the only way out of a sandbox.

An HTTP server on a Unix socket that only the sandbox's proxy can reach. It checks who calls (uid and
container of the peer), lets known paths through, and either serves a keyless `ModelBackend` or forwards to a
provider with the key, which never enters a sandbox. Faults of a provider are held and tried again here.
"""

from __future__ import annotations

import asyncio
import itertools
import json
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

from sclate.capture.dialects import DIALECTS, Endpoint
from sclate.capture.sse import EndHolder
from sclate.errors import PrerequisiteError
from sclate_adapters.models import ModelBackend, ModelProfile, ModelReply, ModelRequest

log = structlog.get_logger()

ROUTES = ("agent", "memory")
REQUEST_HEADERS = {"content-type", "accept", "anthropic-version", "anthropic-beta", "user-agent"}
RESPONSE_HEADERS = {"content-type", "request-id", "retry-after"}
RETRIES_HEADER = "x-sclate-retries"
"""Tells the proxy how often a call was tried again; it does not pass it on."""
RETRY_STATUS = {408, 409, 429, 500, 502, 503, 504, 529}
REFUSED_STATUS = {401, 403, 404}
"""The endpoint does not take us: nothing that the agent did."""
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
    """How it ended: HTTP status (None: the caller hung up), how often it was tried again, and the model's
    fault, if any: with `error` set the call failed as class `model`."""

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
    """No answer. `status` (0: a closed connection) and `body` are what the caller is shown in the end."""

    def __init__(
        self, why: str, status: int, body: bytes | None = None, retry_after_s: float | None = None
    ) -> None:
        super().__init__(why)
        self.status, self.body, self.retry_after_s = status, body, retry_after_s


@dataclass(frozen=True)
class RetryPolicy:
    """Waits `base_s * 2**n` real seconds between tries, or what the provider asks for; gives up after
    `attempts` tries or when the next would come later than `deadline_s` after the first fault."""

    attempts: int = 6
    base_s: float = 1.0
    deadline_s: float = 240.0

    def waits(self) -> Iterator[float]:
        return (self.base_s * 2**n for n in range(self.attempts - 1))


class Gateway:
    """Serves one life; `open` and `close` go with each session's sandbox.

    Args:
        profile: where calls go; with `backend` given they are answered here.

    Raises:
        PrerequisiteError: the profile's key is not in the environment.
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
        self.observer = observer
        self.retry = retry or RetryPolicy()
        self._key = provider_key(profile) if backend is None else None
        self._ids = itertools.count(1)
        self._allowed: Callable[[int, int], bool] = lambda pid, uid: False
        self._runner: web.AppRunner | None = None
        self._session: aiohttp.ClientSession | None = None
        self.on_waiting: Callable[[str, float], None] = lambda why, real_s: None
        """Told of every fault that is waited out: what it is, real seconds until the last try."""
        self.on_answer: Callable[[], None] = lambda: None
        """Told of every call that was answered."""

    async def open(self, folder: Path, uid: int, allowed: Callable[[int, int], bool]) -> None:
        """Listen on `folder/gateway.sock`, for `uid` only.

        Args:
            allowed: whether a peer (host pid, uid) is the proxy of the sandbox that is open now.
        """
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
            return web.Response(status=403, text="this socket is not yours\n")
        route, _, tail = request.path.lstrip("/").partition("/")
        return await self._call(request, route, "/" + tail)

    async def _handle_local(self, request: web.Request) -> web.StreamResponse:
        return await self._call(request, "agent", request.path)

    async def _call(self, request: web.Request, route: str, path: str) -> web.StreamResponse:
        endpoint = DIALECTS.get(path)
        if route not in ROUTES or request.method != "POST" or endpoint is None:
            return web.Response(status=404, text=f"no route for {request.method} {request.path}\n")
        body = await request.read()
        ticket = CallTicket(next(self._ids), route, path)
        await self.observer.call_started(ticket)
        call = _Call(self, ticket, endpoint, request, body)
        try:
            return await call.answer()
        except UpstreamError as error:
            call.error = str(error)
            return call.show(error)
        except ConnectionResetError:  # the caller hung up
            call.status = None
            raise
        except asyncio.CancelledError:
            call.status = None
            raise
        except Exception as error:
            log.exception("bug of the model backend", call=ticket.id)
            call.error = f"bug of the model backend: {type(error).__name__}: {error}"
            return call.show(UpstreamError(call.error, 500))
        finally:
            if call.error is None and call.status == 200:
                self.on_answer()
            await self.observer.call_finished(ticket, CallOutcome(call.status, call.retries, call.error))

    def _peer_allowed(self, request: web.Request) -> bool:
        transport = request.transport
        peer: socket.socket | None = transport.get_extra_info("socket") if transport else None
        if peer is None:
            return False
        raw = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
        pid, uid, _ = struct.unpack("3i", raw)
        return self._allowed(pid, uid)

    def provider(self) -> aiohttp.ClientSession:
        if self._session is None:
            timeout = aiohttp.ClientTimeout(total=None, sock_connect=30)
            self._session = aiohttp.ClientSession(timeout=timeout, trust_env=True)
        return self._session

    def provider_headers(self, asked: web.Request) -> dict[str, str]:
        """What goes out: a few of the caller's headers, and the key."""
        headers = {k: v for k, v in asked.headers.items() if k.lower() in REQUEST_HEADERS}
        headers["accept-encoding"] = "identity"
        return headers | ({"x-api-key": self._key} if self._key else {})


def provider_key(profile: ModelProfile) -> str | None:
    """The API key of a profile, from the environment; None where it names none.

    Raises:
        PrerequisiteError: it is named and missing.
    """
    if profile.key_env is None:
        return None
    key = os.environ.get(profile.key_env)
    if not key:
        raise PrerequisiteError(
            f"the key of model profile {profile.name!r} is missing",
            f"it is read from the environment variable {profile.key_env}",
            f"export {profile.key_env}=...",
        )
    return key


class _Call:
    """One call on its way to a model and back. `status` is what its caller has been or will be told."""

    def __init__(
        self, gateway: Gateway, ticket: CallTicket, endpoint: Endpoint, request: web.Request, body: bytes
    ) -> None:
        self._gateway = gateway
        self._ticket = ticket
        self._endpoint = endpoint
        self._request = request
        self._body = body
        self._waits = list(gateway.retry.waits())
        self._give_up_at: float | None = None
        self.retries = 0
        self.status: int | None = None
        self.error: str | None = None

    async def answer(self) -> web.StreamResponse:
        """Raises UpstreamError when there is none."""
        if self._gateway.backend is not None:
            return await self._serve(self._gateway.backend)
        return await self._forward()

    def show(self, error: UpstreamError) -> web.StreamResponse:
        """The fault as the caller sees it."""
        if error.status == 0:
            return self._cut(web.StreamResponse())
        self.status = error.status
        body = error.body
        if body is None:
            body = json.dumps(self._endpoint.wire.error_body(error.status, str(error))).encode()
        headers = self._headers() | {"x-should-retry": "false"}  # all tries are spent
        if error.retry_after_s is not None:
            headers["retry-after"] = f"{error.retry_after_s:g}"
        return web.Response(status=error.status, body=body, headers=headers)

    async def _hold(self, fault: UpstreamError) -> None:
        """Wait before the next try, time standing still.

        Raises:
            UpstreamError: there is no next try.
        """
        loop = asyncio.get_running_loop()
        if self._give_up_at is None:
            self._give_up_at = loop.time() + self._gateway.retry.deadline_s
        left_s = self._give_up_at - loop.time()
        wait = self._waits.pop(0) if self._waits else None
        if wait is not None and fault.retry_after_s is not None:
            wait = fault.retry_after_s
        if wait is None or wait > left_s:
            raise fault
        self.retries += 1
        self._gateway.on_waiting(str(fault), min(left_s, wait + sum(self._waits)))
        log.info("model fault, trying again", call=self._ticket.id, why=str(fault), retries=self.retries)
        observer = self._gateway.observer
        await observer.upstream_waiting(self._ticket)
        try:
            await asyncio.sleep(wait)
        finally:
            await observer.upstream_resumed(self._ticket)

    def _headers(self, content_type: str = "application/json") -> dict[str, str]:
        return {"content-type": content_type, RETRIES_HEADER: str(self.retries)}

    def _json(self, body: dict[str, object]) -> web.Response:
        self.status = 200
        return web.Response(body=json.dumps(body).encode(), headers=self._headers())

    def _cut(self, response: web.StreamResponse) -> web.StreamResponse:
        """Close the connection where it stands."""
        if self._request.transport is not None:
            self._request.transport.close()
        return response

    # --- keyless models ---------------------------------------------------------------------------------

    async def _serve(self, backend: ModelBackend) -> web.StreamResponse:
        try:
            request = self._endpoint.wire.parse_request(json.loads(self._body))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            dialect = self._endpoint.dialect.value
            return self.show(UpstreamError(f"no {dialect} request: {type(error).__name__}: {error}", 400))
        if not self._endpoint.generates:
            return self._json({"input_tokens": max(1, len(request.all_text()) // 4)})
        while True:
            reply = await backend.respond(request)
            if reply.delay_s:
                await asyncio.sleep(reply.delay_s)  # the model's own latency, asked for by the script
            fault = reply.fault
            if fault is None or fault.after_parts is not None:
                return await (self._stream if request.stream else self._whole)(reply, request)
            shown = UpstreamError(
                fault.message or f"HTTP {fault.status}", fault.status, retry_after_s=fault.retry_after_s
            )
            if fault.status != 0 and fault.status not in RETRY_STATUS:
                return self.show(shown)
            await self._hold(shown)

    @property
    def _message_id(self) -> str:
        return f"msg_{self._ticket.id:08d}"

    async def _whole(self, reply: ModelReply, request: ModelRequest) -> web.StreamResponse:
        body = self._endpoint.wire.render(reply, request, self._message_id)
        if reply.fault is None:
            await self._gateway.observer.release(self._ticket)
            return self._json(body)
        self.error = reply.fault.message or "the answer broke off"
        data = json.dumps(body).encode()
        response = await self._begin(web.StreamResponse(headers=self._headers()), len(data))
        await response.write(data[: len(data) // 2])
        return self._cut(response)

    async def _stream(self, reply: ModelReply, request: ModelRequest) -> web.StreamResponse:
        wire, fault = self._endpoint.wire, reply.fault
        response = await self._begin(web.StreamResponse(headers=self._headers("text/event-stream")))
        opening, *parts, last = wire.stream(reply, request, self._message_id)
        await response.write(opening)
        for part in parts if fault is None else parts[: fault.after_parts]:
            await response.write(part)
        if fault is not None:
            self.error = fault.message or "the stream broke off"
            if fault.status == 0:
                return self._cut(response)
            last = wire.error_event(fault.status, self.error)
        else:
            await self._gateway.observer.release(self._ticket)
        await response.write(last)
        await response.write_eof()
        return response

    async def _begin(self, response: web.StreamResponse, length: int | None = None) -> web.StreamResponse:
        response.content_length = length
        self.status = response.status
        await response.prepare(self._request)
        return response

    # --- providers --------------------------------------------------------------------------------------

    async def _forward(self) -> web.StreamResponse:
        """To the provider and back; a fault before the first byte of the answer is tried again."""
        while True:
            upstream: aiohttp.ClientResponse | None = None
            try:
                upstream = await self._post()
                streamed = upstream.content_type == "text/event-stream"
                begun = await (upstream.content.readany() if streamed else upstream.read())
            except (aiohttp.ClientError, OSError) as error:
                fault = UpstreamError(f"{type(error).__name__}: {error}", 502)
            else:
                if upstream.status not in RETRY_STATUS:
                    return await self._pass_on(upstream, begun, streamed)
                asked = upstream.headers.get("retry-after", "")
                fault = UpstreamError(
                    f"HTTP {upstream.status}: {begun[:200].decode('utf-8', 'replace')}",
                    upstream.status,
                    begun,
                    float(asked) if asked.replace(".", "", 1).isdigit() else None,
                )
            finally:
                if upstream is not None:
                    upstream.release()
            await self._hold(fault)

    async def _post(self) -> aiohttp.ClientResponse:
        url = (self._gateway.profile.base_url or "").rstrip("/") + self._ticket.path
        headers = self._gateway.provider_headers(self._request)
        return await self._gateway.provider().post(url, data=self._body, headers=headers)

    async def _pass_on(
        self, upstream: aiohttp.ClientResponse, begun: bytes, streamed: bool
    ) -> web.StreamResponse:
        passed = {k: v for k, v in upstream.headers.items() if k.lower() in RESPONSE_HEADERS}
        headers = passed | {RETRIES_HEADER: str(self.retries)}
        if upstream.status in REFUSED_STATUS:
            self.error = f"the provider refused: HTTP {upstream.status}"
        if not streamed:
            await self._gateway.observer.release(self._ticket)
            self.status = upstream.status
            return web.Response(status=upstream.status, body=begun, headers=headers)
        response = await self._begin(web.StreamResponse(status=upstream.status, headers=headers))
        holder = EndHolder(self._endpoint.wire.END)
        piece = begun
        while piece:
            if now := holder.feed(piece):
                await response.write(now)
            try:
                piece = await upstream.content.readany()
            except (aiohttp.ClientError, OSError) as error:
                self.error = f"the stream broke off: {type(error).__name__}: {error}"
                return self._cut(response)
        await self._gateway.observer.release(self._ticket)
        await response.write(holder.held())
        await response.write_eof()
        return response
