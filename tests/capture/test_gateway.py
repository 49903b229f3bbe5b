"""The gateway over real sockets: who may call, what is passed on, what is held, and what a fault becomes."""

from __future__ import annotations

import asyncio
import json
import os
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from sclate.capture.dialect_messages import hear_json, hear_stream
from sclate.errors import PrerequisiteError
from sclate.gateway import CallOutcome, CallTicket, Gateway, RetryPolicy
from sclate.models.scripted import ScriptedModel
from sclate_adapters.models import ModelBackend, ModelProfile, ModelReply, ModelRequest
from tests.capture.wire import STOP, delta, start, text, whole

QUICK = RetryPolicy(attempts=3, base_s=0.01, deadline_s=5.0)
BODY: dict[str, Any] = {"model": "m-1", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]}
KEYLESS = ModelProfile(name="keyless", backend="scripted")


class Watch:
    """An observer that notes what it is told and can hold back the end of a response."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.outcomes: list[CallOutcome] = []
        self.saw: dict[str, asyncio.Event] = defaultdict(asyncio.Event)
        self.may_end = asyncio.Event()
        self.may_end.set()

    def _note(self, word: str) -> None:
        self.seen.append(word)
        self.saw[word].set()

    async def until(self, word: str) -> None:
        async with asyncio.timeout(5):
            await self.saw[word].wait()

    async def call_started(self, ticket: CallTicket) -> None:
        self._note(f"started {ticket.route}")

    async def upstream_waiting(self, ticket: CallTicket) -> None:
        self._note("waiting")

    async def upstream_resumed(self, ticket: CallTicket) -> None:
        self._note("resumed")

    async def release(self, ticket: CallTicket) -> None:
        self._note("release")
        await self.may_end.wait()

    async def call_finished(self, ticket: CallTicket, outcome: CallOutcome) -> None:
        self.outcomes.append(outcome)
        self._note("finished")

    async def outcome(self) -> CallOutcome:
        await self.until("finished")
        return self.outcomes[-1]


class Client:
    """A caller on the gateway's Unix socket."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._session = session

    async def post(
        self, body: Any = None, path: str = "/agent/v1/messages", **fields: Any
    ) -> tuple[int, bytes, dict[str, str]]:
        data = body if isinstance(body, bytes) else json.dumps(BODY if body is None else body).encode()
        async with self._session.post(f"http://gateway{path}", data=data, **fields) as response:
            headers = {k.lower(): v for k, v in response.headers.items()}
            return response.status, await response.read(), headers

    def stream(self) -> Any:
        return self._session.post(
            "http://gateway/agent/v1/messages", data=json.dumps(BODY | {"stream": True})
        )


@asynccontextmanager
async def opened(gateway: Gateway, folder: Path, allow: bool = True) -> AsyncIterator[Client]:
    await gateway.open(
        folder, os.getuid(), lambda pid, uid: allow and (pid, uid) == (os.getpid(), os.getuid())
    )
    connector = aiohttp.UnixConnector(str(folder / "gateway.sock"))
    try:
        async with aiohttp.ClientSession(connector=connector) as session:
            yield Client(session)
    finally:
        await gateway.close()


@asynccontextmanager
async def provider(answer: Callable[[web.Request], Awaitable[web.StreamResponse]]) -> AsyncIterator[str]:
    """A provider on a loopback port."""
    app = web.Application()
    app.router.add_route("*", "/{tail:.*}", answer)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


def remote(url: str, **fields: Any) -> ModelProfile:
    return ModelProfile(name="remote", base_url=url, **fields)


# --- who may call, and what ---------------------------------------------------------------------------------


def test_only_the_proxy_of_the_open_sandbox_is_served(tmp_path: Path) -> None:
    async def main() -> None:
        watch = Watch()
        async with opened(Gateway(KEYLESS, ScriptedModel(), watch), tmp_path, allow=False) as client:
            assert (await client.post())[0] == 403
        assert watch.seen == []

    asyncio.run(main())


def test_the_socket_is_for_one_user(tmp_path: Path) -> None:
    async def main() -> None:
        gateway = Gateway(KEYLESS, ScriptedModel(), Watch())
        await gateway.open(tmp_path, 64003, lambda pid, uid: True)
        found = (tmp_path / "gateway.sock").stat()
        await gateway.close()
        assert (found.st_uid, found.st_gid, found.st_mode & 0o777) == (64003, 64003, 0o600)

    asyncio.run(main())


