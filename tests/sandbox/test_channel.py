"""The line to init: nothing is lost or doubled by a cut, bytes stay bytes, and a flood drowns nobody."""

from __future__ import annotations

import asyncio
import hashlib
import statistics
import time

import pytest

from sclate.sandbox.channel import Event, to_bytes, to_text
from sclate.sandbox.protocol import SandboxError
from tests.sandbox.conftest import NewBox
from tests.sandbox.kit import SOON_S, Box, Lines

pytestmark = pytest.mark.docker


def test_a_cut_in_mid_output_loses_and_doubles_nothing(new_box: NewBox) -> None:
    box = new_box()
    script = """
        import sys, time
        for n in range(40_000):
            print(n)
            if n % 100 == 0:
                time.sleep(0.001)
        input()
        print("end", file=sys.stderr)
    """

    async def scene() -> Lines:
        lines = Lines()
        process = await box.spawn_python("long", script, lines)
        for cut in range(8):
            await lines.more_than(cut * 2000)
            await box.sandbox.channel.disconnect()
            await asyncio.sleep(0.01)  # meanwhile it goes on printing
            await box.sandbox.channel.connect(SOON_S)
        await process.write(b"\n")
        assert await process.wait() == 0
        await process.drained()
        return lines

    lines = box.do(scene())
    assert lines.stdout == [str(n).encode() for n in range(40_000)]
    assert lines.stderr == [b"end"]


def test_an_end_in_the_engine_s_absence_is_told_after_it(new_box: NewBox) -> None:
    box = new_box()

    async def scene() -> int:
        process = await box.sandbox.spawn("short", ["sh", "-c", "read x; exit 5"], user="agent")
        await process.write(b"go\n")
        await box.sandbox.channel.ask("ping", "pong", timeout_s=5)  # init has the line
        await box.sandbox.channel.disconnect()
        with pytest.raises(SandboxError, match="the line to init is gone"):
            await process.signal(9)
        await asyncio.sleep(0.2)
        await box.sandbox.channel.connect(SOON_S)
        return await process.wait()

    assert box.do(scene()) == 5


def test_five_megabytes_of_stdin_arrive_whole(box: Box) -> None:
    data = bytes(range(256)) * 20_000
    script = """
        import hashlib, sys, time
        total, seen = hashlib.sha256(), 0
        time.sleep(0.2)  # so that pipe and line fill up
        while piece := sys.stdin.buffer.read(10_000):
            total.update(piece)
            seen += len(piece)
        print(seen, total.hexdigest())
    """

    async def scene() -> list[bytes]:
        lines = Lines()
        process = await box.spawn_python("reader", script, lines)
        await process.write(data)
        await process.close_stdin()
        assert await process.wait() == 0
        await process.drained()
        with pytest.raises(BrokenPipeError):
            await process.write(b"late")
        return lines.stdout

    assert box.do(scene()) == [f"{len(data)} {hashlib.sha256(data).hexdigest()}".encode()]


def test_any_bytes_are_kept(box: Box) -> None:
    want = bytes(range(256)) + b"\n\n\xf0\x9f\n" + bytes(range(255, -1, -1))
    every = f"import sys; sys.stdout.buffer.write(bytes.fromhex('{want.hex()}'))"
    assert box.run("python3", "-c", every).stdout == want, "a last line without its end stays without"

    async def by_lines() -> list[bytes]:
        lines = Lines()
        process = await box.sandbox.spawn("bytes", ["python3", "-c", every], user="agent", on_output=lines)
        await process.wait()
        await process.drained()
        return lines.stdout

    assert box.do(by_lines()) == want.split(b"\n")


@pytest.mark.parametrize("data", [b"", b"\xff\xfe", b"\xed\xa0\x80", "\N{SNOWMAN}\x00".encode(), b"\x80" * 3])
def test_text_of_the_line_is_the_bytes(data: bytes) -> None:
    assert to_bytes(to_text(data)) == data


def test_a_character_cut_in_two_is_whole_again(box: Box) -> None:
    """Two reads of the pipe, one character."""
    script = r"""
        import os, time
        os.write(1, b"caf\xc3"); time.sleep(0.1); os.write(1, b"\xa9\n")
    """
    assert box.python(script) == "café"


def test_a_line_longer_than_init_keeps_is_put_together_again(box: Box) -> None:
    result = box.run("sh", "-c", "head -c 20000000 /dev/zero | tr '\\0' z; echo", max_output=30_000_000)
    assert result.stdout == b"z" * 20_000_000 + b"\n"


