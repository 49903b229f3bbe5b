"""What the agent's user can and cannot reach from inside. Each check is made as that user, in a real sandbox."""

from __future__ import annotations

import json
import re
import socket
import time
from collections.abc import Iterator
from typing import Any

import pytest

from sclate.errors import PrerequisiteError
from sclate.sandbox.protocol import Limits, SandboxError
from tests.sandbox.conftest import NewBox
from tests.sandbox.kit import Box

pytestmark = pytest.mark.docker


def refusals(box: Box, attempts: dict[str, str], user: Any = "agent") -> dict[str, str]:
    """What became of each attempt (a Python statement): the error's name, or 'done'."""
    script = """
        import ctypes, json, os, signal, socket, sys
        results = {}
        for name, statement in json.loads(sys.argv[1]).items():
            try:
                exec(statement)
                results[name] = "done"
            except OSError as error:
                results[name] = type(error).__name__
        print(json.dumps(results))
    """
    answer: dict[str, str] = json.loads(box.python(script, json.dumps(attempts), user=user))
    return answer


@pytest.mark.parametrize("user", ["agent", "memory"])
def test_the_engine_s_folders_and_processes_are_out_of_reach(box: Box, user: Any) -> None:
    folders = {f"{do} {name}": f"os.{call}('/run/sclate/{name}')" for name in ("ctl", "x", "gw", "proxy")
               for do, call in (("list", "listdir"), ("enter", "chdir"), ("open up", "rmdir"))}  # fmt: skip
    attempts = {
        **folders,
        "init's socket": "socket.socket(socket.AF_UNIX).connect('/run/sclate/ctl/init.sock')",
        "kill init": "os.kill(1, signal.SIGKILL)",
        "end init": "os.kill(1, signal.SIGTERM)",
        "init's environment": "open('/proc/1/environ').read()",
        "init's memory": "open('/proc/1/mem', 'rb').read(1)",
        "init's files": "os.listdir('/proc/1/fd')",
        "init's root": "os.listdir('/proc/1/root')",
    }
    found = refusals(box, attempts, user)
    mild = {name for name, result in found.items() if result not in ("PermissionError", "OSError")}
    assert mild == set(), found
    assert found["kill init"] == "PermissionError"


def test_nothing_but_its_own_places_can_be_written(box: Box) -> None:
    closed = ("/", "/etc", "/usr", "/root", "/home", "/opt/sclate", "/opt/sclate/sclate", "/run",
              "/run/sclate", "/run/sclate/clock", "/run/mitmproxy", "/home/memory", "/var/tmp", "/srv")  # fmt: skip
    attempts = {path: f"open('{path}/new', 'w')" for path in closed} | {
        "clock": "open('/run/sclate/clock/rc', 'w')",
        "clock gone": "os.unlink('/run/sclate/clock/rc')",
        "preload": "open('/etc/ld.so.preload', 'a')",
        "preload gone": "os.unlink('/etc/ld.so.preload')",
        "kernel": "open('/proc/sys/kernel/hostname', 'w')",
        "sysrq": "open('/proc/sysrq-trigger', 'w')",
    }
    found = refusals(box, attempts)
    assert {name for name, result in found.items() if result == "done"} == set(), found
    open_ = ("/work", "/home/agent", "/tmp", "/dev/shm")
    assert refusals(box, {p: f"open('{p}/new', 'w'); os.unlink('{p}/new')" for p in open_}) == dict.fromkeys(
        open_, "done"
    )


