"""The capture proxy in a real sandbox: what passes, what is refused, and what is written down."""

from __future__ import annotations

import asyncio
import json
import signal
import time
from pathlib import Path

import pytest
from aiohttp import web

from sclate.capture.dialect_messages import hear_json
from sclate.models.scripted import ScriptedModel
from sclate_adapters.models import Usage
from tests.capture.box import box
from tests.capture.test_gateway import Watch, provider
from tests.capture.wire import TEXT, whole

pytestmark = pytest.mark.docker


def test_a_call_is_answered_and_written_down() -> None:
    async def main() -> None:
        model = ScriptedModel([{"status": 529}, {"text": TEXT}, {"text": "two"}])
        async with box(model, offset_ns=10**18) as sandbox:
            began = time.time_ns()
            headers = {"x-api-key": "sk-secret", "authorization": "Bearer sk-secret", "x-harness": "kept"}
            status, streamed = await sandbox.call(body={"stream": True, "temperature": 0.5}, headers=headers)
            _, plain = await sandbox.call("/memory/v1/messages", user="memory")
            one, two = await sandbox.records(2)
        assert (status, b"message_stop" in streamed) == (200, True)
        assert hear_json(json.loads(plain)).text == "two"
        assert (one.seq, one.route, one.streamed, one.text, one.retries) == (1, "agent", True, TEXT, 1)
        assert (two.seq, two.route, two.streamed, two.text, two.retries) == (2, "memory", False, "two", 0)
        assert one.request is not None
        assert one.request["messages"][0]["content"] == "8€?"
        assert one.sampling == {"temperature": 0.5, "max_tokens": 9}
        assert (one.usage.output_tokens or 0) > 0
        assert one.first_byte_real_ns is not None
        # the proxy is on real time, whatever the sandbox's clock says
        assert began < one.start_real_ns < one.first_byte_real_ns < one.end_real_ns < time.time_ns()

    asyncio.run(main())


def test_what_looks_like_a_key_is_not_written_down_and_yet_passed_on() -> None:
    """In a prompt, in an answer and in bytes that are no text; the caller and the model get all of it."""
    key = "sk-ant-" + "a1B2" * 10

    async def main() -> None:
        async with box(ScriptedModel([{"text": f"the key is {key}"}])) as sandbox:
            messages = [{"role": "user", "content": f"look: {key} and risk-averse-but-ordinary-words"}]
            status, answer = await sandbox.call(body={"messages": messages})
            (one,) = await sandbox.records(1)
            raw = sandbox.raw
        assert status == 200
        assert hear_json(json.loads(answer)).text == f"the key is {key}"
        assert key.encode() not in raw
        assert one.text == "the key is (redacted)"
        assert one.request is not None
        assert one.request["messages"][0]["content"] == "look: (redacted) and risk-averse-but-ordinary-words"
        assert one.redacted == 2

    asyncio.run(main())


def test_no_secret_is_written_and_no_header_of_ours_gets_in(tmp_path: Path) -> None:
    async def main() -> None:
        async with box(ScriptedModel([{"text": "yes"}])) as sandbox:
            secret = {"x-api-key": "sk-secret", "authorization": "Bearer sk-secret", "cookie": "sk-secret"}
            code = (
                "import http.client, json, sys; c = http.client.HTTPConnection('127.0.0.1', 8080);"
                "c.request('POST', '/agent/v1/messages', sys.argv[1], json.loads(sys.argv[2]));"
                "print(c.getresponse().getheaders())"
            )
            body = '{"model":"m","messages":[{"role":"user","content":"x"}]}'
            _, headers, _ = await sandbox.python(code, body, json.dumps(secret))
            await sandbox.records(1)
            assert b"sk-secret" not in sandbox.raw
            assert b"(redacted)" in sandbox.raw
        assert b"content-type" in headers.lower()
        assert b"sclate" not in headers.lower()

    asyncio.run(main())


