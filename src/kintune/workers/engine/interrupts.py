"""Ctrl-C while a run is on: the first asks it to stop, the second leaves at once."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any

__all__ = ["Interrupts"]


class Interrupts:
    """While entered, SIGINT calls `stop` once and then raises `KeyboardInterrupt`.

    In a thread other than the main one, which gets no signals, it does nothing.
    """

    def __init__(self, stop: Callable[[], None]) -> None:
        self._stop = stop
        self._stopped = False
        self._previous: Any = None
        self._installed = False

    def __enter__(self) -> None:
        if threading.current_thread() is threading.main_thread():
            self._previous = signal.signal(signal.SIGINT, self._interrupted)
            self._installed = True

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._installed:
            signal.signal(signal.SIGINT, self._previous)

    def _interrupted(self, _signal: int, _frame: FrameType | None) -> None:
        if self._stopped:
            raise KeyboardInterrupt
        self._stopped = True
        self._stop()
