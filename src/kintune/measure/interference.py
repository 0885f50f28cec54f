"""Whether the device's cores were left to a kernel while it was timed, and what to do if not: time it again.

Linux keeps for every thread how long it was ready to run and had to wait for a core (the second figure of
`/proc/PID/task/TID/schedstat`, in nanoseconds).  A measurement that has its cores to itself waits next to nothing; one
that shares them with somebody waits while the other runs.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from typing import TypeVar

__all__ = ["CALM", "PATIENCE", "PAUSES_S", "InterferenceFilter", "waited_s"]

CALM = 0.1
"""Seconds waited a second, up to which a time is believed: it is a median, which a few disturbed runs do not move."""
PAUSES_S = (0.02, 0.4)
"""Seconds between the attempts (most who interfere, like a run's own front, are gone in no time), ..."""
PATIENCE = 4
"""... until so many more measurements were never calm than were: who always interferes is not gone after a pause."""

_TASKS = "/proc/self/task"
_LINE = 128  # bytes, more than three figures take

Timed = TypeVar("Timed")


def waited_s() -> float:
    """Seconds for which the threads of this process have waited for a core so far; 0 where nobody keeps that."""
    waited = 0
    for thread in _threads():
        with (
            contextlib.suppress(OSError, ValueError, IndexError),  # the thread has ended
            open(f"{_TASKS}/{thread}/schedstat", "rb", buffering=0) as file,
        ):
            waited += int(file.read(_LINE).split()[1])
    return 1e-9 * waited


def _threads() -> list[str]:
    try:
        return os.listdir(_TASKS)
    except OSError:
        return []


class InterferenceFilter:
    """Times something, up to three times with pauses, until nobody interferes; `repeated` counts what was done again.

    `waited` tells for how many seconds this process has waited for cores so far, `clock` tells seconds, and `sleep`
    passes some: whoever interferes may be gone by then.
    """

    def __init__(
        self,
        waited: Callable[[], float] = waited_s,
        clock: Callable[[], float] = time.perf_counter,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._waited = waited
        self._clock = clock
        self._sleep = sleep
        self.repeated = 0
        self._in_vain = 0  # from 0 to twice the patience, so that it comes back soon when the others are gone

    def timed(self, measure: Callable[[], Timed]) -> Timed:
        """What `measure` returns when it is left alone; if it never is, what it returned in the calmest attempt."""
        least, calmest = self.waiting(measure)
        is_patient = self._in_vain < PATIENCE
        for pause in PAUSES_S:
            if least <= CALM:
                break
            if is_patient:
                self._sleep(pause)
            self.repeated += 1
            waiting, result = self.waiting(measure)
            if waiting < least:
                least, calmest = waiting, result
        self._in_vain = max(0, self._in_vain - 1) if least <= CALM else min(2 * PATIENCE, self._in_vain + 1)
        return calmest

    def waiting(self, measure: Callable[[], Timed]) -> tuple[float, Timed]:
        """Seconds waited for cores, for each second that `measure` took, and what it returned."""
        before, begun = self._waited(), self._clock()
        result = measure()
        return max(0.0, self._waited() - before) / max(1e-9, self._clock() - begun), result
