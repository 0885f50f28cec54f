"""The folders from which onnxruntime loads Kintune's operators: one for each opened file that runs partly in it."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from .errors import KintuneError, RunError

__all__ = ["LIBRARY", "MODEL", "SessionFolder", "make_folder", "remove_abandoned"]

LIBRARY = "libkintune_onnx.so"
"""The file in the folder that has the operators."""

MODEL = "model.kt"
"""The link in the folder from which the library reads its kernels."""

_PREFIX = "kintune-session-"
_YOUNG_S = 60.0  # a folder younger than this may not be locked yet


class SessionFolder(NamedTuple):
    """A private folder, and the descriptor that keeps it locked while the process, or one that it forked, lives."""

    path: Path
    descriptor: int

    def remove(self) -> None:
        """Remove the folder, and give its lock back."""
        shutil.rmtree(self.path, ignore_errors=True)
        self.release()

    def release(self) -> None:
        """Close this process's descriptor of the lock, and leave the folder to processes that still hold it."""
        with contextlib.suppress(OSError):
            os.close(self.descriptor)


def make_folder(model: str) -> SessionFolder:
    """A new private folder with the library and, beside it, a link to the file at `model`.

    The library is a copy: the dynamic loader takes two links to one file for the same library.  Folders that killed
    processes have left behind are removed.

    Raises:
        KintuneError: the library is missing.
        RunError: the folder cannot be written.
    """
    library = Path(__file__).with_name(LIBRARY)
    if not library.is_file():
        raise KintuneError(f"{library} is missing; install kintune-runtime again")
    remove_abandoned()
    try:
        path = Path(tempfile.mkdtemp(prefix=_PREFIX))
        folder = SessionFolder(path, os.open(path, os.O_RDONLY | os.O_DIRECTORY))
    except OSError as error:
        raise _cannot_make(error) from error
    try:
        with contextlib.suppress(OSError):  # without locks in the file system, no process removes another's folder
            fcntl.flock(folder.descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        shutil.copyfile(library, path / LIBRARY)
        os.symlink(model, path / MODEL)
    except OSError as error:
        folder.remove()
        raise _cannot_make(error) from error
    return folder


def _cannot_make(error: OSError) -> RunError:
    return RunError(f"no folder for onnxruntime can be made: {error.strerror or error}")


def remove_abandoned() -> None:
    """Remove this user's folders that no process has locked: their processes were killed."""
    with contextlib.suppress(OSError):
        for path in _old_folders(Path(tempfile.gettempdir())):
            _remove_unlocked(path)


def _old_folders(parent: Path) -> Iterator[Path]:
    now = time.time()
    with os.scandir(parent) as entries:
        for entry in entries:
            if not entry.name.startswith(_PREFIX) or not entry.is_dir(follow_symlinks=False):
                continue
            about = entry.stat(follow_symlinks=False)
            if about.st_uid == os.getuid() and now - about.st_mtime > _YOUNG_S:
                yield Path(entry.path)


def _remove_unlocked(path: Path) -> None:
    with contextlib.suppress(OSError):
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(path, ignore_errors=True)
        finally:
            os.close(descriptor)