@pytest.mark.parametrize(
    "path",
    [
        "/judge/v1/messages",
        "/v1/messages",
        "/agent/v1/files",
        "/agent/../memory/v1/messages",
        "/agent/v1/messages/batches",
        "/agent/v1/messages/",
    ],
)
def test_paths_that_are_not_on_the_list_reach_nothing(tmp_path: Path, path: str) -> None:
    async def main() -> None:
        watch = Watch()
        async with opened(Gateway(KEYLESS, ScriptedModel(), watch), tmp_path):
            reader, writer = await asyncio.open_unix_connection(str(tmp_path / "gateway.sock"))
            writer.write(
                f"POST {path} HTTP/1.1\r\nhost: g\r\ncontent-length: 0\r\nconnection: close\r\n\r\n".encode()
            )
            assert (await reader.read()).startswith(b"HTTP/1.1 404")
            writer.close()
            await writer.wait_closed()
        assert watch.seen == []

    asyncio.run(main())


# --- keyless models -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("route", ["agent", "memory"])
def test_a_keyless_model_answers_streamed_and_not(tmp_path: Path, route: str) -> None:
    async def main() -> None:
        watch = Watch()
        model = ScriptedModel([{"text": "8€"}, {"tool": "bash", "input": {"command": "date"}}])
        async with opened(Gateway(KEYLESS, model, watch), tmp_path) as client:
            path = f"/{route}/v1/messages?beta=true"
            _, plain, _ = await client.post(path=path)
            _, streamed, headers = await client.post(BODY | {"stream": True}, path)
        assert hear_json(json.loads(plain)).text == "8€"
        assert headers["content-type"] == "text/event-stream"
        assert hear_stream(streamed).tool_calls[0]["input"] == {"command": "date"}
        assert watch.seen == [f"started {route}", "release", "finished"] * 2
        assert watch.outcomes == [CallOutcome(200)] * 2

    asyncio.run(main())


def test_counting_tokens_asks_no_model(tmp_path: Path) -> None:
    async def main() -> None:
        async with opened(Gateway(KEYLESS, ScriptedModel([{"status": 500}]), Watch()), tmp_path) as client:
            status, body, _ = await client.post(path="/agent/v1/messages/count_tokens")
        assert status == 200
        assert json.loads(body)["input_tokens"] > 0

    asyncio.run(main())


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b"{}", b'{"model":"m","messages":[{"role":"user","content":[1]}]}']
)
def test_what_is_no_request_is_the_callers_fault(tmp_path: Path, body: bytes) -> None:
    async def main() -> None:
        watch = Watch()
        async with opened(Gateway(KEYLESS, ScriptedModel(), watch), tmp_path) as client:
            status, said, _ = await client.post(body)
        assert (status, json.loads(said)["error"]["type"]) == (400, "invalid_request_error")
        assert watch.outcomes == [CallOutcome(400)]

    asyncio.run(main())


class Buggy(ModelBackend):
    async def respond(self, request: ModelRequest) -> ModelReply:
        raise ZeroDivisionError("a bug")


def test_a_bug_of_a_backend_is_a_fault_of_the_model(tmp_path: Path) -> None:
    async def main() -> None:
        watch = Watch()
        async with opened(Gateway(KEYLESS, Buggy(), watch), tmp_path) as client:
            assert (await client.post())[0] == 500
        assert watch.outcomes[0].error is not None
        assert "ZeroDivisionError" in watch.outcomes[0].error

    asyncio.run(main())


@pytest.mark.parametrize("stream", [False, True])
def test_the_end_of_an_answer_waits_for_the_clock(tmp_path: Path, stream: bool) -> None:
    async def main() -> None:
        watch = Watch()
        watch.may_end.clear()
        async with opened(Gateway(KEYLESS, ScriptedModel([{"text": "8€"}]), watch), tmp_path) as client:
            asked = asyncio.ensure_future(client.post(BODY | {"stream": stream}))
            await watch.until("release")
            assert not asked.done()
            watch.may_end.set()
            assert (await asked)[0] == 200

    asyncio.run(main())


