"""State by digest: what is saved comes back as it was, and a hostile tree stays where it is."""

from __future__ import annotations

import io
import re
import tarfile
from pathlib import Path

import pytest

from sclate.sandbox.docker import PROGRAMS, PYTHON
from sclate.sandbox.protocol import DigestMismatch, Limits, RunResult, SandboxError, SavedTree, UnsafeArchive
from tests.sandbox.conftest import NewBox
from tests.sandbox.kit import Box

pytestmark = pytest.mark.docker

RICH_TREE = r"""
    import os
    os.makedirs("/work/a/b")
    def file(path, data, mode=0o644, ns=1_900_000_000_123_456_789):
        with open(path, "wb") as out:
            out.write(data)
        os.chmod(path, mode)
        os.utime(path, ns=(ns, ns))
    file("/work/plain", b"x" * 100_000)
    file("/work/a/run.sh", b"#!/bin/sh\n", 0o755, 1)
    file("/work/old", b"", ns=-1_500_000_000)
    file("/work/2500", b"", ns=16_725_225_600_000_000_007)
    file("/work/sealed", b"secret", 0o000)
    file("/work/new\nline", b"1")
    file("/work/" + "n" * 255, b"2")
    file(b"/work/not-utf8-\xff\xfe", b"3")
    file("/work/ spaces ", b"4")
    file("/work/-rf", b"5")
    file("/work/a/b/" + "\N{SNOWMAN}" * 80, b"6")
    os.link("/work/plain", "/work/a/hard")
    os.link("/work/sealed", "/work/a/hard-sealed")
    os.symlink("plain", "/work/soft")
    os.symlink("/etc/shadow", "/work/dangling\n")
    os.symlink("x" * 1000, "/work/long-link")
    os.utime("/work/soft", ns=(7, 7), follow_symlinks=False)
    os.mkdir("/work/empty")
    os.makedirs("/work/closed/inner")
    file("/work/closed/inner/f", b"deep", 0o400)
    os.utime("/work/closed/inner", ns=(5_000_000_009, 5_000_000_009))
    os.chmod("/work/closed/inner", 0o000)
    os.chmod("/work/closed", 0o000)
    os.utime("/work/closed", ns=(6_000_000_009, 6_000_000_009))
    os.chmod("/work", 0o711)
    os.utime("/work", ns=(8_000_000_009, 8_000_000_009))
"""

LISTING = """
    import os, stat
    def show(path):
        s = os.lstat(path)
        link = os.readlink(path) if stat.S_ISLNK(s.st_mode) else ""
        size = 0 if stat.S_ISDIR(s.st_mode) else s.st_size
        print(ascii((path, oct(s.st_mode), s.st_mtime_ns, size, s.st_nlink, link)))
        if stat.S_ISDIR(s.st_mode):
            os.chmod(path, 0o700)
            for name in sorted(os.listdir(path)):
                show(path + "/" + name)
            os.chmod(path, stat.S_IMODE(s.st_mode))
    show("/work")
"""


def save(box: Box) -> SavedTree:
    return box.do(box.sandbox.save(["/work"], "agent"))


def test_a_tree_comes_back_as_it_was_and_saves_to_the_same_digest(new_box: NewBox) -> None:
    first, second = new_box(), new_box()
    first.python(RICH_TREE)
    before = first.python(LISTING)
    one = save(first)
    assert first.python(LISTING) == before, "saving changed the tree"
    assert save(first).digest == one.digest, "the same tree saved twice"
    second.do(second.sandbox.restore(one.path, one.digest, "agent"))
    assert second.python(LISTING) == before
    assert save(second).digest == one.digest
    # A restore over what is there, with the root shut by its owner:
    second.python("import os; open('/work/stray', 'w'); os.chmod('/work', 0)")
    second.do(second.sandbox.restore(one.path, one.digest, "agent", wipe=["/work"]))
    assert second.python(LISTING) == before
    assert save(second).digest == one.digest


