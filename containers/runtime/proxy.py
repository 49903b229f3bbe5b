"""The capture proxy: mitmproxy in reverse mode on localhost, inside the sandbox, on the real clock.

It dials the gateway's Unix socket itself (there is no other upstream), streams bodies through both ways,
and appends one JSON line per call to calls.jsonl with one write. What a line means is worked out on the
host; here bytes are kept as they were. A caller's route is proved by its uid.
"""

import asyncio
import base64
import json
import logging
import os
import re
import signal
import socket
import struct
import sys
import time
import types

import mitmproxy.version

# Its addons package imports all forty of them (a web framework, LDAP, ...), half of the start-up time of a
# session. Two are needed: the package is put in place without running its __init__.
sys.modules["mitmproxy.addons"] = package = types.ModuleType("mitmproxy.addons")
package.__path__ = [os.path.join(path, "addons") for path in mitmproxy.__path__]

from mitmproxy import http  # noqa: E402
from mitmproxy.addons import next_layer, proxyserver  # noqa: E402
from mitmproxy.master import Master  # noqa: E402
from mitmproxy.options import Options  # noqa: E402
from mitmproxy.proxy import server  # noqa: E402

LISTEN = "reverse:http://127.0.0.1:1@127.0.0.1:8080"
FOLDER = os.environ.get("SCLATE_CAPTURE", "/run/sclate/proxy")
UPSTREAM = os.environ.get("SCLATE_UPSTREAM", "/run/sclate/gw/gateway.sock")
UIDS = json.loads(os.environ.get("SCLATE_ROUTES", '{"agent": 64001, "memory": 64002}'))
MAX_KEPT = 32 << 20  # bytes of a body that are kept in the record (`cut` says so); all of it is passed on
RETRIES_HEADER = "x-sclate-retries"  # from the gateway to the record, not to the caller
SECRETS = re.compile(os.environ.get("SCLATE_SECRETS", r"(?!)"))  # what looks like a key is not written down
SECRET_HEADERS = {"authorization", "x-api-key", "cookie", "set-cookie", "proxy-authorization"}

if mitmproxy.version.VERSION != "11.0.2":
    raise SystemExit(f"built for mitmproxy 11.0.2, this is {mitmproxy.version.VERSION}")


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


def caller_uid(caller, own):
    """The uid at the other end of a loopback connection, from /proc/net/tcp; None when it is gone.

    Whole addresses are compared: another user may hold the same port on another loopback address.
    """
    ends = [
        f"{struct.unpack('=I', socket.inet_aton(host))[0]:08X}:{port:04X}"
        for host, port in (caller[:2], own[:2])
    ]
    with open("/proc/net/tcp") as rows:
        for row in rows:
            fields = row.split()
            if fields[1:4] == [*ends, "01"]:
                return int(fields[7])
    return None


def last_seq(path):
    """Where an earlier proxy of this sandbox stopped counting, and whether it left half a line."""
    seq, torn = 0, False
    if os.path.exists(path):
        with open(path, "rb") as lines:
            for line in lines:
                found = re.match(rb'\{"seq": (\d+),', line)
                seq = max(seq, int(found.group(1))) if found else seq
                torn = not line.endswith(b"\n")
    return seq, torn


def now():
    return {"real_ns": time.time_ns(), "mono_ns": time.monotonic_ns()}


def kept(data):
    """Bytes in a JSON string, as text where they are UTF-8, else base64; and how many secrets were left out.

    In a body that is not UTF-8 they are looked for byte by byte.
    """
    text, n = SECRETS.subn("(redacted)", data.decode("utf-8", "surrogateescape"))
    try:
        text.encode("utf-8")
        return {"text": text}, n
    except UnicodeEncodeError:
        return {"base64": base64.b64encode(text.encode("utf-8", "surrogateescape")).decode()}, n


def plain_headers(headers):
    return {k.lower(): "(redacted)" if k.lower() in SECRET_HEADERS else v for k, v in headers.items()}


class Capture:
    def __init__(self):
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        self.seq, torn = last_seq(f"{FOLDER}/calls.jsonl")
        self.out = os.open(f"{FOLDER}/calls.jsonl", flags, 0o600)
        if torn:
            os.write(self.out, b"\n")  # the next record starts on a line of its own
        self.open = {}

    def done(self):
        for flow in list(self.open.values()):
            self.write(flow, "the proxy was stopped")

    def requestheaders(self, flow):
        self.seq += 1
        route = flow.request.path.lstrip("/").split("/", 1)[0]
        uid = caller_uid(flow.client_conn.peername, flow.client_conn.sockname)
        flow.metadata["call"] = {
            "seq": self.seq,
            "route": route,
            "uid": uid,
            "method": flow.request.method,
            "path": flow.request.path,
            "request_headers": plain_headers(flow.request.headers),
            "start": now(),
        }
        self.open[flow.id] = flow
        if uid != UIDS.get(route, -1):
            flow.response = http.Response.make(403, b"this route is not yours\n")
        else:
            flow.request.stream = self.tap(flow, "request_body")

    def responseheaders(self, flow):
        call = flow.metadata["call"]
        call["retries"] = int(flow.response.headers.pop(RETRIES_HEADER, "0"))
        call["status"] = flow.response.status_code
        call["response_headers"] = plain_headers(flow.response.headers)
        flow.response.stream = self.tap(flow, "response_body", "first_byte")

    def tap(self, flow, name, first=None):
        """Passes a body on as it comes and keeps a copy."""
        call, body = flow.metadata["call"], bytearray()
        flow.metadata[name] = body

        def piece(data):
            if first and data:
                call.setdefault(first, now())
            room = MAX_KEPT - len(body)
            body.extend(data[:room])
            if len(data) > room:
                call["cut"] = True
            return data

        return piece

    def response(self, flow):
        self.write(flow, None)

    def error(self, flow):
        self.write(flow, str(flow.error))

    def write(self, flow, error):
        if self.open.pop(flow.id, None) is None:
            return
        call = flow.metadata["call"]
        if "response_body" not in flow.metadata and flow.response is not None:  # one of our own
            call["status"] = flow.response.status_code
            flow.metadata["response_body"] = flow.response.raw_content or b""
        request, found = kept(bytes(flow.metadata.get("request_body", b"")))
        response, more = kept(bytes(flow.metadata.get("response_body", b"")))
        line = {**call, "request": request, "response": response, "end": now(), "error": error}
        if found or more:
            line["redacted"] = found + more
        flow.metadata.clear()
        os.write(self.out, json.dumps(line, ensure_ascii=False).encode("utf-8", "replace") + b"\n")


class Ready:
    """Says so once the port is bound, or ends the proxy."""

    def __init__(self, listener):
        self.listener = listener

    def running(self):
        servers = list(self.listener.servers)
        if not (servers and all(s.is_running for s in servers)):
            raise SystemExit(f"cannot listen: {[s.last_exception for s in servers]}")
        print("READY", flush=True)


async def main():
    logging.basicConfig(level=logging.WARNING)
    master = Master(Options(confdir="/run/mitmproxy"))
    listener = proxyserver.Proxyserver()
    master.addons.add(listener, next_layer.NextLayer(), Capture(), Ready(listener))
    master.options.update(mode=[LISTEN], connection_strategy="lazy")
    for ending in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(ending, master.shutdown)
    await master.run()


if __name__ == "__main__":
    asyncio.run(main())
