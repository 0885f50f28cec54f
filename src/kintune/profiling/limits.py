"""What bounds a kernel call: arithmetic, memory, the cost of a launch, or that it only copies.

The roofline (Williams, Waterman and Patterson, CACM 52(4), 2009) says how long a call takes at least: its arithmetic at
the machine's peak in the precision of the call, or its memory traffic at the peak bandwidth, whichever is longer.
"""

from __future__ import annotations

from typing import NamedTuple

from kintune.core.device import Peak
from kintune.core.kernel_call import CallRecord
from kintune.core.profile import Limit

__all__ = ["CallLimit", "bound_of"]

_COPIES = frozenset(
    {
        *("transpose", "reshape", "expand_dims", "squeeze", "flatten", "concatenate", "concat", "split", "take"),
        *("strided_slice", "gather_nd", "gather_elements", "pad", "cast", "broadcast_to", "repeat", "tile"),
    }
)
"""Operators that compute nothing: a kernel of these alone moves data."""

_LAUNCH_US = 3.0  # a call on the calling thread that takes up to this time ...
_SHARED_LAUNCH_US = 12.0  # ... or one on several threads up to this, spends much of it on being called
_FAR = 0.5  # this holds for calls that reach less than this share of the peak


class CallLimit(NamedTuple):
    """The limit of a call, the microseconds that it takes at least, and that time over what it took."""

    limit: Limit
    least_us: float
    reached: float


def bound_of(call: CallRecord, us: float, threads: int, peak: Peak | None) -> CallLimit:
    """What bounds a call that took `us` microseconds on `threads` threads.

    It is unknown where the call has no record, or the peak was not measured in the call's precision.  Fewer threads
    than those of the peak have a proportional share of its arithmetic, and all of its bandwidth.
    """
    gflops = None if peak is None else peak.gflops_in(call.precision)
    if peak is None or gflops is None or not call.operators or us <= 0:
        return CallLimit(Limit.UNKNOWN, 0.0, 0.0)
    arithmetic_us = call.flops / (gflops * min(threads, peak.threads) / peak.threads) / 1e3
    memory_us = call.nbytes / (peak.read_gbytes_per_s or peak.gbytes_per_s * 4 / 3) / 1e3
    least = max(arithmetic_us, memory_us)
    reached = least / us
    if reached < _FAR and us <= (_LAUNCH_US if threads == 1 else _SHARED_LAUNCH_US):
        limit = Limit.LAUNCH
    elif _COPIES.issuperset(call.operators):
        limit = Limit.COPIES
    else:
        limit = Limit.ARITHMETIC if arithmetic_us >= memory_us else Limit.MEMORY
    return CallLimit(limit, least, reached)
