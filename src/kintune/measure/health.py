"""Health checks: the time of a reference kernel shows whether a device is of its type and runs at its usual speed."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from typing import TypeAlias

from kintune.errors import DeviceUnwell

__all__ = ["HEALTH_RUNS", "ReferenceKernel", "check_health", "undisturbed", "warm"]

HEALTH_RUNS = 31
"""Runs of a reference kernel in one health check; each takes a fraction of a millisecond."""

_PAUSES_S = (0.2, 1.0, 3.0)
_WARM_S = 0.1
_TIMES, _APART_S = 5, 0.3

_Run: TypeAlias = Callable[[], Sequence[float]]
"""Runs a kernel some times and returns the seconds of each run."""


def warm(run: _Run) -> None:
    """Runs the kernel for 0.1 s, so that the clock rate can rise."""
    start = time.perf_counter()
    while time.perf_counter() - start < _WARM_S:
        run()


class ReferenceKernel:
    """The reference kernel of a device: arithmetic in registers, on all cores.

    Its time depends on the cores alone.  It tells device types apart, and an idle device from one that is throttled or
    shared.
    """

    def __init__(self, run: _Run) -> None:
        self._run = run

    def microseconds(self) -> float:
        """Returns the median of some runs, after the warm-up."""
        warm(self._run)
        return 1e6 * statistics.median(self._run())


def undisturbed(measure: Callable[[], float], sleep: Callable[[float], None] = time.sleep) -> float:
    """Returns the least of some times of the reference kernel, in microseconds: whatever disturbs it makes it slower.

    What a type of devices is known by must not be a time that was disturbed: all later ones would be too short.
    """
    times = [measure()]
    for _ in range(_TIMES - 1):
        sleep(_APART_S)
        times.append(measure())
    return min(times)


def check_health(
    measure: Callable[[], float], known_us: float, alike: float, sleep: Callable[[float], None] = time.sleep
) -> None:
    """Checks that the reference kernel takes `known_us`, up to the factor `alike` either way.

    `measure` times it, in microseconds.  It is timed again after pauses of some seconds, as disturbances pass.

    Raises:
        DeviceUnwell: it takes longer or shorter each time.
    """
    ratio = measure() / known_us
    for pause in _PAUSES_S:
        if 1 / alike < ratio < alike:
            return
        sleep(pause)
        ratio = measure() / known_us
    if not 1 / alike < ratio < alike:
        advice = "" if ratio >= 1 else "; start the device that defined the type again, while nothing else runs on it"
        raise DeviceUnwell(f"the reference kernel takes {ratio:.2f} times as long as on devices of this type{advice}")