# --- faults -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [429, 500, 529, 0])
def test_faults_are_held_and_tried_again(tmp_path: Path, status: int) -> None:
    async def main() -> None:
        watch = Watch()
        model = ScriptedModel([{"status": status}, {"status": status}, {"text": "there"}])
        async with opened(Gateway(KEYLESS, model, watch, QUICK), tmp_path) as client:
            answered, body, headers = await client.post()
        assert (answered, hear_json(json.loads(body)).text) == (200, "there")
        assert headers["x-sclate-retries"] == "2"
        assert watch.seen == ["started agent", *["waiting", "resumed"] * 2, "release", "finished"]
        assert watch.outcomes == [CallOutcome(200, retries=2)]

    asyncio.run(main())


def test_faults_that_are_waited_out_are_told_with_how_long_at_most(tmp_path: Path) -> None:
    """Else a user sees nothing for as long as an endpoint is down."""

    async def main() -> None:
        told: list[Any] = []
        model = ScriptedModel([{"status": 429}, {"status": 500}, {"text": "there"}, {"status": 400}])
        gateway = Gateway(KEYLESS, model, Watch(), RetryPolicy(attempts=4, base_s=0.01, deadline_s=60.0))
        gateway.on_waiting = lambda why, real_s: told.append((why, round(real_s, 2)))
        gateway.on_answer = lambda: told.append("answered")
        async with opened(gateway, tmp_path) as client:
            await client.post()
            await client.post()
        fault = "scripted fault"
        assert told == [(fault, 0.01 + 0.02 + 0.04), (fault, 0.02 + 0.04), "answered"]

    asyncio.run(main())


def test_after_the_last_try_the_fault_is_shown_as_it_is(tmp_path: Path) -> None:
    async def main() -> None:
        watch = Watch()
        async with opened(
            Gateway(KEYLESS, ScriptedModel([{"status": 429}] * 3), watch, QUICK), tmp_path
        ) as client:
            status, body, headers = await client.post()
        assert (status, json.loads(body)["error"]["type"]) == (429, "rate_limit_error")
        assert headers["x-should-retry"] == "false"
        assert watch.outcomes == [CallOutcome(429, retries=2, error="scripted fault")]

    asyncio.run(main())


def test_a_connection_that_is_closed_for_good_is_seen_closed(tmp_path: Path) -> None:
    async def main() -> None:
        watch = Watch()
        async with opened(
            Gateway(KEYLESS, ScriptedModel([{"status": 0}] * 3), watch, QUICK), tmp_path
        ) as client:
            with pytest.raises(aiohttp.ServerDisconnectedError):
                await client.post()
        assert (await watch.outcome()).error == "scripted fault"

    asyncio.run(main())


@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_that_breaks_off_is_a_fault_of_the_model(tmp_path: Path, stream: bool) -> None:
    async def main() -> None:
        watch = Watch()
        model = ScriptedModel([{"text": "one", "tool": "bash", "after_parts": 1}])
        async with opened(Gateway(KEYLESS, model, watch, QUICK), tmp_path) as client:
            with pytest.raises(aiohttp.ClientPayloadError):
                await client.post(BODY | {"stream": stream})
        assert (await watch.outcome()).error == "scripted fault"
        assert "release" not in watch.seen

    asyncio.run(main())


def test_an_error_in_mid_stream_comes_as_an_event(tmp_path: Path) -> None:
    async def main() -> None:
        model = ScriptedModel([{"text": "one", "tool": "bash", "after_parts": 1, "status": 529}])
        async with opened(Gateway(KEYLESS, model, Watch()), tmp_path) as client:
            heard = hear_stream((await client.post(BODY | {"stream": True}))[1])
        assert (heard.text, heard.tool_calls, heard.complete) == ("one", (), False)
        assert heard.error == "scripted fault"

    asyncio.run(main())


def test_retries_end_at_the_deadline(tmp_path: Path) -> None:
    async def main() -> None:
        watch = Watch()
        retry = RetryPolicy(attempts=100, base_s=60.0, deadline_s=5.0)
        async with opened(
            Gateway(KEYLESS, ScriptedModel([{"status": 500}]), watch, retry), tmp_path
        ) as client:
            assert (await client.post())[0] == 500  # the next try would come after the deadline
        assert watch.outcomes == [CallOutcome(500, error="scripted fault")]

    asyncio.run(main())


