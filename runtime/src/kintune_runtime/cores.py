"""How many cores this process may use."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["usable_cores"]

_PROCESSORS = Path("/sys/devices/system/cpu")


def usable_cores(root: Path = _PROCESSORS) -> int:
    """The physical cores among the processors that this thread may run on.

    `root` is where the kernel lists its processors.  One whose siblings it does not tell counts as a core of its own.
    """
    cores = set()
    for processor in os.sched_getaffinity(0):
        try:
            siblings = (root / f"cpu{processor}" / "topology" / "thread_siblings_list").read_text().strip()
        except OSError:
            siblings = f"processor {processor}"
        cores.add(siblings)
    return len(cores)