def test_bytes_are_the_providers_whatever_the_cut_and_none_waits() -> None:
    data = whole(TEXT * 50)
    first = data.index("€".encode()) + 2  # inside the character

    async def main() -> None:
        go = asyncio.Event()

        async def answer(request: web.Request) -> web.StreamResponse:
            response = web.StreamResponse(headers={"content-type": "text/event-stream"})
            await response.prepare(request)
            await response.write(data[:first])
            await go.wait()
            for at in range(first, len(data), 7):
                await response.write(data[at : at + 7])
            return response

        code = (
            "import http.client, sys; c = http.client.HTTPConnection('127.0.0.1', 8080, timeout=30);"
            "c.request('POST', '/agent/v1/messages', sys.argv[1]); r = c.getresponse();"
            "a = r.read1(200); print('FIRST', flush=True); sys.stdin.readline();"
            "print((a + r.read()).hex())"
        )
        lines: list[bytes] = []
        came = asyncio.Event()

        def output(stream: str, new: list[bytes], _: int) -> None:
            lines.extend(new)
            came.set()

        async with provider(answer) as url, box(upstream=url) as sandbox:
            body = '{"model":"m","stream":true,"messages":[{"role":"user","content":"x"}]}'
            client = await sandbox.sandbox.spawn(
                "client", ["python3", "-c", code, body], user="agent", on_output=output
            )
            async with asyncio.timeout(20):
                await came.wait()
                assert lines == [b"FIRST"]  # while the provider still holds the rest
                go.set()
                await client.write(b"\n")
                assert await client.wait() == 0
                await client.drained()
            (record,) = await sandbox.records(1)
        assert bytes.fromhex(lines[1].decode()) == data
        assert record.text == TEXT * 50
        assert record.usage == Usage(
            input_tokens=37, output_tokens=188, cache_write_tokens=210, cache_read_tokens=5120
        )

    asyncio.run(main())


def test_a_route_is_proved_by_the_callers_uid() -> None:
    async def main() -> None:
        watch = Watch()
        async with box(ScriptedModel(), observer=watch) as sandbox:
            for path, user in (
                ("/memory/v1/messages", "agent"),
                ("/agent/v1/messages", "memory"),
                ("/judge/v1/messages", "agent"),
                ("/v1/messages", "agent"),
                ("/agent/v1/messages", "root"),
                ("/%61gent/v1/messages", "agent"),
            ):
                status, _ = await sandbox.call(path, user=user)  # type: ignore[arg-type]
                assert (path, user, status) == (path, user, 403)
            records = await sandbox.records(6)
        assert [r.status for r in records] == [403] * 6
        assert watch.seen == []  # nothing of it left the sandbox

    asyncio.run(main())


def test_the_same_port_on_another_loopback_address_proves_nothing() -> None:
    # Several addresses, since the order of the kernel's table is a matter of hashing.
    addresses = [f"127.0.0.{n}" for n in range(5, 15)]

    async def main() -> None:
        watch = Watch()
        hold = (
            "import socket, sys; s = socket.create_connection(('127.0.0.1', 8080),"
            " source_address=('127.0.0.1', 40123)); print('HELD', flush=True); sys.stdin.readline()"
        )
        async with box(ScriptedModel(), observer=watch) as sandbox:
            held = asyncio.Event()
            await sandbox.sandbox.spawn(
                "holder", ["python3", "-c", hold], user="memory", on_output=lambda *_: held.set()
            )
            async with asyncio.timeout(20):
                await held.wait()
            for address in addresses:
                status, _ = await sandbox.call("/memory/v1/messages", source=[address, 40123])
                assert (address, status) == (address, 403)
            assert (await sandbox.call("/agent/v1/messages", source=["127.0.0.5", 40124]))[0] == 200
        assert [word for word in watch.seen if word.startswith("started")] == ["started agent"]

    asyncio.run(main())


def test_the_agent_reaches_the_gateway_and_the_records_in_no_other_way() -> None:
    code = """
import socket, http.client, os
def tried(what):
    try:
        return str(what())
    except OSError as error:
        return type(error).__name__
def unix():
    s = socket.socket(socket.AF_UNIX); s.connect("/run/sclate/gw/gateway.sock"); return "connected"
def absolute():
    c = http.client.HTTPConnection("127.0.0.1", 8080, timeout=10)
    c.request("POST", "http://192.0.2.1/agent/v1/files", "{}"); return c.getresponse().status
def connect():
    s = socket.create_connection(("127.0.0.1", 8080), timeout=10)
    s.sendall(b"CONNECT 192.0.2.1:443 HTTP/1.1\\r\\nhost: x\\r\\n\\r\\n"); return s.recv(100)[:12]
print(tried(unix), tried(lambda: os.listdir("/run/sclate/proxy")), tried(absolute), tried(connect),
      tried(lambda: socket.create_connection(("192.0.2.1", 80), timeout=5)))
"""

    async def main() -> None:
        watch = Watch()
        async with box(ScriptedModel(), observer=watch) as sandbox:
            rc, out, err = await sandbox.python(code)
            assert rc == 0, err
            unix, records, absolute, connect, outside = out.decode().split(maxsplit=4)
            assert (unix, records) == ("PermissionError", "PermissionError")
            assert absolute in {"400", "403", "404", "502"}
            assert "200" not in connect
            assert "OSError" in outside
        assert watch.seen == []

    asyncio.run(main())


