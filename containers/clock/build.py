"""Build libfaketime 0.9.12 with SCLATE's defaults. Runs inside the builder container (standard library only).

Usage: `build.py DEST`. The source is Debian's orig tarball, taken from `downloads/` beside this file or from
the package mirror that apt uses, and pinned by its SHA-256.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import ssl
import subprocess
import sys
import tarfile
import tempfile
import urllib.request
from pathlib import Path

HERE = Path(__file__).resolve().parent
TARBALL = "faketime_0.9.12.orig.tar.gz"
SHA256 = "4fc32218697c052adcdc5ee395581f2554ca56d086ac817ced2be0d6f1f8a9fa"
LIBRARY = "libfaketimeMT.so.1"

# (pattern, replacement, why); each must match exactly once, so that another source never builds unchanged.
SUBSTITUTIONS = [
    (r"^static int cache_enabled = 1;", "static int cache_enabled = 0;", "a jump is seen by the next read"),
    (
        r"^static int fake_monotonic_clock = 1;",
        "static int fake_monotonic_clock = 0;",
        "waits count on MONOTONIC; a compiled default holds for `env -i` children too",
    ),
    (
        r"if \(!tmp_env \|\| tmp_env\[0\] == '0'\) \{",
        "if (tmp_env && tmp_env[0] == '0') {",
        "shared memory of one user hangs another user's processes: off unless FAKETIME_DISABLE_SHM=0",
    ),
    (
        r"^  static pthread_mutex_t time_mutex = PTHREAD_MUTEX_INITIALIZER;\n",
        "",
        "the lock moves to rc.c, where fork handlers can reach it",
    ),
    (
        r"^#ifdef STATX_TYPE\n(?=static inline void fake_statx_timestamp)",
        "#if defined STATX_TYPE && defined FAKE_STAT\n",
        "statx is a part of FAKE_STAT, which is off",
    ),
    (
        r"pthread_once\(&initialized_once_control, ftpl_really_init\);",
        "if (!initialising) pthread_once(&initialized_once_control, first_init);",
        "its look-ups allocate, and a program's own allocator (Bun's, for one) may ask for the time meanwhile",
    ),
]
# (pattern, what is put after it, why); once.c says more.
ADDITIONS = [
    (
        rf"^\w+ {function}\([^)]*\)\n#endif\n\{{\n(?:  [^\n]*;\n)+\n  ftpl_init\(\);\n",
        f"  if (initialising) return syscall({call});\n",
        "then the kernel answers",
    )
    for function, call in (
        ("clock_gettime", "SYS_clock_gettime, clk_id, tp"),
        ("gettimeofday", "SYS_gettimeofday, tv, tz"),
        ("time", "SYS_time, time_tptr"),
    )
]
ONCE = r"^static pthread_once_t initialized_once_control = PTHREAD_ONCE_INIT;\n"  # once.c goes after it
READER = r"^int read_config_file\(\)\n\{.*?^\}\n"  # replaced by rc.c

# File times stay real: faked ones move with every jump. Timers pass through: the library takes every absolute
# timerfd for a REALTIME one and so breaks MONOTONIC ones, which are the common kind.
FLAGS = "-UFAKE_STAT -UFAKE_UTIME -UFAKE_TIMERS"


def patched(source: str, reader: str, once: str) -> str:
    """`source` (libfaketime.c) with our defaults, `reader` and `once`. ValueError if it is not the source we
    know."""
    for pattern, replacement, why in [*SUBSTITUTIONS, (READER, reader, "one control file for all processes")]:
        found = _the_one(pattern, source, why)
        source = source[: found.start()] + replacement + source[found.end() :]
    for pattern, addition, why in [*ADDITIONS, (ONCE, once, "no second entry into the initialisation")]:
        end = _the_one(pattern, source, why).end()
        source = source[:end] + addition + source[end:]
    return source


def _the_one(pattern: str, source: str, why: str) -> re.Match[str]:
    found = list(re.finditer(pattern, source, re.MULTILINE | re.DOTALL))
    if len(found) != 1:
        raise ValueError(f"{pattern!r} matches {len(found)} times, not once ({why})")
    return found[0]


def mirror() -> str:
    """The address of the bookworm archive that apt uses here."""
    listing = subprocess.run(
        ["apt-get", "indextargets", "--format", "$(REPO_URI)", "Codename: bookworm", "Created-By: Packages"],
        check=True,
        capture_output=True,
        text=True,
    )
    return listing.stdout.split()[0].rstrip("/")


def tarball() -> bytes:
    kept = HERE / "downloads" / TARBALL
    if kept.exists():
        data = kept.read_bytes()
    else:
        url = f"{mirror()}/pool/main/f/faketime/{TARBALL}"
        print("fetching", url, flush=True)
        context = ssl.create_default_context(cafile="/host/ca.pem") if url.startswith("https:") else None
        with urllib.request.urlopen(url, timeout=120, context=context) as answer:
            data = answer.read()
    digest = hashlib.sha256(data).hexdigest()
    if digest != SHA256:
        raise SystemExit(f"{TARBALL}: SHA-256 is {digest}, expected {SHA256}")
    return data


def main(dest: Path) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        archive = Path(scratch, TARBALL)
        archive.write_bytes(tarball())
        with tarfile.open(archive) as tar:
            tar.extractall(scratch)
        src = Path(scratch, "libfaketime-0.9.12", "src")
        source = src / "libfaketime.c"
        source.write_text(
            patched(source.read_text(), (HERE / "rc.c").read_text(), (HERE / "once.c").read_text())
        )
        subprocess.run(["make", "-C", src, f"FAKETIME_COMPILE_CFLAGS=-O2 {FLAGS}", LIBRARY], check=True)
        subprocess.run(["strip", "--strip-unneeded", src / LIBRARY], check=True)
        dest.mkdir(parents=True)
        shutil.copy(src / LIBRARY, dest / LIBRARY)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
