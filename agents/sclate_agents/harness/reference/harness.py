"""The reference harness: a small agent that runs as a real process in the sandbox.

One file, stdlib only. It speaks Anthropic Messages (streaming) to $ANTHROPIC_BASE_URL and JSON lines on its
pipes; docs/harnesses/reference.md has the protocol. Every start is a new conversation; what carries over is
what lies in its memory folder, its cron store and its transcripts.
"""

import datetime
import http.client
import itertools
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
import urllib.parse

HOME = os.environ.get("REFERENCE_HOME", os.path.expanduser("~/.reference"))
MEMORY = os.environ.get("REFERENCE_MEMORY_DIR")
MODEL = os.environ.get("REFERENCE_MODEL", "model")
BASE_URL = os.environ.get("ANTHROPIC_BASE_URL", "http://127.0.0.1:8080/agent")
MAX_CALLS = 40
MAX_OUTPUT = 60_000
MAX_MEMORY = 200_000
RETRIES = 3

TOOLS = [
    {
        "name": "bash",
        "description": "Run a shell command in the working directory; returns its output.",
        "input_schema": {
            "type": "object",
            "properties": {"command": {"type": "string"}, "timeout_s": {"type": "number"}},
            "required": ["command"],
        },
    },
    {
        "name": "read",
        "description": "Read a text file.",
        "input_schema": {
            "type": "object",
            "properties": {"path": {"type": "string"}},
            "required": ["path"],
        },
    },
    {
        "name": "write",
        "description": "Write a text file, making its folders.",
        "input_schema": {
            "type": "object",
            "properties": {"path": {"type": "string"}, "content": {"type": "string"}},
            "required": ["path", "content"],
        },
    },
    {
        "name": "schedule",
        "description": "Wake me with this prompt at every time of a five-field cron expression.",
        "input_schema": {
            "type": "object",
            "properties": {
                "id": {"type": "string"},
                "cron": {"type": "string"},
                "zone": {"type": "string"},
                "prompt": {"type": "string"},
            },
            "required": ["cron", "zone", "prompt"],
        },
    },
    {
        "name": "unschedule",
        "description": "Take a schedule away.",
        "input_schema": {"type": "object", "properties": {"id": {"type": "string"}}, "required": ["id"]},
    },
]


class CallError(Exception):
    """The endpoint did not answer after all retries."""


class Refused(Exception):
    """The endpoint does not take this request; asking again is of no use."""


def emit(type_, **fields):
    sys.stdout.write(json.dumps({"type": type_, **fields}) + "\n")
    sys.stdout.flush()


def system_prompt():
    now = datetime.datetime.now().astimezone()
    lines = [
        "You are an assistant that works on files with tools.",
        f"Working directory: {os.getcwd()}",
        f"Current date: {now.strftime('%A')} {now.isoformat(timespec='seconds')}",
    ]
    if MEMORY:
        lines += [
            f"Memory directory: {MEMORY}",
            "What should be known in later conversations is to be appended there, as Markdown.",
        ]
        left = MAX_MEMORY
        names = sorted(n for n in os.listdir(MEMORY) if n.endswith(".md")) if os.path.isdir(MEMORY) else []
        for name in names:
            path = os.path.join(MEMORY, name)
            if not os.path.isfile(path):
                continue
            with open(path, encoding="utf-8", errors="replace") as note:
                text = note.read(left)
            left -= len(text)
            lines.append(f'<memory file="{name}">\n{text}\n</memory>')
    return "\n".join(lines)


class Crons:
    """The harness's own store of schedules; it is woken by a `cron` line, it does not watch the clock."""

    def __init__(self):
        self.path = os.path.join(HOME, "crons.json")
        self.jobs = {}
        try:
            with open(self.path) as store:
                self.jobs = dict(json.load(store))
        except FileNotFoundError:
            pass
        except (OSError, ValueError, TypeError) as error:  # the agent's own shell may have damaged it
            sys.stderr.write(f"{self.path} is damaged, starting without schedules: {error}\n")

    def save(self):
        with open(self.path + ".new", "w") as store:
            json.dump(self.jobs, store, indent=1)
        os.replace(self.path + ".new", self.path)

    def set(self, cron, zone, prompt, id=None):
        if len(cron.split()) != 5:
            return "error: a cron expression has five fields", True
        key = id or next(k for k in (f"job-{n}" for n in itertools.count(1)) if k not in self.jobs)
        self.jobs[key] = {"cron": cron, "zone": zone, "prompt": prompt}
        self.save()
        emit("cron_set", id=key, cron=cron, zone=zone, prompt=prompt)
        return f"scheduled as {key}", False

    def clear(self, id):
        if self.jobs.pop(id, None) is None:
            return f"error: no schedule {id}", True
        self.save()
        emit("cron_cleared", id=id)
        return f"removed {id}", False


