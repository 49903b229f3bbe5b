"""A real sandbox with the capture proxy in it and the gateway outside."""

from __future__ import annotations

import asyncio
import itertools
import json
import signal
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from sclate.capture import proxy
from sclate.capture.record import CallReader
from sclate.gateway import CallObserver, Gateway, RetryPolicy
from sclate.models.serve import NobodyWatches
from sclate.run import owner_labels
from sclate.sandbox.build import ensure_all
from sclate.sandbox.docker import DockerSandbox
from sclate.sandbox.engine import docker_client
from sclate.sandbox.protocol import UIDS, Process, SandboxSpec, User
from sclate_adapters.models import ModelBackend, ModelProfile
from sclate_adapters.records import CallRecord

QUICK = RetryPolicy(attempts=3, base_s=0.01, deadline_s=5.0)
PROXY = "http://127.0.0.1:8080"

CALL = """
import json, sys, http.client
spec = json.loads(sys.argv[1])
c = http.client.HTTPConnection("127.0.0.1", 8080, timeout=30, source_address=tuple(spec["source"]))
c.request(spec.get("method", "POST"), spec["path"], spec["body"].encode(), spec["headers"])
r = c.getresponse()
sys.stdout.buffer.write(b"%d\\n" % r.status + r.read())
sys.stderr.write(json.dumps({k.lower(): v for k, v in r.getheaders()}))
"""


class Box:
    def __init__(self, sandbox: DockerSandbox) -> None:
        self.sandbox = sandbox
        self.calls = CallReader(sandbox.capture_dir / "calls.jsonl", "s1", lambda mono: mono)
        self.proxy: Process | None = None
        self._starts = itertools.count(1)
        self.seen: list[CallRecord] = []

    async def start_proxy(self) -> None:
        ready = asyncio.Event()

        def output(_: Any, lines: list[bytes], __: int) -> None:
            if b"READY" in lines:
                ready.set()

        self.proxy = await self.sandbox.spawn(
            f"proxy-{next(self._starts)}",
            proxy.ARGV,
            user="proxy",
            env=proxy.ENV,
            on_output=output,
            stdin=False,
        )
        async with asyncio.timeout(30):
            await ready.wait()

    async def stop_proxy(self, how: signal.Signals) -> None:
        assert self.proxy is not None
        await self.proxy.signal(how)
        async with asyncio.timeout(20):
            await self.proxy.wait()

    async def python(self, code: str, *args: str, user: User = "agent") -> tuple[int | None, bytes, bytes]:
        """A Python program in the sandbox."""
        done = await self.sandbox.run(["python3", "-c", code, *args], user=user, timeout_s=60)
        return done.rc, done.stdout, done.stderr

    async def call(
        self, path: str = "/agent/v1/messages", user: User = "agent", **spec: Any
    ) -> tuple[int, bytes]:
        """One request through the proxy: status and body. An exception of the client's fails the test."""
        body = {"model": "m-1", "max_tokens": 9, "messages": [{"role": "user", "content": "8€?"}]}
        body |= spec.pop("body", {})
        spec = {"path": path, "body": json.dumps(body), "headers": {}, "source": ("127.0.0.1", 0)} | spec
        rc, out, err = await self.python(CALL, json.dumps(spec), user=user)
        assert rc == 0, err.decode()
        status, _, answer = out.removesuffix(b"\n").partition(b"\n")
        return int(status), answer

    async def records(self, count: int) -> list[CallRecord]:
        """The first `count` records, as soon as they are written."""
        deadline = time.monotonic() + 10
        while len(self.seen) < count:
            assert time.monotonic() < deadline, f"{len(self.seen)} of {count} records"
            self.seen += self.calls.take(None)
            await asyncio.sleep(0.01)  # the file has no other way to say that it grew
        return self.seen

    @property
    def raw(self) -> bytes:
        return self.calls.path.read_bytes()


@asynccontextmanager
async def box(
    backend: ModelBackend | None = None,
    *,
    upstream: str | None = None,
    observer: CallObserver | None = None,
    offset_ns: int = 0,
) -> AsyncIterator[Box]:
    """Proxy and gateway as a life wires them."""
    built = ensure_all(lambda text: None)
    client = docker_client()
    spec = SandboxSpec(built.image, built.runtime, "agent", labels=owner_labels())
    sandbox = DockerSandbox(spec, client)
    profile = ModelProfile(name="test", backend="test" if backend else None, base_url=upstream)
    gateway = Gateway(profile, backend, observer or NobodyWatches(), QUICK)

    def allowed(pid: int, uid: int) -> bool:
        cgroup = Path(f"/proc/{pid}/cgroup").read_text()
        return uid == UIDS["proxy"] and str(sandbox.container_id) in cgroup

    try:
        sandbox.set_offset(offset_ns)
        await gateway.open(sandbox.gateway_dir, UIDS["proxy"], allowed)
        await sandbox.start()
        sandbox.set_offset(offset_ns)
        opened = Box(sandbox)
        await opened.start_proxy()
        yield opened
    finally:
        await gateway.close()
        await sandbox.close()
        client.close()