def test_output_beyond_the_limit_is_cut_and_said_to_be(box: Box) -> None:
    result = box.run("sh", "-c", "yes | head -c 3000000; echo err >&2", max_output=1_000_000)
    assert (result.rc, len(result.stdout), result.truncated, result.stderr) == (0, 1_000_000, True, b"err\n")
    assert not box.run("echo", "short").truncated


def test_a_flood_drowns_neither_init_nor_its_answers(new_box: NewBox) -> None:
    """50 MB of output; the engine is answered meanwhile, and init's memory stays where it is."""
    box = new_box()

    async def scene() -> tuple[int, list[float], int]:
        got = 0

        def count(_stream: str, lines: list[bytes], _at: int) -> None:
            nonlocal got
            got += sum(map(len, lines)) + len(lines)

        argv = ["sh", "-c", "yes 0123456789abcde | head -c 50000000"]
        process = await box.sandbox.spawn("flood", argv, user="agent", on_output=count)
        waits = []
        ended = asyncio.create_task(process.drained())
        while not ended.done():
            before = time.monotonic()
            await box.sandbox.channel.ask("ping", "pong", timeout_s=SOON_S)
            waits.append(time.monotonic() - before)
        stats = await box.sandbox.channel.ask("stats", "stats", timeout_s=SOON_S)
        return got, waits, int(stats["VmHWM"])

    got, waits, peak_kb = box.do(scene())
    assert got == 50_000_000
    assert peak_kb < 100_000
    assert len(waits) > 5, "pings were answered during the flood, not after it"
    assert statistics.median(waits) < 1.0
    assert max(waits) < 5.0


def test_a_reader_that_stalls_stops_the_flood_and_not_init(new_box: NewBox) -> None:
    """Without anyone to send to, init stops reading pipes: the process waits, the host's disk does not fill."""
    box = new_box()
    outbox = box.sandbox.gateway_dir.parent / "ctl" / "outbox.jsonl"

    async def scene() -> int:
        process = await box.sandbox.spawn("flood", ["yes", "0123456789abcde"], user="agent")
        await box.sandbox.channel.ask("ping", "pong", timeout_s=SOON_S)
        time.sleep(1.5)  # noqa: ASYNC251 - the event loop itself stalls
        size = outbox.stat().st_size
        await process.signal(9)
        assert await process.wait() == -9
        return size

    assert box.do(scene()) < 16 << 20


def test_a_request_that_was_executed_before_is_ignored(new_box: NewBox) -> None:
    """So an engine may send again what it is not sure of."""
    box = new_box()
    spawn = {"op": "spawn", "argv": ["touch", "/tmp/twice"], "env": {}, "cwd": "/", "uid": 64001}

    async def scene() -> dict[str, object]:
        channel = box.sandbox.channel
        for _ in range(3):
            channel.send("signal", id="nobody", sig=1)
        channel._write({"seq": 2, "id": "old", **spawn}, record=False)
        await channel.ask("ping", "pong", timeout_s=5)
        await channel.disconnect()
        await channel.connect(SOON_S)
        channel._write({"seq": 3, "id": "old", **spawn}, record=False)
        return await channel.ask("stats", "stats", timeout_s=5)

    assert box.do(scene())["processes"] == 0
    assert box.run("test", "-e", "/tmp/twice").rc == 1
    assert box.out("sh", "-c", "touch /tmp/twice; ls /tmp") == "twice"


def test_a_bad_request_is_an_event_and_not_the_end(box: Box) -> None:
    async def scene() -> None:
        errors: list[Event] = []
        box.sandbox.channel._on_event, kept = errors.append, box.sandbox.channel._on_event
        for bad in ("no_such_op", "spawn", "__init__"):
            box.sandbox.channel.send(bad, id="x")
        await box.sandbox.channel.ask("ping", "pong", timeout_s=5)
        box.sandbox.channel._on_event = kept
        assert [(e["ev"], e["id"]) for e in errors] == [("error", "x")] * 3

    box.do(scene())


def test_twenty_commands_at_once_do_not_mix(box: Box) -> None:
    async def scene() -> list[bytes]:
        commands = [
            box.sandbox.run(["sh", "-c", f"sleep 0.05; echo {n}; sleep 0.05; echo {n}"], user="agent")
            for n in range(20)
        ]
        return [result.stdout for result in await asyncio.gather(*commands)]

    assert box.do(scene()) == [f"{n}\n{n}\n".encode() for n in range(20)]
