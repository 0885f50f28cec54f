"""Whether a device is what it is said to be, and as well as it was: the time of a reference kernel tells."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from typing import TypeAlias

from kintune.errors import DeviceUnwell

__all__ = ["BEATS", "ReferenceKernel", "check_health", "warm"]

BEATS = 31
"""Runs of a reference kernel, of a fraction of a millisecond each, that are one look at it."""

_PAUSES_S = (0.2, 1.0, 3.0)
_WARM_S = 0.1

Run: TypeAlias = Callable[[], Sequence[float]]
"""Runs a kernel some times, and returns the seconds of each run."""


def warm(run: Run) -> None:
    """Run until the clock has had time to go up."""
    start = time.perf_counter()
    while time.perf_counter() - start < _WARM_S:
        run()


class ReferenceKernel:
    """The reference kernel of a device: arithmetic in registers, on all that it has.

    It depends on nothing but the cores: what it takes tells one type of device from another, and a device that is as it
    was from one that is throttled, or shared with somebody.
    """

    def __init__(self, run: Run) -> None:
        self._run = run

    def microseconds(self) -> float:
        """The median of some runs, once the clock has had time to go up."""
        warm(self._run)
        return 1e6 * statistics.median(self._run())


def check_health(
    measure: Callable[[], float], known_us: float, alike: float, sleep: Callable[[float], None] = time.sleep
) -> None:
    """See that the reference kernel takes what it is known to take, up to the factor `alike` either way.

    What is only disturbed gets some seconds to calm down.

    Raises:
        DeviceUnwell: it does not.
    """
    ratio = measure() / known_us
    for pause in _PAUSES_S:
        if 1 / alike < ratio < alike:
            return
        sleep(pause)
        ratio = measure() / known_us
    if not 1 / alike < ratio < alike:
        raise DeviceUnwell(f"the reference kernel takes {ratio:.2f} times as long as on devices of this type")
