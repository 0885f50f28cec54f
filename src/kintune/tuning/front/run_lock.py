"""The lock on a run, so that two commands do not work on one run at once.

It is a file in the directory of locks, named after the run.  So it is seen by the processes that share this directory:
those of one user on one machine, unless they are told otherwise.
"""

from __future__ import annotations

import weakref

from kintune.hardware.locks import DeviceLock

__all__ = ["RunLock"]


class RunLock:
    """The lock of a run that this process works on; it is also released when nobody refers to it any more.

    A process has at most one for each run.  An object that began the run and did not end it may still hold the lock
    when the run is resumed, so `take` returns that one.
    """

    def __init__(self, run_id: str, lock: DeviceLock) -> None:
        """Use `take`."""
        self._run_id = run_id
        self._release = weakref.finalize(self, lock.release, remove=True)
        self._release.atexit = False  # the kernel releases it; a forked child must not remove its parent's file

    @staticmethod
    def take(run_id: str) -> RunLock | None:
        """Take the lock of a run; None if another process works on it.

        Raises:
            DeviceError: the lock's file cannot be made.
        """
        taken = _taken.get(run_id)
        if taken is None:
            lock = DeviceLock(f"run-{run_id}")
            if not lock.try_acquire():
                return None
            _taken[run_id] = taken = RunLock(run_id, lock)
        return taken

    def release(self) -> None:
        """Give the lock back, if it is held."""
        if _taken.get(self._run_id) is self:
            del _taken[self._run_id]
        self._release()


_taken: weakref.WeakValueDictionary[str, RunLock] = weakref.WeakValueDictionary()
"""The locks that this process holds, by the id of their run."""
