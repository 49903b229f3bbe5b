# LEAD: this file is built, committed and in use (sclate/life.py runs on it). Do NOT rewrite it or change its API; fix bugs only, add tests; then report.
"""The capture proxy's addon: mitmproxy in reverse mode on localhost, inside the sandbox, on the real clock.

It dials the gateway's Unix socket itself (there is no other upstream), streams bodies through both ways,
and appends one JSON line per call to calls.jsonl with one write. What a line means is worked out on the
host; here bytes are kept as they were. A caller's route is proved by its uid.
"""

import asyncio
import base64
import json
import os
import time

import mitmproxy.version
from mitmproxy import http
from mitmproxy.proxy import server

FOLDER = os.environ.get("SCLATE_CAPTURE", "/run/sclate/proxy")
UPSTREAM = os.environ.get("SCLATE_UPSTREAM", "/run/sclate/gw/gateway.sock")
UIDS = json.loads(os.environ.get("SCLATE_ROUTES", '{"agent": 64001, "memory": 64002}'))
MAX_KEPT = 32 << 20  # bytes of a body that are kept in the record; all of it is passed on
SECRET_HEADERS = {"authorization", "x-api-key", "cookie", "set-cookie", "proxy-authorization"}

if not mitmproxy.version.VERSION.startswith("11.0."):
    raise SystemExit(f"built for mitmproxy 11.0, this is {mitmproxy.version.VERSION}")


async def dial(host=None, port=None, **_):
    if (host, port) != ("127.0.0.1", 1):
        raise OSError(f"upstream not allowed: {host}:{port}")
    return await asyncio.open_unix_connection(UPSTREAM)


class Dialing:
    """asyncio as `mitmproxy.proxy.server` sees it: the only connection that it can open is the gateway's."""

    open_connection = staticmethod(dial)

    def __getattr__(self, name):
        return getattr(asyncio, name)


server.asyncio = Dialing()


def caller_uid(address, port):
    """The uid at the other end of a loopback connection, from /proc/net/tcp; None when it is gone."""
    local = f":{address[1]:04X}"
    remote = f":{port:04X}"
    with open("/proc/net/tcp") as rows:
        for row in rows:
            fields = row.split()
            if fields[1].endswith(local) and fields[2].endswith(remote) and fields[3] == "01":
                return int(fields[7])
    return None


def now():
    return {"real_ns": time.time_ns(), "mono_ns": time.monotonic_ns()}


def kept(data):
    """Bytes in a JSON string: as text where they are UTF-8, else base64."""
    try:
        return {"text": data.decode("utf-8")}
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


def plain_headers(headers):
    return {k.lower(): "(redacted)" if k.lower() in SECRET_HEADERS else v for k, v in headers.items()}


class Capture:
    def __init__(self):
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        self.out = os.open(f"{FOLDER}/calls.jsonl", flags, 0o600)
        self.seq = 0

    def running(self):
        print("READY", flush=True)

    def requestheaders(self, flow):
        self.seq += 1
        route = flow.request.path.lstrip("/").split("/", 1)[0]
        uid = caller_uid(flow.client_conn.peername, flow.client_conn.sockname[1])
        flow.metadata["call"] = {
            "seq": self.seq,
            "route": route,
            "uid": uid,
            "method": flow.request.method,
            "path": flow.request.path,
            "request_headers": plain_headers(flow.request.headers),
            "start": now(),
        }
        if uid != UIDS.get(route, -1):
            flow.response = http.Response.make(403, b"this route is not yours\n")

    def request(self, flow):
        flow.metadata["call"]["request"] = kept((flow.request.raw_content or b"")[:MAX_KEPT])

    def responseheaders(self, flow):
        call, body = flow.metadata["call"], bytearray()
        call["status"] = flow.response.status_code
        call["response_headers"] = plain_headers(flow.response.headers)
        flow.metadata["body"] = body

        def tap(data):
            if data and "first_byte" not in call:
                call["first_byte"] = now()
            if len(body) < MAX_KEPT:
                body.extend(data)
            return data

        flow.response.stream = tap

    def response(self, flow):
        self.write(flow, None)

    def error(self, flow):
        self.write(flow, str(flow.error))

    def write(self, flow, error):
        call = flow.metadata.get("call")
        if call is None or call.get("written"):
            return
        call["written"] = True
        body = flow.metadata.get("body")
        if body is None:
            body = (flow.response.raw_content if flow.response else None) or b""
        if flow.response is not None:
            call.setdefault("status", flow.response.status_code)
        line = {
            **{k: v for k, v in call.items() if k != "written"},
            "response": kept(bytes(body)),
            "end": now(),
            "error": error,
        }
        os.write(self.out, json.dumps(line, ensure_ascii=False).encode("utf-8", "replace") + b"\n")


addons = [Capture()]
