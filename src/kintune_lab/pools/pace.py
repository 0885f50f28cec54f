"""Progress of work in steps of much the same length, whose pace says when it will be over."""

from __future__ import annotations

import time
from collections.abc import Callable

from kintune_lab.experiment.experiment import CellProgress, Show

__all__ = ["Pace"]


class Pace:
    """Shows which of `total` steps, each called `what`, is being taken; from the second one on, the seconds left."""

    def __init__(self, what: str, total: int, show: Show, clock: Callable[[], float] = time.monotonic) -> None:
        self._what, self._total, self._show, self._clock = what, total, show, clock
        self._began_s = clock()

    def begin(self, number: int) -> None:
        """Step `number`, counted from 0, begins; all before it are done."""
        elapsed_s = self._clock() - self._began_s
        left_s = elapsed_s / number * (self._total - number) if number else None
        self._show(CellProgress(f"{self._what} {number + 1} of {self._total}", number / self._total, left_s))
