"""Saves and restores trees inside the sandbox, as the user who owns them, on the real clock.

    statetool.py save --max-bytes N --max-files N [--without PATH]... PATH...      tar to stdout
    statetool.py restore --max-bytes N --max-files N [--wipe PATH]...   tar from stdin

The tar is deterministic: the same tree gives the same bytes, and restoring keeps what a tree is made of
(names, modes, contents, links, modification times to the ns), so that saving again gives the same digest.
Members are absolute paths without the leading slash. A restore never writes outside of the given roots: it
refuses members that are not plain files, folders or links, and it never follows a link on the way.

Exit codes: 0 done (stderr names the pipes and sockets that were left out, if any), 3 refused (the reason and
the member's name on stderr).
"""

import argparse
import contextlib
import errno
import os
import shutil
import stat
import sys
import tarfile
import time

REFUSED = 3
NAMED = 5  # of what was left out


class RefusedError(Exception):
    pass


# What a tree can do to whoever reads or writes it: no fault of the sandbox's.
OF_THE_TREE = {getattr(errno, name) for name in (
    "EACCES", "EPERM", "EEXIST", "EISDIR", "ELOOP", "ENAMETOOLONG", "ENOENT", "ENOTDIR", "ENOTEMPTY",
)}  # fmt: skip


class Budget:
    """Bytes and members, counted while reading and writing."""

    def __init__(self, max_bytes, max_files):
        self.bytes, self.files = max_bytes, max_files

    def take(self, name, size):
        self.files -= 1
        self.bytes -= size
        if self.files < 0:
            raise RefusedError(f"too many files at {name!r}")
        if self.bytes < 0:
            raise RefusedError(f"too many bytes at {name!r}")


def member(path, status):
    """The header of one entry: owner left out, times in ns as a pax record."""
    info = tarfile.TarInfo(path.lstrip("/"))
    info.mode = stat.S_IMODE(status.st_mode)
    seconds, ns = divmod(status.st_mtime_ns, 1_000_000_000)
    info.mtime = seconds
    info.pax_headers = {"SCLATE.mtime_ns": str(status.st_mtime_ns)} if ns else {}
    return info


def walk(path, without):
    """`path` and all below it, in sorted order, links not followed; folders are readable meanwhile."""
    if path in without:
        return
    yield path
    status = os.lstat(path)
    if stat.S_ISDIR(status.st_mode):
        with permitted(path, status, 0o700):
            for name in sorted(os.listdir(path)):
                yield from walk(os.path.join(path, name), without)


@contextlib.contextmanager
def permitted(path, status, rights):
    """Its owner may have taken the right to read away from himself: he lends it and takes it back."""
    lend = status.st_mode & rights != rights
    if lend:
        os.chmod(path, stat.S_IMODE(status.st_mode) | rights)
    try:
        yield
    finally:
        if lend:
            os.chmod(path, stat.S_IMODE(status.st_mode))


def save(paths, without, budget, out):
    """Returns the pipes and sockets that were met. There is nothing in them to keep: they are left out."""
    links, left_out = {}, []
    with tarfile.open(fileobj=out, mode="w|", format=tarfile.PAX_FORMAT) as tar:
        for root in sorted(set(paths)):
            if not os.path.lexists(root):
                continue
            for path in walk(root, without):
                status = os.lstat(path)
                info = member(path, status)
                if stat.S_ISDIR(status.st_mode):
                    info.type = tarfile.DIRTYPE
                elif stat.S_ISLNK(status.st_mode):
                    info.type, info.linkname = tarfile.SYMTYPE, os.readlink(path)
                elif stat.S_ISREG(status.st_mode):
                    first = links.setdefault((status.st_dev, status.st_ino), path)
                    if first != path:
                        info.type, info.linkname = tarfile.LNKTYPE, first.lstrip("/")
                    else:
                        info.size = status.st_size
                elif stat.S_ISFIFO(status.st_mode) or stat.S_ISSOCK(status.st_mode):
                    left_out.append(path)
                    continue
                else:
                    raise RefusedError(f"not a file, folder or link: {path!r}")
                budget.take(path, info.size)
                if info.isreg():
                    with permitted(path, status, 0o400):
                        data = open(path, "rb", opener=no_follow)
                    with data:
                        tar.addfile(info, data)
                else:
                    tar.addfile(info)
    return left_out


def no_follow(path, flags):
    """Waits for nobody either, should a pipe have taken the file's place."""
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK)


