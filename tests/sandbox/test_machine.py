"""This machine as a build sees it: mirror, certificates, Docker engine, and what is said when one fails."""

from __future__ import annotations

import errno
import os
import shutil
import socket
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from sclate.sandbox import debian
from sclate.sandbox.engine import BuildError, docker_client, explained
from sclate_adapters.errors import PrerequisiteError


def _etc(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


DEBIAN = 'PRETTY_NAME="Debian"\nID=debian\nVERSION_CODENAME=trixie\n'


def test_mirror_from_deb822_sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SCLATE_DEBIAN_MIRROR", raising=False)
    sources = (
        "Types: deb\n# a comment\nURIs: http://mirror.test/debian/\nSuites: trixie trixie-updates\n"
        "Components: main\n contrib\n\n"
        "Types: deb\nURIs: http://mirror.test/security\nSuites: trixie-security\nComponents: main\n"
    )
    other = "Types: deb\nURIs: https://vendor.test/apt\nSuites: trixie\nComponents: main\nEnabled: no\n"
    etc = _etc(
        tmp_path,
        {
            "os-release": DEBIAN,
            "apt/sources.list.d/a.sources": other,
            "apt/sources.list.d/debian.sources": sources,
        },
    )
    mirror = debian.find_mirror(etc)
    assert mirror == debian.Mirror("http://mirror.test/debian", "http://mirror.test/security")
    assert mirror.sources().splitlines() == [
        "deb http://mirror.test/debian bookworm main",
        "deb http://mirror.test/debian bookworm-updates main",
        "deb http://mirror.test/security bookworm-security main",
    ]


def test_mirror_from_one_line_sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SCLATE_DEBIAN_MIRROR", raising=False)
    text = "#deb http://old.test/debian trixie main\ndeb-src http://src.test/debian trixie main\n"
    text += "deb [arch=amd64 signed-by=/x] http://mirror.test/debian trixie main non-free\n"
    etc = _etc(tmp_path, {"os-release": DEBIAN, "apt/sources.list": text})
    assert debian.find_mirror(etc) == debian.Mirror("http://mirror.test/debian")


def test_mirror_of_another_system_is_not_taken_for_debians(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SCLATE_DEBIAN_MIRROR", raising=False)
    text = "deb http://mirror.test/ubuntu noble main\n"
    etc = _etc(tmp_path, {"os-release": "ID=ubuntu\nVERSION_CODENAME=noble\n", "apt/sources.list": text})
    assert debian.find_mirror(etc) is None
    monkeypatch.setenv("SCLATE_DEBIAN_MIRROR", "http://named.test/debian/")
    assert debian.find_mirror(etc) == debian.Mirror("http://named.test/debian")


def test_a_ca_bundle_that_is_not_there_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCLATE_CA_BUNDLE", "/nowhere/ca.pem")
    with pytest.raises(PrerequisiteError, match="is not a file"):
        debian.ca_bundle()


def test_the_named_ca_bundle_reaches_the_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bundle = tmp_path / "ca.pem"
    bundle.write_bytes(b"certificates")
    monkeypatch.setenv("SCLATE_CA_BUNDLE", str(bundle))
    monkeypatch.setenv("SCLATE_DEBIAN_MIRROR", "http://named.test/debian")
    files = debian.host_files()
    assert files["host/ca.pem"] == b"certificates"
    assert files["host/sources.list"] == b"deb http://named.test/debian bookworm main\n"
    assert b"/host/sources.list" in files["host/apt.conf"]


def test_no_engine_is_the_users_to_mend(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")
    with pytest.raises(PrerequisiteError, match="no Docker engine answers"):
        docker_client()


def test_a_socket_that_is_not_ours_is_said() -> None:
    """As an unprivileged user, since root may open every socket."""
    folder = Path("/tmp") / f"sclate-test-{os.getpid()}"
    folder.mkdir(mode=0o755)
    try:
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(folder / "engine.sock"))
            listener.listen()
            (folder / "engine.sock").chmod(0)
            code = (
                "import os\nfrom sclate.sandbox.engine import docker_client\n"
                "if os.geteuid() == 0: os.setgroups([]); os.setuid(65534)\n"
                "try: docker_client()\nexcept Exception as error: print(error)"
            )
            done = subprocess.run(
                [sys.executable, "-c", code],
                env={**os.environ, "DOCKER_HOST": f"unix://{folder}/engine.sock"},
                capture_output=True,
                text=True,
                timeout=60,
                check=False,
            )
    finally:
        shutil.rmtree(folder)
    assert "no permission to use the Docker engine" in done.stdout, done.stderr
    assert "usermod -aG docker" in done.stdout


class _OldEngine(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = b'{"ApiVersion": "1.40", "MinAPIVersion": "1.12"}'
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


def test_an_old_engine_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    with HTTPServer(("127.0.0.1", 0), _OldEngine) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        monkeypatch.setenv("DOCKER_HOST", f"tcp://127.0.0.1:{server.server_port}")
        try:
            with pytest.raises(PrerequisiteError, match=r"too old: it speaks API 1\.40"):
                docker_client()
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize(
    "error",
    [OSError(errno.ENOSPC, "No space left on device"), BuildError("write /x: no space left on device")],
)
def test_a_full_disk_is_said(error: Exception) -> None:
    with pytest.raises(PrerequisiteError, match="the disk is full"), explained("building x"):
        raise error


def test_without_root_the_base_cannot_be_bootstrapped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(PrerequisiteError, match="only root can build it"):
        debian.bootstrap(tmp_path / "base.tar", tmp_path, print)