def test_a_change_of_one_byte_mode_or_time_is_another_digest(new_box: NewBox) -> None:
    box = new_box()
    box.python("import os; open('/work/f', 'w').write('a'); os.utime('/work/f', ns=(1, 1))")
    box.python("import os; os.utime('/work', ns=(1, 1))")
    digests = [save(box).digest]
    for change in ("open('/work/f', 'w').write('b'); os.utime('/work/f', ns=(1, 1))",
                   "os.chmod('/work/f', 0o600)", "os.utime('/work/f', ns=(2, 2))"):  # fmt: skip
        box.python(f"import os; {change}")
        digests.append(save(box).digest)
    assert len(set(digests)) == 4


@pytest.mark.parametrize(
    ("make", "named"),
    [
        ("os.truncate(os.open('/work/mem/sparse', os.O_CREAT | os.O_RDWR), 1 << 40)", "/work/mem/sparse"),
        ("os.truncate(os.open('/work/mem/a\\nb', os.O_CREAT | os.O_RDWR), 1 << 40)", "/work/mem/a\\nb"),
        (
            "[(os.mkdir('d' * 100), os.chdir('d' * 100)) for _ in [os.chdir('/work/mem')] + [0] * 60]",
            "/work/mem/ddd",
        ),
        ("[(os.mkdir('d'), os.chdir('d')) for _ in [os.chdir('/work/mem')] + [0] * 1500]", "too deep"),
    ],
    ids=["sparse file of 1 TiB", "odd name", "path too long", "nested too deep"],
)
def test_what_cannot_be_kept_is_refused_by_name(box: Box, make: str, named: str) -> None:
    box.python(f"import os; os.mkdir('/work/mem'); {make}")
    with pytest.raises(UnsafeArchive, match=re.escape(named)):
        save(box)
    box.out("rm", "-rf", "/work/mem")


def test_pipes_and_sockets_are_left_out_and_named(new_box: NewBox) -> None:
    """A server that was killed leaves its socket: no reason to lose what it worked on."""
    box = new_box()
    box.python("import os; os.mkdir('/work/run'); open('/work/run/kept', 'w').write('kept')")
    box.out("touch", "-d", "2031-01-01", "/work", "/work/run", "/work/run/kept")
    without = save(box)
    assert without.left_out == ""
    box.python("""
        import os, socket
        os.mkfifo("/work/run/a\\npipe")
        socket.socket(socket.AF_UNIX).bind("/work/run/z.sock")
        os.chdir("/work/run")
        [os.mkfifo(f"many-{n}") for n in range(1000)]
    """)
    box.out("touch", "-d", "2031-01-01", "/work", "/work/run")
    saved = save(box)
    assert saved.digest == without.digest
    assert saved.left_out.startswith("1002 left out: '/work/run/a\\npipe', '/work/run/many-0', ")
    assert len(saved.left_out) < 300
    box.do(box.sandbox.restore(saved.path, saved.digest, "agent", wipe=["/work"]))
    assert box.out("find", "/work") == "/work\n/work/run\n/work/run/kept"
    box.out("mkfifo", "/work/last")
    assert save(box).left_out == "1 left out: '/work/last'"


def test_a_device_cannot_even_be_made(box: Box) -> None:
    result = box.run("python3", "-c", "import os; os.mknod('/work/null', 0o20666, os.makedev(1, 3))")
    assert b"PermissionError" in result.stderr


def test_too_many_bytes_are_refused(new_box: NewBox) -> None:
    box = new_box(limits=Limits(workspace_mb=8, home_mb=4, tmp_mb=4))
    box.python("import os; os.truncate(os.open('/work/big', os.O_CREAT | os.O_RDWR), 17 << 20)")
    with pytest.raises(UnsafeArchive, match="too many bytes at '/work/big'"):
        save(box)


def tool(box: Box, action: str, *args: str, tar: bytes | None = None) -> RunResult:
    """The state tool as the engine runs it, on an archive of the test's own."""
    argv = [PYTHON, "-I", f"{PROGRAMS}/statetool.py", action, *args]
    if tar is None:
        return box.run(*argv)
    name, path = box.sandbox._exchange("test.tar")
    path.write_bytes(tar)
    return box.do(box.sandbox._run(argv, user="agent", timeout_s=20, stdin_file=name))


