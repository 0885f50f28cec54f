"""How long the parts of a network took inside it: kernel calls, and nodes that onnxruntime runs."""

from __future__ import annotations

import msgspec

__all__ = ["CallTimes", "KernelTimes", "NodeTime"]


class KernelTimes(msgspec.Struct, frozen=True):
    """The median microseconds of each kernel call, by its place in the plan.

    `timeline` has the calls of one run of typical length, each as place, start and duration in microseconds.
    """

    us: dict[int, float]
    timeline: tuple[tuple[int, float, float], ...] = ()


class NodeTime(msgspec.Struct, frozen=True):
    """A node of onnxruntime's graph: its name and operator, the median microseconds, and when it began in one run.

    `times` is how often the node ran in one run of the network; `us` is the sum over these.
    """

    name: str
    op: str
    us: float
    start_us: float
    times: int = 1


class CallTimes(msgspec.Struct, frozen=True):
    """The times of a network's kernels and nodes inside it, on the processor `cpu` with up to `threads` threads.

    `us` and `timeline` are as in `KernelTimes`.  They are empty for a result that runs partly or wholly in onnxruntime.
    For such a result, `nodes` are the nodes of onnxruntime's graph in the order in which they ran; a region is one of
    them.  `regions` maps the number of a region to the times of its kernels, which were timed in the region alone.
    `failed` maps the number of a region that could not be timed to the reason, in one line.
    """

    cpu: str
    threads: int
    us: dict[int, float] = {}
    timeline: tuple[tuple[int, float, float], ...] = ()
    nodes: tuple[NodeTime, ...] = ()
    regions: dict[int, KernelTimes] = {}
    failed: dict[int, str] = {}
