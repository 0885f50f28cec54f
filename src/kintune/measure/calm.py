"""Whether the device's cores were left alone while a kernel was timed, and what to do if not: time it again.

The kernel counts how often a thread had to give way although it could have gone on (`ru_nivcsw` of getrusage(2)).  A
measurement that has these cores to itself gives way now and then to the system's own housekeeping; one that shares them
does so all the time.
"""

from __future__ import annotations

import resource
import time
from collections.abc import Callable
from typing import TypeVar

__all__ = ["Calm"]

_ATTEMPTS = 3
_CALM_PER_S = 60.0
_SHORTEST_S = 0.05  # a single switch within less tells nothing

Timed = TypeVar("Timed")


class Calm:
    """Times something, up to three times, until nobody has interfered; `repeated` counts what was done again.

    `switches` counts the involuntary context switches of this process so far, `clock` tells seconds.
    """

    def __init__(
        self,
        switches: Callable[[], int] = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._switches = switches
        self._clock = clock
        self.repeated = 0

    def timed(self, measure: Callable[[], Timed]) -> Timed:
        """What `measure` returns when it is left alone; if it never is, what it returned in the calmest attempt."""
        calmest: tuple[float, Timed] | None = None
        for attempt in range(_ATTEMPTS):
            self.repeated += attempt > 0
            before, begun = self._switches(), self._clock()
            result = measure()
            rate = (self._switches() - before) / max(_SHORTEST_S, self._clock() - begun)
            if calmest is None or rate < calmest[0]:
                calmest = rate, result
            if rate <= _CALM_PER_S:
                break
        assert calmest is not None
        return calmest[1]
