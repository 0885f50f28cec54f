"""Lets somebody else's endless loop run turn by turn: the loop has a thread, and halts where it is told to."""

from __future__ import annotations

import threading
from collections.abc import Callable

__all__ = ["Relay"]


class Relay:
    """Runs `work` in a thread of its own, which works only during `turn`.  The process's end is the thread's."""

    def __init__(self, work: Callable[[], None]) -> None:
        self._go = threading.Semaphore(0)
        self._over = threading.Semaphore(0)
        self._work = work
        self._error: BaseException | None = None
        self._finished = False
        self._thread = threading.Thread(target=self._run, name="relay", daemon=True)
        self._thread.start()

    def turn(self) -> bool:
        """Let the work go on until it halts; True once it has ended.  What it raised is raised here."""
        if not self._finished:
            self._go.release()
            self._over.acquire()
        if self._error is not None:
            raise self._error
        return self._finished

    def halt(self) -> None:
        """Called by the work: the turn is over; returns when the next one begins."""
        self._over.release()
        self._go.acquire()

    def _run(self) -> None:
        self._go.acquire()
        try:
            self._work()
        except BaseException as error:
            self._error = error
        finally:
            self._finished = True
            self._over.release()