def checked_parent(name, roots):
    """The absolute path of a member; its parents are real folders inside a root, never links."""
    path = "/" + name.rstrip("/")
    parts = path.split("/")[1:]
    if any(part in ("", ".", "..") for part in parts):
        raise RefusedError(f"bad name {name!r}")
    if not any(path == root or path.startswith(root.rstrip("/") + "/") for root in roots):
        raise RefusedError(f"outside of the saved folders: {name!r}")
    at = ""
    for part in parts[:-1]:
        at += "/" + part
        try:
            mode = os.lstat(at).st_mode
        except FileNotFoundError:
            os.mkdir(at)
            continue
        if stat.S_ISLNK(mode) and any(at == root or at.startswith(root.rstrip("/") + "/") for root in roots):
            raise RefusedError(f"below a link: {name!r}")
        if not stat.S_ISDIR(os.stat(at).st_mode):
            raise RefusedError(f"below a file: {name!r}")
    return path


def restore(roots, wipe, budget, source, replaced_now=False):
    """`replaced_now`: a file that takes the place of another counts as changed now. What compares ages (make,
    a cache of imports) would else take the new content for the old."""
    for root in wipe:
        if os.path.isdir(root):
            with contextlib.suppress(PermissionError):  # another user's, and open to this one
                os.chmod(root, stat.S_IMODE(os.lstat(root).st_mode) | 0o700)
        for entry in os.scandir(root) if os.path.isdir(root) else ():
            if entry.is_dir(follow_symlinks=False):
                make_removable(entry.path)
                shutil.rmtree(entry.path)
            else:
                os.unlink(entry.path)
    folders = []
    with tarfile.open(fileobj=source, mode="r|") as tar:
        for info in tar:
            budget.take(info.name, info.size)
            path = checked_parent(info.name, roots)
            times = int(info.pax_headers.get("SCLATE.mtime_ns", int(info.mtime) * 1_000_000_000))
            if info.isdir():
                if not os.path.isdir(path) or os.path.islink(path):
                    os.mkdir(path)
                folders.append((path, info.mode, times))
                continue
            if os.path.lexists(path):
                os.unlink(path)
                times = time.time_ns() if replaced_now else times
            if info.issym():
                os.symlink(info.linkname, path)
                os.utime(path, ns=(times, times), follow_symlinks=False)
            elif info.islnk():
                target = checked_parent(info.linkname, roots)
                if not stat.S_ISREG(os.lstat(target).st_mode):
                    raise RefusedError(f"hard link to what is not a file: {info.name!r}")
                os.link(target, path, follow_symlinks=False)
            elif info.isreg():
                flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
                with open(os.open(path, flags, 0o600), "wb") as out:
                    shutil.copyfileobj(tar.extractfile(info), out)
                    os.fchmod(out.fileno(), info.mode)
                os.utime(path, ns=(times, times))
            else:
                raise RefusedError(f"not a file, folder or link: {info.name!r}")
    for path, mode, times in reversed(folders):
        try:
            os.chmod(path, mode)
            os.utime(path, ns=(times, times))
        except PermissionError:
            pass  # a mount point that belongs to another user


def make_removable(root):
    """An agent may have taken its own right to write away."""
    os.chmod(root, 0o700)
    for folder, folders, _ in os.walk(root):
        for name in folders:
            path = os.path.join(folder, name)
            if not os.path.islink(path):
                os.chmod(path, 0o700)


def main(argv=None):
    """Returns the exit code."""
    parser = argparse.ArgumentParser()
    parser.add_argument("action", choices=("save", "restore"))
    parser.add_argument("--max-bytes", type=int, default=1 << 30)
    parser.add_argument("--max-files", type=int, default=200_000)
    parser.add_argument("--without", action="append", default=[])
    parser.add_argument("--wipe", action="append", default=[])
    parser.add_argument("--replaced-now", action="store_true")
    parser.add_argument("paths", nargs="+")
    args = parser.parse_args(argv)
    os.umask(0o022)
    budget = Budget(args.max_bytes, args.max_files)
    try:
        if args.action == "save":
            left_out = save(args.paths, args.without, budget, sys.stdout.buffer)
            if left_out:
                first = ", ".join(ascii(path)[:200] for path in left_out[:NAMED])
                print(f"{len(left_out)} left out: {first}", file=sys.stderr)
        else:
            restore(args.paths, args.wipe, budget, sys.stdin.buffer, args.replaced_now)
    except (RefusedError, tarfile.TarError, UnicodeError, ValueError) as error:
        reason = str(error)
    except RecursionError:
        reason = "folders are nested too deep"
    except OSError as error:
        if error.errno is not None and error.errno not in OF_THE_TREE:
            raise
        reason = str(error)  # without a number: a file that shrank while it was read
    else:
        return 0
    print(reason[:2000], file=sys.stderr)
    return REFUSED


if __name__ == "__main__":
    sys.exit(main())
