"""Make /opt/sclate self-contained. Runs inside the builder container, after the proxy and the clock library.

Debian's Python is copied with its own dynamic loader and every library it or a wheel needs, and is told by
patchelf to use those and no others. So any x86-64 or arm64 glibc image can run it, whatever it has itself.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

ROOT = Path("/opt/sclate")
LIB = ROOT / "lib"
SITE = ROOT / "site"
STDLIB = ROOT / "python/lib/python3.11"
INTERPRETER = ROOT / "python/bin/python3.11"

UNUSED_STDLIB = [
    *("__pycache__", "config-*", "dist-packages", "EXTERNALLY-MANAGED", "sitecustomize.py", "test", "tests"),
    *("ensurepip", "idlelib", "lib2to3", "pydoc_data", "tkinter", "turtledemo"),
]
UNUSED_SITE = [
    "__pycache__",
    "bin",
    "tests",
    "test",
    "INSTALLER",
    "RECORD",
    "REQUESTED",
    "direct_url.json",
    "*.pyi",
]

# Libraries that nothing names as needed but that glibc loads by itself.
LOADED_BY_NAME = ["libgcc_s.so.1", "libnss_files.so.2", "libnss_dns.so.2", "libresolv.so.2"]

# The loader's own copy must not know the image's files: a clock library in /etc/ld.so.preload would move
# init, proxy and state tool to simulated time. The new names are as long, and under the read-only mount,
# where nobody can create them.
REDIRECTED = {b"/etc/ld.so.preload\0": b"/opt/sclate/.never\0", b"/etc/ld.so.cache\0": b"/opt/sclate/.nil\0"}


def is_elf(path: Path) -> bool:
    if path.is_symlink() or not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(4) == b"\x7fELF"


def elves() -> list[Path]:
    return sorted(p for top in (ROOT / "python", SITE) for p in top.rglob("*") if is_elf(p))


def needed(path: Path) -> Iterator[Path]:
    """The system libraries that `path` needs, by ldd. Stops the build at one that is missing."""
    listing = subprocess.run(["ldd", path], check=True, capture_output=True, text=True).stdout
    if "not found" in listing:
        raise SystemExit(f"{path} needs a library that is not installed:\n{listing}")
    for target in re.findall(r"=> (/\S+)", listing):
        if not Path(target).is_relative_to(ROOT):
            yield Path(target)


def copy_python() -> None:
    shutil.copytree(
        "/usr/lib/python3.11", STDLIB, ignore=shutil.ignore_patterns(*UNUSED_STDLIB), symlinks=False
    )
    INTERPRETER.parent.mkdir(parents=True)
    shutil.copy("/usr/bin/python3.11", INTERPRETER)
    # A path file makes the interpreter isolated: no environment variable, no user directory and no `site`
    # module steer it, and it exports nothing to its children. Paths are relative to this file.
    Path(f"{INTERPRETER}._pth").write_text(
        "../lib/python3.11\n../lib/python3.11/lib-dynload\n../../site\n../../sclate\n"
    )
    bin_ = ROOT / "bin"
    bin_.mkdir()
    (bin_ / "python").symlink_to("../python/bin/python3.11")
    mitmdump = bin_ / "mitmdump"
    mitmdump.write_text(f"#!{bin_}/python\nfrom mitmproxy.tools.main import mitmdump\nmitmdump()\n")
    mitmdump.chmod(0o755)


def prune_site() -> None:
    for pattern in UNUSED_SITE:
        for path in list(SITE.rglob(pattern)):
            shutil.rmtree(path) if path.is_dir() else path.unlink()


def copy_libraries() -> None:
    LIB.mkdir()
    library_dir = next(p.parent for p in needed(INTERPRETER) if p.name == "libc.so.6")
    wanted = {library_dir / name for name in LOADED_BY_NAME}
    for elf in elves():
        wanted.update(needed(elf))
    for path in sorted(wanted):
        shutil.copy(path, LIB / path.name)  # follows links: a plain file under the name that is asked for


def install_loader() -> None:
    interpreter = subprocess.run(
        ["patchelf", "--print-interpreter", INTERPRETER], check=True, capture_output=True, text=True
    ).stdout.strip()
    loader = LIB / Path(interpreter).name
    data = Path(interpreter).read_bytes()
    for old, new in REDIRECTED.items():
        if len(old) != len(new) or data.count(old) != 1:
            raise SystemExit(f"{interpreter}: {old!r} is there {data.count(old)} times, not once")
        data = data.replace(old, new)
    loader.write_bytes(data)
    loader.chmod(0o755)
    # RPATH, not RUNPATH: it also serves the extension modules, and wins over LD_LIBRARY_PATH.
    subprocess.run(
        ["patchelf", "--set-interpreter", loader, "--force-rpath", "--set-rpath", LIB, INTERPRETER],
        check=True,
    )


def main() -> None:
    copy_python()
    prune_site()
    for elf in elves():
        if elf != INTERPRETER:  # Debian's own is stripped
            subprocess.run(["strip", "--strip-unneeded", elf], check=True)
    copy_libraries()
    install_loader()
    # Hash-based and never checked: the mount is read-only and modification times do not survive copying.
    subprocess.run(
        [INTERPRETER, "-m", "compileall", "-q", "-j0", "--invalidation-mode", "unchecked-hash", STDLIB, SITE],
        check=True,
    )
    subprocess.run(["chmod", "-R", "u+rwX,go+rX,go-w", ROOT], check=True)
    subprocess.run([ROOT / "bin/mitmdump", "--version"], check=True)


if __name__ == "__main__":
    main()