def test_no_privilege_and_no_way_to_one(box: Box) -> None:
    status = dict(
        line.split(":\t", 1) for line in box.out("cat", "/proc/self/status").splitlines() if ":\t" in line
    )
    assert status["CapEff"] == status["CapPrm"] == status["CapInh"] == status["CapAmb"] == "0" * 16
    assert int(status["CapBnd"], 16) == 1 << 5 | 1 << 6 | 1 << 7, (
        "KILL, SETGID, SETUID: init's, nobody else's"
    )
    assert status["NoNewPrivs"] == "1"
    assert status["Seccomp"] == "2"
    assert status["Uid"].split() == ["64001"] * 4
    assert status["Gid"].split() == ["64001"] * 4
    assert status["Groups"].strip() == ""
    attempts = {
        "become root": "os.setuid(0)",
        "become the proxy": "os.setuid(64003)",
        "join root": "os.setgid(0)",
        "chroot": "os.chroot('/tmp')",
        "own": "os.chown('/tmp', 64001, 64001)",
        "user namespace": "if ctypes.CDLL(None).unshare(0x10000000): raise PermissionError",
        "mount": "if ctypes.CDLL(None).mount(b'/tmp', b'/work', None, 4096, None): raise PermissionError",
        "clock": "import time; time.clock_settime(time.CLOCK_REALTIME, 0)",
        "raw socket": "socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)",
        "packet socket": "socket.socket(socket.AF_INET, 10)",
        "better oom score": "os.write(os.open('/proc/self/oom_score_adj', os.O_WRONLY), b'-1')",
    }
    assert refusals(box, attempts) == dict.fromkeys(attempts, "PermissionError")
    assert box.run("su", "-c", "true").rc != 0
    assert box.out("cat", "/proc/self/oom_score_adj") == "500"
    assert box.out("sh", "-c", "ulimit -c") == "0"


