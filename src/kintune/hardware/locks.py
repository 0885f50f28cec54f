"""Locks on devices and cores, so that two commands on one machine do not spoil each other's timings.

A lock is a file that the kernel lets one process lock (`flock`).  It is released by the kernel however the process
ends, so nothing is left to clean up; the file says who holds it, for those who wait.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TypeAlias
from urllib.parse import quote

from kintune.errors import DeviceError, OrderError

__all__ = ["LOCK_DIRECTORY_VARIABLE", "DeviceLock", "OnWait", "cores_lock", "default_lock_directory", "holder_of"]

LOCK_DIRECTORY_VARIABLE = "KINTUNE_LOCK_DIR"
"""The environment variable that names another directory for locks: processes that share devices must agree on it."""

OnWait: TypeAlias = Callable[[str], None]
"""Called once before a wait, with the process id and the command line of the lock's holder."""

_HOLDER_LIMIT = 300

_held: set[tuple[int, int]] = set()
"""The files (device, inode) that this process has locked.

The process id in a lock's file does not show that: processes in two containers that share the directory may have the
same id.
"""


def default_lock_directory() -> Path:
    """Where this user's processes keep their locks.

    It does not depend on the login session, as runtime directories do: a command from a terminal and one from a timer
    must wait for each other.
    """
    named = os.environ.get(LOCK_DIRECTORY_VARIABLE)
    return Path(named) if named else Path(tempfile.gettempdir()) / f"kintune-locks-{os.getuid()}"


class DeviceLock:
    """An exclusive lock on the device `name`, among the processes of this machine that use the same directory."""

    def __init__(self, name: str, directory: Path | None = None) -> None:
        self._name = name
        self._path = (directory or default_lock_directory()) / f"{quote(name, safe='')}.lock"
        self._fd: int | None = None

    @property
    def held(self) -> bool:
        """Whether this object holds the lock."""
        return self._fd is not None

    def acquire(self, on_wait: OnWait | None = None) -> None:
        """Take the lock, waiting for whoever holds it; Ctrl-C ends the wait.

        Args:
            on_wait: called with the holder before the wait begins.

        Raises:
            DeviceError: the lock's file cannot be made.
            OrderError: this process holds the lock already, and would wait for itself.
        """
        self._take(on_wait)

    def try_acquire(self) -> bool:
        """Take the lock if it is free; returns whether it was.

        Raises:
            DeviceError: the lock's file cannot be made.
            OrderError: this process holds the lock already.
        """
        try:
            self._take(None, waits=False)
        except BlockingIOError:
            return False
        return True

    def holder(self) -> str | None:
        """Who holds the lock now, by process id and command line; None if nobody does, or the file cannot be read."""
        try:
            fd = os.open(self._path, os.O_RDONLY | os.O_NOFOLLOW)
        except OSError:
            return None
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return _read_holder(fd)
        finally:
            os.close(fd)
        return None

    def release(self, *, remove: bool = False) -> None:
        """Release the lock, if it is held; with `remove`, delete its file, for a name that will not be locked again."""
        if self._fd is not None:
            with contextlib.suppress(OSError):
                os.ftruncate(self._fd, 0)
                if remove and _is_at(self._fd, self._path):
                    self._path.unlink()
            _held.discard(_inode(self._fd))
            os.close(self._fd)
            self._fd = None

    @contextmanager
    def holding(self, on_wait: OnWait | None = None) -> Iterator[None]:
        """Hold the lock for the length of a `with` block; see `acquire`."""
        self.acquire(on_wait)
        try:
            yield
        finally:
            self.release()

    def _take(self, on_wait: OnWait | None, *, waits: bool = True) -> None:
        """Take the lock; try again if its file was removed meanwhile, since others lock the new file of this name."""
        if self._fd is not None:
            raise OrderError(f"the lock on {self._name!r} is held; release it first")
        while self._fd is None:
            fd = self._open()
            try:
                if self._lock(fd, on_wait, waits=waits):
                    on_wait = None
                if _is_at(fd, self._path):
                    with contextlib.suppress(OSError):  # a full disk: others are not told who holds the lock
                        _write(fd, f"{os.getpid()} {' '.join(sys.argv)}"[:_HOLDER_LIMIT])
                    _held.add(_inode(fd))
                    self._fd = fd
            finally:
                if self._fd is None:
                    os.close(fd)

    def _open(self) -> int:
        try:
            directory = self._path.parent
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            if directory.lstat().st_uid != os.getuid():
                raise PermissionError(errno.EPERM, "the directory belongs to another user")
            return os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        except OSError as error:
            raise DeviceError(
                f"cannot lock {self._name!r}: {self._path}: {error.strerror}; "
                f"name a writable directory in {LOCK_DIRECTORY_VARIABLE}"
            ) from error

    def _lock(self, fd: int, on_wait: OnWait | None, *, waits: bool) -> bool:
        """Lock the open file; returns whether somebody had to be waited for.

        Raises:
            BlockingIOError: another process holds it, and one is not to wait.
            OrderError: this process holds it.
        """
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if _inode(fd) in _held:
                raise OrderError(f"this process holds the lock on {self._name!r} already; release it first") from None
            if not waits:
                raise
            if on_wait is not None:
                on_wait(_read_holder(fd))
            fcntl.flock(fd, fcntl.LOCK_EX)
            return True
        return False


@contextmanager
def cores_lock(cores: Iterable[int], on_wait: OnWait | None = None, directory: Path | None = None) -> Iterator[None]:
    """Hold a lock on each of these cores of the machine.

    All processes take them in ascending order, so there is no deadlock.

    Raises:
        DeviceError: a lock's file cannot be made.
        OrderError: this process holds one of them already.
    """
    with ExitStack() as stack:
        for core in sorted(set(cores)):
            stack.enter_context(DeviceLock(f"core-{core}", directory).holding(on_wait))
        yield


def holder_of(cores: Iterable[int], directory: Path | None = None) -> str | None:
    """Who holds the lock on one of these cores now, by process id and command line; None if all are free."""
    found = (DeviceLock(f"core-{core}", directory).holder() for core in sorted(set(cores)))
    return next((holder for holder in found if holder is not None), None)


def _read_holder(fd: int) -> str:
    return os.pread(fd, _HOLDER_LIMIT * 4, 0).decode(errors="replace") or "another process"


def _inode(fd: int) -> tuple[int, int]:
    status = os.fstat(fd)
    return status.st_dev, status.st_ino


def _is_at(fd: int, path: Path) -> bool:
    """Whether a path still names the open file: somebody may have cleaned up the directory."""
    try:
        status = path.lstat()
    except FileNotFoundError:
        return False
    return (status.st_dev, status.st_ino) == _inode(fd)


def _write(fd: int, text: str) -> None:
    os.ftruncate(fd, 0)
    os.pwrite(fd, text.encode(errors="replace"), 0)
