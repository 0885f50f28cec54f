"""Signals while a run is on: the first asks it to stop, the second leaves at once."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Any

__all__ = ["Interrupted", "Interrupts", "ending_by_signals"]

_SIGNALS = (signal.SIGTERM, signal.SIGHUP)

_HANGUP_S = 2.0
"""Seconds after the first signal in which SIGHUP counts as the same one: when a terminal closes, the kernel and the
shell each send one."""


class Interrupted(KeyboardInterrupt):
    """A signal has ended the work; `number` says which."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number


@contextmanager
def ending_by_signals() -> Iterator[None]:
    """While entered, SIGTERM and SIGHUP raise `Interrupted`, and `Interrupts` takes them as it takes Ctrl-C.

    A signal that is ignored, as under `nohup`, stays ignored.  In a thread other than the main one, nothing happens.
    """
    before: dict[int, Any] = {}
    if threading.current_thread() is threading.main_thread():
        wanted = [number for number in _SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
        before = {number: signal.signal(number, _raise) for number in wanted}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class Interrupts:
    """While entered, a signal calls `stop` once, and the next one raises `Interrupted`.

    The signals are SIGINT and, inside `ending_by_signals`, SIGTERM and SIGHUP: outside, these are left to the program
    that calls Kintune.  In a thread other than the main one, which gets no signals, it does nothing.  `clock` returns
    seconds.
    """

    def __init__(self, stop: Callable[[], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._stop = stop
        self._clock = clock
        self._stopped_at: float | None = None
        self._previous: dict[int, Any] = {}

    def __enter__(self) -> None:
        if threading.current_thread() is threading.main_thread():
            taken = [signal.SIGINT, *(number for number in _SIGNALS if signal.getsignal(number) is _raise)]
            self._previous = {number: signal.signal(number, self._interrupted) for number in taken}

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        self._previous = {}

    def _interrupted(self, number: int, _frame: FrameType | None) -> None:
        if self._stopped_at is None:
            self._stopped_at = self._clock()
            self._stop()
        elif number != signal.SIGHUP or self._clock() - self._stopped_at >= _HANGUP_S:
            raise Interrupted(number)


def _raise(number: int, _frame: FrameType | None) -> None:
    raise Interrupted(number)
