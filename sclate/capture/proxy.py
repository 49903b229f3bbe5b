"""The capture proxy's process in a sandbox; the program itself is `containers/runtime/proxy.py`."""

from __future__ import annotations

import asyncio

from sclate.logs import KEY_TEXT
from sclate.sandbox.protocol import Sandbox, SandboxError

BASE_URL = "http://127.0.0.1:8080"
"""Where it listens inside; a caller's route is the first part of the path."""
ARGV = ("/opt/sclate/bin/python", "/opt/sclate/sclate/proxy.py")
ENV = {"HOME": "/run/mitmproxy", "PATH": "/usr/bin:/bin", "SCLATE_SECRETS": KEY_TEXT.pattern}
START_S = 30.0


async def start_proxy(sandbox: Sandbox) -> None:
    """Returns once it listens.

    Raises:
        SandboxError: it does not, within `START_S` real seconds.
    """
    ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    said: list[bytes] = []

    def output(_: str, lines: list[bytes], __: int) -> None:
        said.extend(lines)
        if b"READY" in lines and not ready.done():
            ready.set_result(None)

    await sandbox.spawn("proxy", ARGV, user="proxy", env=ENV, on_output=output, stdin=False)
    try:
        async with asyncio.timeout(START_S):
            await ready
    except TimeoutError:
        tail = b"\n".join(said[-10:]).decode("utf-8", "backslashreplace")
        raise SandboxError(f"the capture proxy did not come up: {tail}") from None