def test_an_answer_that_breaks_off_is_recorded_as_such() -> None:
    async def main() -> None:
        model = ScriptedModel([{"text": TEXT, "tool": "bash", "after_parts": 1}])
        code = (
            "import http.client, sys; c = http.client.HTTPConnection('127.0.0.1', 8080, timeout=30);"
            "c.request('POST', '/agent/v1/messages', sys.argv[1]);"
            "r = c.getresponse()\ntry: r.read()\nexcept http.client.IncompleteRead: print('cut')"
        )
        async with box(model) as sandbox:
            body = '{"model":"m","stream":true,"messages":[{"role":"user","content":"x"}]}'
            _, out, _ = await sandbox.python(code, body)
            (record,) = await sandbox.records(1)
        assert out == b"cut\n"
        assert (record.text, record.truncated) == (TEXT, True)
        assert record.error is not None
        assert record.usage == Usage()

    asyncio.run(main())


def test_a_caller_that_hangs_up_is_recorded() -> None:
    async def main() -> None:
        watch = Watch()
        code = (
            "import socket, sys; s = socket.create_connection(('127.0.0.1', 8080)); b = sys.argv[1].encode();"
            "s.sendall(b'POST /agent/v1/messages HTTP/1.1\\r\\nhost: x\\r\\ncontent-length: %d\\r\\n\\r\\n'"
            " % len(b) + b);"
            "sys.stdin.readline()"
        )
        async with box(ScriptedModel([{"delay_s": 60}]), observer=watch) as sandbox:
            body = '{"model":"m","messages":[{"role":"user","content":"x"}]}'
            client = await sandbox.sandbox.spawn("client", ["python3", "-c", code, body], user="agent")
            async with asyncio.timeout(20):
                await watch.saw["started agent"].wait()
            await client.signal(signal.SIGKILL)
            (record,) = await sandbox.records(1)
            assert (record.status, record.response) == (None, None)
            assert record.error is not None
            assert (await watch.outcome()).error is None  # no fault of the model

    asyncio.run(main())


def test_a_proxy_that_was_killed_goes_on_where_it_stopped() -> None:
    async def main() -> None:
        async with box(ScriptedModel()) as sandbox:
            await sandbox.call()
            await sandbox.call()
            await sandbox.records(2)
            await sandbox.stop_proxy(signal.SIGKILL)
            with sandbox.calls.path.open("ab") as torn:
                torn.write(b'{"seq": 3, "route": "agent", "text": "8' + "€".encode()[:2])
            await sandbox.start_proxy()
            await sandbox.call()
            records = await sandbox.records(3)
            assert [r.seq for r in records] == [1, 2, 4]
            assert sandbox.calls.damaged == 1

    asyncio.run(main())


def test_a_proxy_that_is_stopped_writes_what_is_under_way() -> None:
    async def main() -> None:
        watch = Watch()
        async with box(ScriptedModel([{"delay_s": 60}]), observer=watch) as sandbox:
            asked = asyncio.ensure_future(sandbox.call())
            async with asyncio.timeout(20):
                await watch.saw["started agent"].wait()
            await sandbox.stop_proxy(signal.SIGTERM)
            (record,) = await sandbox.records(1)
            assert record.error is not None
            assert record.request is not None
            with pytest.raises(AssertionError):
                await asked

    asyncio.run(main())


def test_memory_stays_flat() -> None:
    loop = (
        "import http.client, sys\n"
        'b = \'{"model":"m","messages":[{"role":"user","content":"%s"}]}\' % (\'x\' * 1000000)\n'
        "for _ in range(int(sys.argv[1])):\n"
        "    c = http.client.HTTPConnection('127.0.0.1', 8080, timeout=30)\n"
        "    c.request('POST', '/agent/v1/messages', b); r = c.getresponse(); assert r.status == 200; r.read()\n"
        "    c.close()\n"
    )

    async def main() -> None:
        async with box(ScriptedModel([{"when": "x", "text": "y" * 1000}])) as sandbox:
            assert sandbox.proxy is not None
            await sandbox.python(loop, "20")
            status = Path(f"/proc/{host_pid(sandbox.proxy.pid, sandbox.sandbox.container_id)}/status")
            before = rss_kb(status)
            rc, _, err = await sandbox.python(loop, "200")
            assert rc == 0, err
            after = rss_kb(status)
        print(f"proxy: {before} kB after 20 calls of 1 MB, {after} kB after 220")
        assert after - before < 30_000  # 200 MB passed through

    asyncio.run(main())


def host_pid(pid: int, container: str | None) -> int:
    """The host's number of a process of a container."""
    for status in Path("/proc").glob("[0-9]*/status"):
        try:
            numbers = next(x for x in status.read_text().splitlines() if x.startswith("NSpid")).split()[1:]
            if numbers[-1] == str(pid) and str(container) in status.with_name("cgroup").read_text():
                return int(numbers[0])
        except (OSError, StopIteration):
            continue
    raise AssertionError(f"no process {pid} in the container")


def rss_kb(status: Path) -> int:
    return int(next(x for x in status.read_text().splitlines() if x.startswith("VmRSS")).split()[1])