@pytest.fixture
def listener() -> Iterator[int]:
    """A port on the host's loopback that would answer."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield int(server.getsockname()[1])


def test_no_network_and_no_host(box: Box, listener: int) -> None:
    started = time.monotonic()
    attempts = {
        "out": "socket.create_connection(('1.1.1.1', 443), 5)",
        "out by v6": "socket.create_connection(('2606:4700:4700::1111', 443), 5)",
        "bridge": "socket.create_connection(('172.17.0.1', 22), 5)",
        "host's loopback": f"socket.create_connection(('127.0.0.1', {listener}), 5)",
        "name": "socket.getaddrinfo('example.com', 80)",
        "udp": "socket.socket(type=socket.SOCK_DGRAM).sendto(b'x', ('8.8.8.8', 53))",
        "engine": "socket.socket(socket.AF_UNIX).connect('/var/run/docker.sock')",
        "engine again": "socket.socket(socket.AF_UNIX).connect('/run/docker.sock')",
    }
    found = refusals(box, attempts)
    assert "done" not in found.values(), found
    assert "TimeoutError" not in found.values(), "a refusal must come at once"
    assert time.monotonic() - started < 5
    assert box.out("sh", "-c", "ls /sys/class/net") == "lo"


@pytest.mark.parametrize("user", ["agent", "memory", "proxy", "root"])
def test_no_kind_of_socket_that_no_network_does_not_confine(box: Box, user: Any) -> None:
    """vsock reaches the hypervisor from any network namespace; and there are calls that make sockets unseen."""
    script = """
        import ctypes, errno, json, socket, subprocess, sys
        made, refused = [], {}
        for family in range(1, 64):
            for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_RAW, socket.SOCK_SEQPACKET):
                try:
                    socket.socket(family, kind).close()
                    made.append(family)
                except OSError as error:
                    refused.setdefault(family, set()).add(errno.errorcode[error.errno])
        libc = ctypes.CDLL(None, use_errno=True)
        ring = libc.syscall(425, 1, ctypes.create_string_buffer(200))
        ring_error = errno.errorcode[ctypes.get_errno()]
        pair = libc.socketpair(40, 1, 0, ctypes.create_string_buffer(8))
        pair_error = errno.errorcode[ctypes.get_errno()]
        vsock = "import socket; socket.socket(40, socket.SOCK_STREAM).connect((2, 1))"
        child = subprocess.run([sys.executable, "-c", vsock], capture_output=True, text=True).stderr
        print(json.dumps({
            "made": sorted(set(made)), "vsock": sorted(refused[40]), "bluetooth": sorted(refused[31]),
            "ring": [ring, ring_error], "pair": [pair, pair_error], "child": child.splitlines()[-1],
        }))
    """
    found = json.loads(box.python(script, user=user))
    assert set(found["made"]) == {socket.AF_UNIX, socket.AF_INET, socket.AF_INET6, socket.AF_NETLINK}
    assert found["vsock"] == found["bluetooth"] == ["EAFNOSUPPORT"]
    assert found["ring"] == [-1, "ENOSYS"]
    assert found["pair"] == [-1, "EAFNOSUPPORT"]
    assert found["child"] == "OSError: [Errno 97] Address family not supported by protocol"


def test_the_sockets_that_programs_need_work(box: Box) -> None:
    talk = """
        import asyncio, socket
        async def main():
            server = await asyncio.start_server(lambda r, w: (w.write(b"hello"), w.close()), "127.0.0.1", 0)
            reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
            print((await reader.read()).decode(), socket.socketpair()[0].family.name, socket.if_nameindex())
            writer.close()
        asyncio.run(main())
    """
    assert box.python(talk) == "hello AF_UNIX [(1, 'lo')]"


def test_nothing_inside_names_the_run(new_box: NewBox) -> None:
    """The agent reads mount sources, its cgroup, hostname, environment and every command line."""
    box = new_box(labels={"sclate.life": "secret-arm-of-benchmark"})
    files = (
        "/proc/self/mountinfo /proc/self/cgroup /proc/*/cmdline /etc/hostname /proc/self/environ /etc/hosts"
    )
    text = box.run("sh", "-c", f"cat {files} 2>/dev/null; env").stdout.decode(errors="replace")
    assert "/run/sclate/clock" in text
    for word in ("secret", "arm", "benchmark", "grader", "metaclaw"):
        assert word not in text.replace("warm", "").lower(), word
    sources = [line.split()[3] for line in text.splitlines() if "/run/sclate/" in line and " - " in line]
    assert sources
    assert all(re.fullmatch(r"sclate-[0-9]+-[0-9]+-\w+", source.split("/")[-2]) for source in sources), (
        sources
    )


def test_a_full_disk_is_only_an_error(new_box: NewBox) -> None:
    box = new_box(limits=Limits(memory_mb=256, workspace_mb=4, home_mb=4, tmp_mb=4))
    for place in ("/work", "/home/agent", "/tmp", "/dev/shm"):
        result = box.run("sh", "-c", f"head -c 64M /dev/zero > {place}/big")
        assert b"No space left" in result.stderr, place
    assert box.do(box.sandbox.probe_clock()) >= 0
    assert box.out("sh", "-c", "rm /work/big; echo ok > /work/f; cat /work/f") == "ok"


def test_out_of_memory_ends_the_agent_and_not_init(new_box: NewBox) -> None:
    box = new_box(limits=Limits(memory_mb=128))
    result = box.run("python3", "-c", "x = bytearray(1 << 30)")
    assert result.rc == -9
    assert box.out("echo", "still works") == "still works"


def test_one_sandbox_sees_nothing_of_another(new_box: NewBox) -> None:
    one, two = new_box(), new_box()
    one.out("sh", "-c", "echo mine > /tmp/mark; echo mine > /work/mark; echo mine > /dev/shm/mark")
    assert two.run("sh", "-c", "ls /tmp /work /dev/shm").stdout.count(b"mark") == 0
    assert one.out("sh", "-c", "ls -d /proc/[0-9]* | wc -l") in ("2", "3", "4"), "its own processes only"


def test_a_missing_image_is_something_the_user_can_mend(new_box: NewBox) -> None:
    with pytest.raises(PrerequisiteError, match="image sclate/none:never is missing"):
        new_box(image="sclate/none:never")


def test_a_program_that_cannot_start_is_named(box: Box) -> None:
    with pytest.raises(SandboxError, match="cannot start nonesuch: FileNotFoundError"):
        box.run("nonesuch")
    with pytest.raises(SandboxError, match="cannot start true: PermissionError"):
        box.run("true", cwd="/run/sclate/ctl")
