"""Real-time priority for whoever times kernels, where the system grants it.

Idle priority does not keep others away from a kernel of several threads: the compiler's runtime waits for its threads
by giving up the core (sched_yield(2)), and Linux then gives it to whoever is there, for as long as a tick.  Under
SCHED_FIFO only threads of the same priority could get it, and there are none.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

__all__ = ["set_urgent"]

_LIMIT = Path("/proc/sys/kernel/sched_rt_runtime_us")


def set_urgent(urgent: bool) -> None:
    """Give the threads of this process, and those that they start, real-time priority, or take it from them.

    Nothing happens where that is not allowed (it takes CAP_SYS_NICE, or an RLIMIT_RTPRIO above 0), nor where real-time
    threads may have all of the time: a kernel that never returns would then keep everybody from ending it.
    """
    if urgent and not _is_limited():
        return
    policy, priority = (os.SCHED_FIFO, 1) if urgent else (os.SCHED_OTHER, 0)
    for thread in os.listdir("/proc/self/task"):
        with contextlib.suppress(PermissionError, ProcessLookupError):
            os.sched_setscheduler(int(thread), policy, os.sched_param(priority))


def _is_limited() -> bool:
    """Whether the system leaves some time to others whatever real-time threads do."""
    try:
        return int(_LIMIT.read_text()) >= 0
    except (OSError, ValueError):
        return False
