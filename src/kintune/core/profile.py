"""The profile of a compiled network, as it is shown, written as JSON and returned by `kintune.profile`."""

from __future__ import annotations

from enum import Enum

import msgspec

from kintune.core.candidate import FULL_PRECISION
from kintune.core.device import Peak
from kintune.core.kernel_call import SourceNode

__all__ = [
    "IN_ONNXRUNTIME",
    "ComparedGroup",
    "Limit",
    "NodeProfile",
    "OnnxProfile",
    "Profile",
    "ProfiledCall",
    "RegionProfile",
    "narrow_precision",
    "reached",
]


IN_ONNXRUNTIME = "onnxruntime"
"""`where` of a node that onnxruntime runs."""


class Limit(str, Enum):
    """What bounds a kernel call."""

    ARITHMETIC = "arithmetic"
    MEMORY = "memory"
    LAUNCH = "launch"
    COPIES = "copies"
    UNKNOWN = "unknown"


class ProfiledCall(msgspec.Struct, frozen=True, kw_only=True):
    """A kernel call: what it computes, and its median time in microseconds inside the network.

    `place` is its place in the plan, `kernel` the kernel's own name, `title` what it computes in one line; `nodes`,
    `operators` and `inserted` are as in `CallRecord`.  `where` is the runtime that runs it, on at most `threads`
    threads.  `precision` is what it multiplies in: "fp32" stands for the model's own types, and for nodes in
    onnxruntime.  `share` is its share of all calls.  `gflops` and `gbytes_per_s` are its rates.  `least_us` is the time
    that its arithmetic or its memory traffic takes at the machine's peak in that precision, and `reached` that time
    over its own.  Rates, `least_us` and `reached` are 0 where the file does not say what the kernel computes.

    Of a result that runs partly in onnxruntime, a node that onnxruntime runs is a call as well: `where` is
    "onnxruntime", `kernel` is the node's name, `operators` has its operator, and there are no rates.  Such a call, and
    one of a region, has its number among all calls as its `place`; `region` is the number of the region, -1 for none.
    The calls of a region were timed in the region alone; `us` counts all runs of the region in one run of the network.

    `onnxruntime_us` is the time that onnxruntime takes for the same nodes, where they are told apart; `group` is the
    number of the `ComparedGroup` that it belongs to, -1 for none.
    """

    place: int
    kernel: str
    title: str
    nodes: tuple[SourceNode, ...] = ()
    operators: tuple[str, ...] = ()
    inserted: bool = False
    where: str = "kintune"
    threads: int = 1
    precision: str = FULL_PRECISION
    us: float = 0.0
    share: float = 0.0
    gflops: float = 0.0
    gbytes_per_s: float = 0.0
    limit: Limit = Limit.UNKNOWN
    least_us: float = 0.0
    reached: float = 0.0
    onnxruntime_us: float | None = None
    group: int = -1
    region: int = -1


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def reached(call: ProfiledCall) -> str:
    """How near a call comes to its limit; ">100%" where its operands came from caches, not from memory."""
    return ">100%" if call.reached > 1.0 else f"{call.reached:.0%}"


def narrow_precision(call: ProfiledCall) -> str:
    """The precision of a call that multiplies in a narrower one than the model's types; empty for others."""
    return "" if call.precision == FULL_PRECISION else call.precision


class NodeProfile(msgspec.Struct, frozen=True):
    """A node of onnxruntime's optimised graph; `start_us` counts from the start of a run, `group` as for calls."""

    name: str
    op: str
    us: float
    start_us: float
    group: int = -1


class ComparedGroup(msgspec.Struct, frozen=True):
    """The least sets of calls and of onnxruntime's nodes that compute the same nodes of the user's graph.

    `calls` are places, `nodes` the positions in `OnnxProfile.nodes`.
    """

    calls: tuple[int, ...]
    nodes: tuple[int, ...]
    us: float
    onnxruntime_us: float


class OnnxProfile(msgspec.Struct, frozen=True, kw_only=True):
    """What onnxruntime says of the same model: its version, the median of its runs, and its nodes as they ran.

    `matched_us` is the time of those nodes that are found among Kintune's calls.
    """

    version: str
    run_ms: float
    nodes_us: float
    matched_us: float
    nodes: tuple[NodeProfile, ...]
    groups: tuple[ComparedGroup, ...]


