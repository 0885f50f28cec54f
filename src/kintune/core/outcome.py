"""The outcome of building and timing one candidate."""

from __future__ import annotations

import statistics
from enum import Enum

import msgspec

__all__ = ["Outcome", "Status"]


class Status(str, Enum):
    """How building and timing a candidate ended."""

    OK = "ok"
    BUILD_FAILED = "build_failed"
    BUILD_TIMED_OUT = "build_timed_out"
    RUN_FAILED = "run_failed"
    RUN_TIMED_OUT = "run_timed_out"
    WRONG_RESULT = "wrong_result"


class Outcome(msgspec.Struct, frozen=True):
    """The end of one candidate: `times_us` (microseconds a run, one entry a repeat) when it is ok, else a `cause`.

    `cause` is one short line: up to the first colon the class of the failure (an exception's type, a signal's name,
    "not finite"), by which failures are counted, and after it the details.  `repeated` is how often it was timed again
    because something else had used the device's cores.
    """

    status: Status
    times_us: tuple[float, ...] = ()
    cause: str = ""
    repeated: int = 0

    @property
    def ok(self) -> bool:
        """Whether the candidate ran and its times are valid."""
        return self.status is Status.OK

    @property
    def cause_class(self) -> str:
        """The cause without its details."""
        return self.cause.partition(":")[0]

    @property
    def median_us(self) -> float:
        """The median of the repeats in microseconds; infinite when the candidate failed."""
        return statistics.median(self.times_us) if self.ok and self.times_us else float("inf")
