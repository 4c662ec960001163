"""Starts a replica that sees its job's buckets at ``/gcs``: ``python mounting.py ROOT GCS COMMAND ARG…``.

In a mount namespace of its own (unshare(2)) the machine's root is put together anew on a tmpfs at ROOT, with GCS
bound at ``/gcs``; nothing outside the process changes. Without root it takes a user namespace too, which some
kernels forbid: `can_mount` tells. Standard library alone.
"""

import ctypes
import os
import subprocess
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path

_NEWNS, _NEWUSER = 0x0002_0000, 0x1000_0000
_BIND, _REC, _PRIVATE = 4096, 16_384, 1 << 18
POINT = "gcs"
START_ERROR = 128


@cache
def can_mount(scratch: Path) -> bool:
    """Whether this machine lets a process have mounts of its own; tried once."""
    for name in ("root", POINT):
        (scratch / name).mkdir(parents=True, exist_ok=True)
    try:
        tried = subprocess.run(wrap(["true"], scratch / "root", scratch / POINT), capture_output=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return tried.returncode == 0


def wrap(argv: Sequence[str], root: Path, gcs: Path) -> list[str]:
    """The command that runs `argv` with `gcs` at ``/gcs``; `root` is an empty folder."""
    return [sys.executable, "-I", "-S", __file__, str(root), str(gcs), *argv]


def main(root: str, gcs: str, argv: list[str]) -> None:
    uid, gid, folder = os.getuid(), os.getgid(), Path.cwd()
    _check(_libc().unshare(_NEWNS | (_NEWUSER if uid else 0)), "unshare")
    if uid:
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{uid} {uid} 1")
        Path("/proc/self/gid_map").write_text(f"{gid} {gid} 1")
    _mount("none", "/", None, _REC | _PRIVATE)
    _mount("tmpfs", root, "tmpfs", 0)
    for entry in Path("/").iterdir():
        _copy(entry, Path(root) / entry.name)
    os.makedirs(f"{root}/{POINT}", exist_ok=True)  # noqa: PTH103
    _mount(gcs, f"{root}/{POINT}", None, _BIND | _REC)
    os.chroot(root)
    os.chdir(folder)
    try:
        os.execvp(argv[0], argv)
    except OSError as error:
        print(f"StartError: failed to start the container: {error}", file=sys.stderr)
        sys.exit(START_ERROR)


def _copy(entry: Path, target: Path) -> None:
    if entry.name == POINT:
        return
    if entry.is_symlink():
        target.symlink_to(entry.readlink())
        return
    if entry.is_dir():
        target.mkdir()
    else:
        target.touch()
    _mount(str(entry), str(target), None, _BIND | _REC)


def _mount(source: str, target: str, kind: str | None, flags: int) -> None:
    found = _libc().mount(source.encode(), target.encode(), kind.encode() if kind else None, flags, None)
    _check(found, f"mount {target}")


@cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _check(result: int, what: str) -> None:
    if result:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
