"""Detects that a kernel did not have its cores while it was timed, and times it again.

Linux counts for every thread how long it was ready to run and waited for a core (the second figure of
`/proc/PID/task/TID/schedstat`, in nanoseconds).  A measurement that has its cores to itself waits for next to nothing;
one that shares them waits while the others run.

Where a control group limits the CPU time, Linux also counts the periods in which the group was stopped.  A measurement
in which that happened has lost an unknown part of its time.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from typing import TypeVar

from kintune.hardware.quota import Throttling

__all__ = ["MAX_FRUITLESS", "MAX_WAITING", "PAUSES_S", "InterferenceFilter", "waited_s"]

MAX_WAITING = 0.1
"""Seconds waited a second, up to which a time counts as undisturbed: a few disturbed runs do not move a median."""

PAUSES_S = (0.02, 0.4)
"""Seconds between the attempts: most interference, as by the run's own front process, ends within milliseconds."""

MAX_FRUITLESS = 4
"""There are no pauses once this many more measurements stayed disturbed than not: permanent load does not pass."""

_TASKS = "/proc/self/task"
_LINE = 128  # bytes, more than three figures take

Timed = TypeVar("Timed")


def waited_s() -> float:
    """Returns the seconds that the threads of this process have waited for a core; 0 if that is not counted."""
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
    """Repeats a measurement, at most twice and after pauses, until it is undisturbed; `repeated` counts repetitions.

    `waited` returns the seconds that this process has waited for cores so far; `throttled` counts how often a CPU
    quota has stopped this process; `clock` tells seconds, and `sleep` passes some.
    """

    def __init__(
        self,
        waited: Callable[[], float] = waited_s,
        clock: Callable[[], float] = time.perf_counter,
        sleep: Callable[[float], None] = time.sleep,
        throttled: Callable[[], int] | None = None,
    ) -> None:
        self._waited = waited
        self._throttled = throttled or Throttling().count
        self._clock = clock
        self._sleep = sleep
        self.repeated = 0
        self._fruitless = 0  # at most twice MAX_FRUITLESS, so that pauses come back soon when the others are gone

    def timed(self, measure: Callable[[], Timed]) -> Timed:
        """Returns the result of the first undisturbed attempt, or else of the one that waited least."""
        least, best = self.waiting(measure)
        is_patient = self._fruitless < MAX_FRUITLESS
        for pause in PAUSES_S:
            if least <= MAX_WAITING:
                break
            if is_patient:
                self._sleep(pause)
            self.repeated += 1
            waiting, result = self.waiting(measure)
            if waiting < least:
                least, best = waiting, result
        self._fruitless = (
            max(0, self._fruitless - 1) if least <= MAX_WAITING else min(2 * MAX_FRUITLESS, self._fruitless + 1)
        )
        return best

    def waiting(self, measure: Callable[[], Timed]) -> tuple[float, Timed]:
        """Returns the seconds waited for cores a second of `measure`, and its result.

        If a CPU quota stopped the process meanwhile, 1.0 is added, since for how long it was stopped is not known.
        """
        stopped, before, begun = self._throttled(), self._waited(), self._clock()
        result = measure()
        waiting = max(0.0, self._waited() - before) / max(1e-9, self._clock() - begun)
        return waiting + (1.0 if self._throttled() > stopped else 0.0), result
