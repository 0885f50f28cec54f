"""How long the parts of a network took inside it: kernel calls, and nodes that onnxruntime runs."""

from __future__ import annotations

import msgspec

__all__ = ["CallTimes", "KernelTimes", "NodeTime"]


class KernelTimes(msgspec.Struct, frozen=True):
    """The median microseconds of each kernel's call, by its place in the plan.

    `timeline` has the calls of one run that took about as long as the others: place, start and length in microseconds.
    """

    us: dict[int, float]
    timeline: tuple[tuple[int, float, float], ...] = ()


class NodeTime(msgspec.Struct, frozen=True):
    """A node of onnxruntime's graph: its name and operator, the median microseconds, and when it began in one run.

    `times` is how often it ran in one run, where `us` is the sum of these.
    """

    name: str
    op: str
    us: float
    start_us: float
    times: int = 1


class CallTimes(msgspec.Struct, frozen=True):
    """The parts of a network as they were timed inside it: on the processor `cpu`, with up to `threads` threads.

    `us` and `timeline` are those of its kernels, as in `KernelTimes`.  A result that runs in onnxruntime, at least
    partly, has none: `nodes` are those of its graph in the order in which they ran, a region being one of them.
    `regions` has by a region's number the times of its kernels, which were timed in the region alone, and `failed` why
    those of a region could not be timed, in a line.
    """

    cpu: str
    threads: int
    us: dict[int, float] = {}
    timeline: tuple[tuple[int, float, float], ...] = ()
    nodes: tuple[NodeTime, ...] = ()
    regions: dict[int, KernelTimes] = {}
    failed: dict[int, str] = {}
