"""The processors that a device's threads are pinned to, and their priority."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from kintune.errors import TargetError
from kintune.hardware.quota import threads_within

__all__ = ["choose_cores", "memory_mb", "physical_cores", "pinned_to", "set_realtime_priority"]


_CPUS = Path("/sys/devices/system/cpu")


def physical_cores(usable: Sequence[int] | None = None, root: Path = _CPUS) -> tuple[int, ...]:
    """One processor of each physical core among `usable` (by default those this process may run on), in order.

    `root` is where the kernel lists its processors.  One whose siblings it does not tell counts as a core of its own.
    """
    cores: dict[str, int] = {}
    for cpu in sorted(os.sched_getaffinity(0) if usable is None else usable):
        try:
            core = (root / f"cpu{cpu}" / "topology" / "thread_siblings_list").read_text().strip()
        except OSError:
            core = f"processor {cpu}"
        cores.setdefault(core, cpu)
    return tuple(cores.values())


def choose_cores(threads: int) -> tuple[int, ...]:
    """The processors to pin `threads` threads to, at most one on a physical core.

    0 threads means all such cores, or as many of them as a CPU quota allows to be busy.

    Raises:
        TargetError: `threads` is negative, or more than the physical cores this process may use.
    """
    cores = physical_cores()
    if not 0 <= threads <= len(cores):
        raise TargetError(
            f"threads={threads}: this process may use {len(cores)} physical cores; ask for 1 to {len(cores)}"
        )
    return cores[: threads or threads_within(len(cores))]


@contextlib.contextmanager
def pinned_to(core: int) -> Iterator[None]:
    """Keep the calling thread, and nothing else, on one processor inside the `with` block.

    Processes and threads started inside the block would inherit the pin, so it is never held longer than a measurement.
    """
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


_LIMIT = Path("/proc/sys/kernel/sched_rt_runtime_us")


def set_realtime_priority(urgent: bool) -> None:
    """Give the threads of this process, and those that they start, real-time priority, or take it from them.

    Nothing happens where that is not allowed (it takes CAP_SYS_NICE, or an RLIMIT_RTPRIO above 0).  Nor does it where
    the system lets real-time threads take all of the time: then nobody could end a kernel that never returns.
    """
    if urgent and not _is_limited():
        return
    policy, priority = (os.SCHED_FIFO, 1) if urgent else (os.SCHED_OTHER, 0)
    for thread in os.listdir("/proc/self/task"):
        with contextlib.suppress(PermissionError, ProcessLookupError):
            os.sched_setscheduler(int(thread), policy, os.sched_param(priority))


def _is_limited() -> bool:
    """Whether the system limits the time of real-time threads, so that others get some."""
    try:
        return int(_LIMIT.read_text()) >= 0
    except (OSError, ValueError):
        return False


def memory_mb() -> int:
    """Return the memory of this machine in MiB."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // (1 << 20)