def test_a_caller_that_hangs_up_is_no_fault_of_the_model(tmp_path: Path) -> None:
    async def main() -> None:
        watch = Watch()
        async with opened(Gateway(KEYLESS, ScriptedModel([{"delay_s": 60}]), watch), tmp_path) as client:
            asked = asyncio.ensure_future(client.post())
            await watch.until("started agent")
            asked.cancel()
            assert await watch.outcome() == CallOutcome(None)

    asyncio.run(main())


# --- providers ----------------------------------------------------------------------------------------------


def test_the_key_is_added_here_and_the_callers_headers_stay_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: dict[str, str] = {}

    async def answer(request: web.Request) -> web.Response:
        seen.update({k.lower(): v for k, v in request.headers.items()}, path=request.path)
        seen["body"] = (await request.read()).decode()
        headers = {"request-id": "r-1", "set-cookie": "a=b", "x-internal": "secret"}
        return web.json_response({"type": "message", "content": []}, headers=headers)

    async def main() -> None:
        monkeypatch.setenv("SOME_KEY", "sk-real")
        async with provider(answer) as url:
            gateway = Gateway(remote(url + "/", key_env="SOME_KEY"), None, Watch())
            sent = {
                "anthropic-version": "2023-06-01",
                "x-api-key": "placeholder",
                "authorization": "Bearer placeholder",
                "cookie": "c=d",
                "accept-encoding": "gzip, br",
                "x-forwarded-for": "1.2.3.4",
            }
            async with opened(gateway, tmp_path) as client:
                _, _, headers = await client.post(headers=sent)
        assert (seen["x-api-key"], seen["anthropic-version"], seen["path"]) == (
            "sk-real",
            "2023-06-01",
            "/v1/messages",
        )
        assert json.loads(seen["body"]) == BODY
        assert seen["accept-encoding"] == "identity"
        assert not {"authorization", "cookie", "x-forwarded-for"} & set(seen)
        assert headers["request-id"] == "r-1"
        assert not {"set-cookie", "x-internal"} & set(headers)

    asyncio.run(main())


