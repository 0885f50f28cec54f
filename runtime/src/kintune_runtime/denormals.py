"""Denormal numbers of the calling thread: flushed to zero, as results do while they run, or kept.

`runtime/native/denormals.c` says what that means for each processor.
"""

from __future__ import annotations

from types import TracebackType

from .library import denormal_calls, library

__all__ = ["DenormalsWatch", "Flushing"]


class Flushing:
    """A context manager: within it, the calling thread flushes denormal numbers to zero, or keeps them without `flush`.

    Afterwards the thread's floating-point state is what it was.  Threads that are started within it begin alike.
    """

    def __init__(self, flush: bool = True) -> None:
        self._flush = flush
        self._before = 0
        self._set, self._restore = denormal_calls()

    def __enter__(self) -> Flushing:
        self._before = self._set(self._flush)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._restore(self._before)


class DenormalsWatch:
    """A context manager that notes whether floating-point operations of the calling thread meet denormal numbers.

    `met` says it afterwards: an operand was denormal or, where only that can be told, a result too small for its type.
    """

    def __init__(self) -> None:
        self._before = 0
        self.met = False

    def __enter__(self) -> DenormalsWatch:
        self._before = library().kt_denormals_watch()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.met = bool(library().kt_denormals_met())
        library().kt_denormals_restore(self._before)