def test_too_many_files_are_refused(box: Box) -> None:
    box.python("import os; os.mkdir('/work/many'); [open(f'/work/many/{n}', 'w') for n in range(50)]")
    assert tool(box, "save", "--max-files", "52", "/work").rc == 0
    result = tool(box, "save", "--max-files", "40", "/work")
    assert result.rc == 3
    assert b"too many files at '/work/many/" in result.stderr
    box.out("rm", "-rf", "/work/many")


def entry(
    name: str, kind: bytes = tarfile.REGTYPE, link: str = "", data: bytes = b""
) -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.size, info.mode = kind, link, len(data), 0o644
    if kind == tarfile.DIRTYPE:
        info.mode = 0o755
    return info, data


def crafted(*entries: tuple[tarfile.TarInfo, bytes]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for info, data in entries:
            tar.addfile(info, io.BytesIO(data))
    return out.getvalue()


FOLDER = entry("work/mem", tarfile.DIRTYPE)
BELOW = entry("work/mem/topics/today.md", data=b"hi")

HOSTILE = {
    "file below a link out": (FOLDER, entry("work/mem/topics", tarfile.SYMTYPE, "/tmp/outside"), BELOW),
    "file below a relative link out": (
        FOLDER,
        entry("work/mem/topics", tarfile.SYMTYPE, "../../../../tmp/outside"),
        BELOW,
    ),
    "file below a link that stays inside": (
        FOLDER,
        entry("work/mem/real", tarfile.DIRTYPE),
        entry("work/mem/topics", tarfile.SYMTYPE, "real"),
        BELOW,
    ),
    "folder below a link out": (
        FOLDER,
        entry("work/mem/topics", tarfile.SYMTYPE, "/tmp/outside"),
        entry("work/mem/topics/sub", tarfile.DIRTYPE),
    ),
    "folder in a link's place": (
        FOLDER,
        entry("work/mem/topics", tarfile.SYMTYPE, "/tmp/outside"),
        entry("work/mem/topics", tarfile.DIRTYPE),
        BELOW,
    ),
    "hard link out": (FOLDER, entry("work/mem/topics", tarfile.LNKTYPE, "tmp/outside/victim")),
    "hard link by dots": (FOLDER, entry("work/mem/topics", tarfile.LNKTYPE, "../lock.json")),
    "hard link to a link": (
        FOLDER,
        entry("work/mem/l", tarfile.SYMTYPE, "/tmp/outside/victim"),
        entry("work/mem/topics", tarfile.LNKTYPE, "work/mem/l"),
    ),
    "hard link through a link": (
        FOLDER,
        entry("work/mem/l", tarfile.SYMTYPE, "/tmp/outside"),
        entry("work/mem/topics", tarfile.LNKTYPE, "work/mem/l/victim"),
    ),
    "hard link to nothing": (FOLDER, entry("work/mem/topics", tarfile.LNKTYPE, "work/mem/none")),
    "dots in a name": (entry("work/../tmp/outside/new", data=b"hi"),),
    "outside by name": (entry("tmp/outside/new", data=b"hi"),),
    "absolute name": (entry("/tmp/outside/new", data=b"hi"),),
    "name that only begins like a root": (entry("work2/new", data=b"hi"),),
    "FIFO": (FOLDER, entry("work/mem/topics", tarfile.FIFOTYPE)),
    "device": (FOLDER, entry("work/mem/topics", tarfile.CHRTYPE)),
}


@pytest.mark.parametrize("name", sorted(HOSTILE))
def test_a_crafted_archive_writes_nothing_outside(box: Box, name: str) -> None:
    box.python("""
        import os, shutil
        shutil.rmtree("/tmp/outside", True); shutil.rmtree("/work/mem", True)
        os.mkdir("/tmp/outside"); open("/tmp/outside/victim", "w").write("whole")
    """)
    result = tool(box, "restore", "/work", tar=crafted(*HOSTILE[name]))
    assert result.rc == 3, result
    member = HOSTILE[name][-1][0]
    assert (member.name.strip("/").encode() in result.stderr) or member.linkname.encode() in result.stderr
    assert box.out("sh", "-c", "cd /tmp/outside; stat -c '%n %h' *; cat victim") == "victim 1\nwhole"
    box.out("rm", "-rf", "/work/mem", "/tmp/outside")


def test_announced_sizes_and_counts_are_checked_before_anything_is_written(box: Box) -> None:
    huge, _ = entry("work/huge")
    huge.size = 1 << 40
    tar = huge.tobuf(tarfile.PAX_FORMAT) + b"\0" * 1024
    result = tool(box, "restore", "/work", tar=tar)
    assert (result.rc, b"too many bytes at 'work/huge'" in result.stderr) == (3, True)
    many = crafted(*(entry(f"work/many-{n}") for n in range(30)))
    result = tool(box, "restore", "--max-files", "20", "/work", tar=many)
    assert (result.rc, b"too many files at 'work/many-20'" in result.stderr) == (3, True)
    assert "huge" not in box.out("ls", "/work")
    box.out("sh", "-c", "rm -f /work/many-*")


@pytest.mark.parametrize("cut", [700, 1500])
def test_a_torn_archive_is_refused(box: Box, cut: int) -> None:
    tar = crafted(entry("work/torn", data=b"z" * 5000))
    assert tool(box, "restore", "/work", tar=tar[:cut]).rc == 3
    box.out("rm", "-f", "/work/torn")


def test_files_below_a_planted_link_are_not_put(box: Box) -> None:
    """The engine's own files go where they were meant to, or nowhere."""
    box.out("ln", "-s", "/tmp", "/work/link")
    with pytest.raises(UnsafeArchive, match="work/link/x"):
        box.do(box.sandbox.put_files({"/work/link/x": b"1"}, "agent"))
    assert box.run("test", "-e", "/tmp/x").rc == 1
    box.out("rm", "/work/link")
    box.do(box.sandbox.put_files({"/work/deep/er/x": b"\0\xff", "/work/y": b""}, "agent", 0o600))
    assert box.do(box.sandbox.read_file("/work/deep/er/x", "agent")) == b"\0\xff"
    assert box.out("stat", "-c", "%a %U %Y", "/work/y") == "600 agent 946684800"
    box.out("rm", "-r", "/work/deep", "/work/y")


def test_read_file_reads_as_the_user_and_to_the_byte(box: Box) -> None:
    box.out("sh", "-c", r"printf 'a\377\n\nb' > /tmp/odd")
    read = box.sandbox.read_file
    assert box.do(read("/tmp/odd", "agent")) == b"a\xff\n\nb"
    assert box.do(read("/tmp/odd", "agent", max_bytes=3)) == b"a\xff\n"
    assert box.do(read("/tmp/none", "agent")) is None
    assert box.do(read("/etc/shadow", "agent")) is None
    assert box.do(read("/tmp", "agent")) is None
    box.out("rm", "/tmp/odd")


def test_a_changed_tar_is_not_restored(box: Box, tmp_path: Path) -> None:
    box.out("sh", "-c", "echo kept > /work/kept")
    saved = save(box)
    data = bytearray(saved.path.read_bytes())
    data[600] ^= 1
    copy = tmp_path / "state.tar"
    copy.write_bytes(data)
    with pytest.raises(DigestMismatch, match=re.escape(saved.digest)):
        box.do(box.sandbox.restore(copy, saved.digest, "agent", wipe=["/work"]))
    assert box.out("cat", "/work/kept") == "kept"
    box.out("rm", "/work/kept")


def test_a_full_workspace_on_restore_is_the_sandbox_s_failure(new_box: NewBox, box: Box) -> None:
    """Not the agent's: its tree was saved from a larger place."""
    box.python("open('/work/big', 'wb').write(b'x' * (6 << 20))")
    saved = save(box)
    box.out("rm", "/work/big")
    small = new_box(limits=Limits(workspace_mb=4))
    with pytest.raises(SandboxError, match="No space left"):
        small.do(small.sandbox.restore(saved.path, saved.digest, "agent"))