class Output:
    """What a command says: the beginning and the end are kept, whatever its length."""

    def __init__(self, pipe):
        self.head, self.tail, self.cut = b"", b"", False
        self.pipe = pipe
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self):
        while True:
            data = self.pipe.read1(65536)
            if not data:
                return
            if len(self.head) < MAX_OUTPUT // 2:
                self.head += data
            else:
                self.tail = (self.tail + data)[-MAX_OUTPUT // 2 :]
                self.cut = self.cut or len(self.tail) == MAX_OUTPUT // 2

    def text(self):
        return (self.head + (b"\n... (cut) ...\n" if self.cut else b"") + self.tail).decode(
            "utf-8", "replace"
        )


def bash(command, timeout_s=120):
    """A command in a process group of its own, killed as a whole at its time limit. What it leaves running
    in the background goes on, and the turn does not wait for it."""
    process = subprocess.Popen(
        ["bash", "-c", command],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    output = Output(process.stdout)
    try:
        process.wait(timeout_s)
        note = f"\n(exit code {process.returncode})" if process.returncode else ""
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        note = f"\n(killed after {timeout_s:g} s)"
    output.reader.join(0.5)  # a background process may hold the pipe for ever
    return output.text() + note, bool(note)


def read(path):
    if os.path.exists(path) and not os.path.isfile(path):
        return f"error: {path} is no plain file", True
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read(MAX_OUTPUT), False


def write(path, content):
    os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        file.write(content)
    return f"wrote {len(content)} characters to {path}", False


class Harness:
    def __init__(self):
        os.makedirs(os.path.join(HOME, "transcripts"), exist_ok=True)
        if MEMORY:
            os.makedirs(MEMORY, exist_ok=True)
        name = datetime.datetime.now().strftime("%Y%m%dT%H%M%S.%f") + ".jsonl"
        self.transcript = open(os.path.join(HOME, "transcripts", name), "a", encoding="utf-8")
        self.crons = Crons()
        self.system = system_prompt()
        self.messages = []
        self.inbox = queue.Queue()  # lines of stdin, then None
        self.turn = 0
        self.ended = False
        self.tools = {
            "bash": bash,
            "read": read,
            "write": write,
            "schedule": self.crons.set,
            "unschedule": self.crons.clear,
        }

    def log(self, message):
        self.messages.append(message)
        stamp = datetime.datetime.now().astimezone().isoformat()
        self.transcript.write(json.dumps({"timestamp": stamp, **message}) + "\n")
        self.transcript.flush()

    # --- input ------------------------------------------------------------------------------------------

    def listen(self):
        for raw in sys.stdin.buffer:
            try:
                line = json.loads(raw)
                self.inbox.put({"type": line["type"], "id": line["id"], "text": line["text"]})
            except (ValueError, KeyError, TypeError) as error:
                sys.stderr.write(f"no line of the protocol: {type(error).__name__}: {error}\n")
        self.inbox.put(None)

    def waiting(self):
        """What has arrived and not been read yet, without waiting."""
        lines = []
        while True:
            try:
                line = self.inbox.get_nowait()
            except queue.Empty:
                return lines
            if line is None:
                self.ended = True
                return lines
            lines.append(line)

    def run(self):
        threading.Thread(target=self.listen, daemon=True).start()
        emit("alive")
        emit("idle")
        while not self.ended:
            line = self.inbox.get()
            if line is None:
                break
            self.take_turn(line)
            if self.inbox.empty():
                emit("idle")

    # --- a turn -----------------------------------------------------------------------------------------

    def take_turn(self, line):
        self.turn += 1
        emit("turn_started", turn=self.turn, trigger=line["type"])
        emit("consumed", ids=[line["id"]])
        self.log({"role": "user", "content": [{"type": "text", "text": line["text"]}]})
        text, stop = "", "max_calls"
        try:
            for _ in range(MAX_CALLS):
                reply = self.call()
                self.log({"role": "assistant", "content": reply["content"]})
                text = "\n".join(b["text"] for b in reply["content"] if b["type"] == "text")
                uses = [b for b in reply["content"] if b["type"] == "tool_use"]
                if not uses:
                    stop = reply["stop_reason"]
                    break
                content = [self.use(block) for block in uses]
                content += [{"type": "text", "text": line["text"]} for line in self.interjected()]
                self.log({"role": "user", "content": content})
        except CallError as error:
            stop = "error"
            emit("error", message=str(error))
        emit("turn_finished", turn=self.turn, text=text, stop=stop)

    def interjected(self):
        """Messages that came in mid-turn are taken up by the next model call."""
        lines = self.waiting()
        if lines:
            emit("consumed", ids=[line["id"] for line in lines])
        return lines

    def use(self, block):
        try:
            text, is_error = self.tools[block["name"]](**block["input"])
        except Exception as error:  # whatever the model asked for, the turn goes on
            text, is_error = f"{type(error).__name__}: {error}", True
        return {
            "type": "tool_result",
            "tool_use_id": block["id"],
            "content": text or "(no output)",
            "is_error": is_error,
        }

    # --- the model --------------------------------------------------------------------------------------

    def call(self):
        body = json.dumps(
            {
                "model": MODEL,
                "max_tokens": 8192,
                "system": self.system,
                "messages": self.messages,
                "tools": TOOLS,
                "stream": True,
            }
        )
        problem = ""
        for attempt in range(RETRIES + 1):
            if attempt:
                time.sleep(0.2 * 2**attempt)
            try:
                return self.request(body)
            except Refused as error:
                raise CallError(str(error)) from None
            except (OSError, http.client.HTTPException, ValueError, LookupError, TypeError) as error:
                problem = f"{type(error).__name__}: {error}"
        raise CallError(problem)

    def request(self, body):
        url = urllib.parse.urlsplit(BASE_URL)
        connection = http.client.HTTPConnection(url.hostname, url.port or 80, timeout=600)
        headers = {
            "content-type": "application/json",
            "anthropic-version": "2023-06-01",
            "x-api-key": os.environ.get("ANTHROPIC_API_KEY", "none"),
        }
        try:
            connection.request("POST", url.path.rstrip("/") + "/v1/messages", body.encode(), headers)
            response = connection.getresponse()
            if response.status != 200:
                said = f"HTTP {response.status}: {response.read(2000).decode('utf-8', 'replace')}"
                raise (ValueError if response.status == 429 or response.status >= 500 else Refused)(said)
            return assemble(response)
        finally:
            connection.close()


def assemble(response):
    """A reply from its event stream."""
    blocks, partial, stop = [], {}, None
    for raw in response:
        line = raw.decode("utf-8").rstrip("\r\n")
        if not line.startswith("data:"):
            continue
        event = json.loads(line[5:])
        kind = event["type"]
        if kind == "content_block_start":
            blocks.append(dict(event["content_block"]))
            partial[event["index"]] = ""
        elif kind == "content_block_delta":
            block, delta = blocks[event["index"]], event["delta"]
            if delta["type"] == "text_delta":
                block["text"] += delta["text"]
            elif delta["type"] == "thinking_delta":
                block["thinking"] = block.get("thinking", "") + delta["thinking"]
            elif delta["type"] == "signature_delta":
                block["signature"] = delta["signature"]
            elif delta["type"] == "input_json_delta":
                partial[event["index"]] += delta["partial_json"]
        elif kind == "content_block_stop":
            if blocks[event["index"]]["type"] == "tool_use":
                blocks[event["index"]]["input"] = json.loads(partial[event["index"]] or "{}")
        elif kind == "message_delta":
            stop = event["delta"].get("stop_reason") or stop
        elif kind == "error":
            raise ValueError(f"stream error: {event['error']}")
    if stop is None:
        raise ValueError("the stream ended early")
    return {"content": blocks, "stop_reason": stop}


if __name__ == "__main__":
    Harness().run()
