"""Waiting for a device's cores to be neighbours."""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable

__all__ = ["APART", "Gathering"]

APART = 1.5
"""Cores are apart when a handover costs this many times what it has cost at the least, but for one lucky look."""

_NAP_S = 0.01
_WAIT_S = 1.0
_PATIENCE = 3


class Gathering:
    """Waits for cores that are apart to come together: after a pause a host puts them where they are neighbours.

    What a handover costs at the least is learnt as it goes, so cores that are always apart count as together.  Where
    waiting was in vain some times, nothing is waited for any more until they were found together again.
    """

    def __init__(
        self,
        ratio: Callable[[], float],
        clock: Callable[[], float] = time.perf_counter,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """`ratio` tells what a handover costs; `clock` tells seconds, and `sleep` passes some."""
        self._ratio = ratio
        self._clock = clock
        self._sleep = sleep
        self._least: list[float] = []
        self._in_vain = 0

    def gather(self) -> bool:
        """Whether the cores are together, after a second of short pauses at most."""
        deadline = self._clock() + (_WAIT_S if self._in_vain < _PATIENCE else 0.0)
        while not (together := self._are_together()) and self._clock() < deadline:
            self._sleep(_NAP_S)
        self._in_vain = 0 if together else self._in_vain + 1
        return together

    def _are_together(self) -> bool:
        ratio = self._ratio()
        self._least = heapq.nsmallest(2, (*self._least, ratio))
        return ratio <= APART * self._least[-1]