def test_a_missing_key_is_the_users_to_mend(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SOME_KEY", raising=False)
    with pytest.raises(PrerequisiteError, match="SOME_KEY"):
        Gateway(remote("http://127.0.0.1:9", key_env="SOME_KEY"), None, Watch())


def test_a_stream_is_passed_on_event_by_event_and_only_its_end_is_held(tmp_path: Path) -> None:
    async def main() -> None:
        go = asyncio.Event()

        async def answer(request: web.Request) -> web.StreamResponse:
            response = web.StreamResponse(headers={"content-type": "text/event-stream"})
            await response.prepare(request)
            await response.write(start())
            await go.wait()
            await response.write(text("8€") + delta({"output_tokens": 1}))
            await response.write(STOP)
            return response

        watch = Watch()
        watch.may_end.clear()
        async with (
            asyncio.timeout(10),
            provider(answer) as url,
            opened(Gateway(remote(url), None, watch), tmp_path) as client,
            client.stream() as response,
        ):
            assert await response.content.readexactly(len(start())) == start()
            go.set()
            rest = text("8€") + delta({"output_tokens": 1})
            assert await response.content.readexactly(len(rest)) == rest
            await watch.until("release")
            assert response.content.total_bytes == len(start() + rest)
            watch.may_end.set()
            assert await response.read() == STOP

    asyncio.run(main())


@pytest.mark.parametrize("fault", ["429", "503", "reset", "no answer"])
def test_a_providers_faults_are_held_until_it_answers(tmp_path: Path, fault: str) -> None:
    async def main() -> None:
        tries = 0

        async def answer(request: web.Request) -> web.StreamResponse:
            nonlocal tries
            tries += 1
            if tries == 3:
                return web.Response(body=whole(), content_type="text/event-stream")
            if fault.isdigit():
                return web.Response(status=int(fault), headers={"retry-after": "0.01"})
            response = web.StreamResponse(headers={"content-type": "text/event-stream"})
            if fault == "reset":  # headers, and then nothing
                await response.prepare(request)
            assert request.transport is not None
            request.transport.close()
            return response

        watch = Watch()
        async with (
            provider(answer) as url,
            opened(Gateway(remote(url), None, watch, QUICK), tmp_path) as client,
        ):
            status, body, _ = await client.post(BODY | {"stream": True})
        assert (status, body) == (200, whole())
        assert watch.outcomes == [CallOutcome(200, retries=2)]

    asyncio.run(main())


@pytest.mark.parametrize(("asked", "status"), [("0.01", 200), ("soon", 429), ("600", 429)])
def test_the_wait_is_what_the_provider_asks_for_up_to_the_deadline(
    tmp_path: Path, asked: str, status: int
) -> None:
    async def main() -> None:
        tries = 0

        async def answer(request: web.Request) -> web.StreamResponse:
            nonlocal tries
            tries += 1
            if tries == 1:
                return web.json_response({"error": "slow down"}, status=429, headers={"retry-after": asked})
            return web.json_response({"type": "message", "content": []})

        watch = Watch()
        retry = RetryPolicy(attempts=2, base_s=60.0, deadline_s=30.0)
        async with (
            provider(answer) as url,
            opened(Gateway(remote(url), None, watch, retry), tmp_path) as client,
        ):
            assert (await client.post())[0] == status
        assert (watch.outcomes[0].error is None) == (status == 200)

    asyncio.run(main())


@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_that_is_compressed_all_the_same_arrives_plain(tmp_path: Path, stream: bool) -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        kind = "text/event-stream" if stream else "application/json"
        response = web.Response(body=whole(), content_type=kind)
        response.enable_compression(web.ContentCoding.gzip)
        return response

    async def main() -> None:
        async with provider(answer) as url, opened(Gateway(remote(url), None, Watch()), tmp_path) as client:
            assert (await client.post(BODY | {"stream": stream}))[1] == whole()

    asyncio.run(main())


def test_a_provider_that_is_not_there(tmp_path: Path) -> None:
    async def main() -> None:
        watch = Watch()
        async with opened(Gateway(remote("http://127.0.0.1:9"), None, watch, QUICK), tmp_path) as client:
            assert (await client.post())[0] == 502
        assert watch.outcomes[0].retries == 2
        assert watch.outcomes[0].error is not None

    asyncio.run(main())


def test_the_providers_own_error_is_shown_after_the_last_try(tmp_path: Path) -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        return web.json_response({"type": "error", "error": {"message": "busy"}}, status=529)

    async def main() -> None:
        async with (
            provider(answer) as url,
            opened(Gateway(remote(url), None, Watch(), QUICK), tmp_path) as client,
        ):
            status, body, _ = await client.post()
        assert (status, hear_json(json.loads(body)).error) == (529, "busy")

    asyncio.run(main())


@pytest.mark.parametrize(("status", "model_fault"), [(400, False), (401, True), (404, True)])
def test_a_refusal_is_passed_on_at_once(tmp_path: Path, status: int, model_fault: bool) -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        return web.json_response({"type": "error", "error": {"message": "no"}}, status=status)

    async def main() -> None:
        watch = Watch()
        async with (
            provider(answer) as url,
            opened(Gateway(remote(url), None, watch, QUICK), tmp_path) as client,
        ):
            assert (await client.post())[0] == status
        assert (watch.outcomes[0].retries, watch.outcomes[0].error is not None) == (0, model_fault)

    asyncio.run(main())


def test_a_stream_that_breaks_after_its_first_byte_is_not_asked_for_again(tmp_path: Path) -> None:
    async def main() -> None:
        tries = 0

        async def answer(request: web.Request) -> web.StreamResponse:
            nonlocal tries
            tries += 1
            response = web.StreamResponse(headers={"content-type": "text/event-stream"})
            await response.prepare(request)
            await response.write(start())
            assert request.transport is not None
            request.transport.close()
            return response

        watch = Watch()
        async with (
            provider(answer) as url,
            opened(Gateway(remote(url), None, watch, QUICK), tmp_path) as client,
        ):
            with pytest.raises(aiohttp.ClientPayloadError):
                await client.post(BODY | {"stream": True})
            outcome = await watch.outcome()
        assert tries == 1
        assert outcome.error is not None
        assert "broke off" in outcome.error

    asyncio.run(main())
