"""Protects `sclate sandbox exec` as a user calls it: exit codes, output to the byte, an end in time."""

from __future__ import annotations

import hashlib
import subprocess
import time
from pathlib import Path

import pytest

from .kit import ARGV, environment, sclate

pytestmark = [pytest.mark.docker, pytest.mark.timeout(300)]

AT = ("sandbox", "exec", "--at", "2031-02-28T09:00Z")


@pytest.mark.parametrize(
    ("command", "code", "said"),
    [
        ("nosuchcmd", 127, "error: nosuchcmd: not found in the sandbox\n"),
        ("/nowhere/cmd", 127, "error: /nowhere/cmd: not found in the sandbox\n"),
        ("/etc/passwd", 126, "error: cannot start /etc/passwd: PermissionError"),
    ],
)
def test_a_command_that_cannot_be_run(command: str, code: int, said: str, tmp_path: Path) -> None:
    done = sclate(*AT, "--", command, cwd=tmp_path)
    assert done.returncode == code
    assert done.stderr.startswith(said)


def test_what_a_command_leaves_running_ends_with_it(tmp_path: Path) -> None:
    started = time.monotonic()
    script = "setsid sleep 1000 & sleep 1001 & seq 1 200000; exit 3"
    done = sclate(*AT, "--", "sh", "-c", script, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (3, "")
    assert done.stdout == "".join(f"{n}\n" for n in range(1, 200_001))
    assert time.monotonic() - started < 30


@pytest.mark.parametrize("limit", ["-1", "0", "nan", "inf"])
def test_a_time_limit_is_more_than_nothing(limit: str, tmp_path: Path) -> None:
    done = sclate(*AT, "--timeout-s", limit, "--", "true", cwd=tmp_path)
    assert done.returncode == 2
    assert f"--timeout-s {limit} is no time limit" in done.stderr


def digest_of_output(script: str, tmp_path: Path) -> tuple[int, int, str, str]:
    """Exit code, size and sha256 of stdout, stderr."""
    run = subprocess.Popen(
        [*ARGV, *AT, "--", "sh", "-c", script],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=tmp_path,
        env=environment(),
    )
    assert run.stdout is not None
    assert run.stderr is not None
    total, size = hashlib.sha256(), 0
    while piece := run.stdout.read(1 << 20):
        total.update(piece)
        size += len(piece)
    said = run.stderr.read().decode()
    run.stdout.close()
    run.stderr.close()
    return run.wait(timeout=60), size, total.hexdigest(), said


def test_output_of_70_MB_is_whole_and_more_than_can_be_kept_is_no_success(tmp_path: Path) -> None:
    line = "x" * 99 + "\n"
    code, size, digest, said = digest_of_output(f"yes {line[:-1]} | head -n 700000", tmp_path)
    assert (code, size, said) == (0, 70_000_000, "")
    assert digest == hashlib.sha256(line.encode() * 700_000).hexdigest()
    code, size, _, said = digest_of_output("yes | head -c 200000000", tmp_path)
    assert code == 1
    assert size < 200_000_000
    assert said == f"error: {200_000_000 - size} bytes of output are lost: there was too much of it\n"


def test_output_comes_before_the_end_and_may_find_no_reader(tmp_path: Path) -> None:
    run = subprocess.Popen(
        [*ARGV, *AT, "--", "sh", "-c", "echo up; sleep 2; yes; sleep 600"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
        env=environment(),
    )
    assert run.stdout is not None
    assert run.stderr is not None
    assert run.stdout.readline() == "up\n"
    assert run.poll() is None
    run.stdout.close()
    assert run.wait(timeout=60) == 141, "as when a pipe breaks"
    assert run.stderr.read() == ""
    run.stderr.close()


def test_a_reader_who_takes_his_time_does_not_stop_the_clock(tmp_path: Path) -> None:
    """A pager that shows its first page; what it has not taken yet it still gets."""
    run = subprocess.Popen(
        [*ARGV, *AT[:2], "--timeout-s", "1", *AT[2:], "--", "sh", "-c", "seq 1 100000; sleep 600"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
        env=environment(),
    )
    assert run.stderr is not None
    assert run.stderr.readline() == "killed after 1 s\n"
    assert run.stdout is not None
    assert run.stdout.read().split()[-1] == "100000"
    run.communicate()
    assert run.returncode == 1