class RegionProfile(msgspec.Struct, frozen=True):
    """A region of a result that runs partly in onnxruntime: its number, its name in the graph, and its times.

    `nodes` are the names of the user's nodes that it computes.
    `us` is its median inside the network in microseconds, all of its `times` in one run together: 0 where it did not
    run.  `kernels_us` is the sum of its `calls`, which were timed in the region alone, and `boundary_us` what is left:
    the way from onnxruntime and back; 0 where they could not be timed.  `start_us` is when it first began, counted from
    the first node.  `share` is its share of the times of all nodes that onnxruntime tells of.
    """

    number: int
    name: str
    times: int
    us: float
    share: float
    calls: int
    kernels_us: float
    boundary_us: float
    start_us: float
    nodes: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        """A short name: "region 1 (19 nodes)"."""
        return f"region {self.number} ({_counted(len(self.nodes), 'node')})"


class Profile(msgspec.Struct, frozen=True, kw_only=True):
    """Where the time of a network goes.  `calls` are in the order in which they run.

    `run_ms` is the median of `runs` whole runs, arrays in to arrays out, `p10_ms` and `p90_ms` tell their spread.
    `kernels_ms` is the sum of the calls, and `gap_ms` what a run takes beside them.  The plan also has `copies` of
    tensors, of `copied_bytes` in all.  `peak` is what this machine reached with `threads` threads just before; None
    where it could not be measured.  `timeline` has one run: the place, the start and the length of each call in us.
    `prefix` is what the names of nearly all nodes begin with, and titles leave out.  `notes` are for the user.
    `regions` are those of a result that runs partly in onnxruntime.
    """

    schema_version: int = 1
    executable: str
    model: str
    cpu: str
    threads: int
    shapes: dict[str, tuple[int, ...]]
    runs: int
    run_ms: float
    p10_ms: float
    p90_ms: float
    kernels_ms: float
    gap_ms: float
    copies: int
    copied_bytes: int
    peak: Peak | None
    prefix: str
    calls: tuple[ProfiledCall, ...]
    onnxruntime: OnnxProfile | None
    timeline: tuple[tuple[int, float, float], ...]
    notes: tuple[str, ...] = ()
    regions: tuple[RegionProfile, ...] = ()

    @property
    def precisions(self) -> tuple[str, ...]:
        """The precisions, narrower than the model's types, that calls multiply in."""
        return tuple(sorted({call.precision for call in self.calls} - {FULL_PRECISION}))

    @property
    def peak_text(self) -> str:
        """The measured peak in words, in the precisions that its calls multiply in; empty where it is not known."""
        if self.peak is None:
            return ""
        narrow = self.peak.narrow_gflops or {}
        rates = {FULL_PRECISION: self.peak.gflops, **{each: narrow[each] for each in self.precisions if each in narrow}}
        arithmetic = ", ".join(f"{gflops:.0f} GFLOP/s in {precision}" for precision, gflops in rates.items())
        return f"{arithmetic}, {self.peak.read_gbytes_per_s or self.peak.gbytes_per_s:.1f} GB/s read from memory"

    @property
    def slowest(self) -> tuple[ProfiledCall, ...]:
        """The calls, the slowest first."""
        return tuple(sorted(self.calls, key=lambda call: -call.us))

    @property
    def is_hybrid(self) -> bool:
        """Whether it runs partly or wholly in onnxruntime."""
        return bool(self.regions) or any(call.where == IN_ONNXRUNTIME for call in self.calls)

    @property
    def summed(self) -> str:
        """The calls that the sum covers: "19 kernel calls", or "12 kernel calls and 3 nodes in onnxruntime"."""
        kernels = _counted(len(self.calls) - len(self.left), "kernel call")
        nodes = f"{_counted(len(self.left), 'node')} in onnxruntime"
        if not self.is_hybrid:
            return kernels
        return nodes if len(self.left) == len(self.calls) else f"{kernels} and {nodes}"

    @property
    def left(self) -> tuple[ProfiledCall, ...]:
        """The nodes that onnxruntime runs, of a result that runs partly in it."""
        return tuple(call for call in self.calls if call.where == IN_ONNXRUNTIME)
