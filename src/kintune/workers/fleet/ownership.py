"""Names of temporary files that say whose they are, so that those of dead processes can be removed.

A process id alone does not tell.  Machines may share a directory, such as a home over NFS, and so may containers: each
has processes of its own.
"""

from __future__ import annotations

import hashlib
import os
import time
from functools import cache
from pathlib import Path

import psutil

__all__ = ["is_abandoned", "owner"]

_FOREIGN_S = 7 * 24 * 3600.0  # how long files of processes that cannot be seen here must have lain untouched


def owner() -> str:
    """What the names of this process's temporary files begin with, behind a prefix; a hyphen and the rest follow."""
    return f"{_processes()}-{os.getpid()}"


def is_abandoned(path: Path, prefix: str) -> bool:
    """Whether this file or directory, whose name is `prefix`, an owner and the rest, belongs to nobody any more.

    Raises:
        OSError: it is gone.
    """
    processes, _, rest = path.name.removeprefix(prefix).partition("-")
    number = rest.partition("-")[0]
    if processes == _processes() and number.isdecimal():
        return not psutil.pid_exists(int(number))
    return time.time() - path.lstat().st_mtime > _FOREIGN_S


@cache
def _processes() -> str:
    """Tells these processes from those of other machines, of other containers, and of before the last boot."""
    known = [_read(Path("/proc/sys/kernel/random/boot_id")), _link(Path("/proc/self/ns/pid"))]
    return hashlib.sha256(" ".join(known).encode()).hexdigest()[:12]


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""


def _link(path: Path) -> str:
    try:
        return os.readlink(path)
    except OSError:
        return ""
