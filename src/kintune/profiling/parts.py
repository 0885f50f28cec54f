"""The parts of a result that runs partly in onnxruntime: nodes that onnxruntime runs, and the kernels of regions."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from kintune.core.call_times import KernelTimes, NodeTime
from kintune.core.device import Peak
from kintune.core.hybrid import Hybrid, Region
from kintune.core.kernel_call import CallRecord, SourceNode, title_of
from kintune.core.profile import IN_ONNXRUNTIME, ProfiledCall, RegionProfile
from kintune.profiling.rows import finish, kernel_rows, records_of
from kintune.runtime.hybrid_package import HybridPackage, region_name
from kintune.runtime.manifest import Manifest
from kintune.runtime.package import Package
from kintune.runtime.plan_format import decode_plan
from kintune_runtime.library import checksum

__all__ = [
    "SLOWED",
    "UNDESCRIBED",
    "Parts",
    "failure_notes",
    "is_whole",
    "profile_parts",
    "regions_among",
    "write_region",
]

SLOWED = "onnxruntime's profiler makes its nodes slower, and tells whole microseconds; a run is timed without it"
"""The note on a network whose parts take longer together than its runs."""

UNDESCRIBED = "the file does not say what its kernels compute: an earlier version wrote it; compile it again"
"""The note on a file without titles."""


class Parts(NamedTuple):
    """The calls in the order in which they began; the other fields are as in `Profile`."""

    calls: tuple[ProfiledCall, ...]
    prefix: str
    regions: tuple[RegionProfile, ...]
    timeline: tuple[tuple[int, float, float], ...]
    notes: tuple[str, ...]


class _Kernels(NamedTuple):
    """The kernels of one region alone: their calls, and when each began in one run.

    `described` is whether the file says what its kernels compute.
    """

    calls: Sequence[ProfiledCall] = ()
    starts: Sequence[float] = ()
    described: bool = True


def is_whole(manifest: Manifest, number: int = 0) -> bool:
    """Whether one region is the whole network, which runs the combination with this number without onnxruntime."""
    hybrid = manifest.hybrid
    if hybrid is None or len(hybrid.regions) != 1 or not (hybrid.other_shapes or hybrid.plans is not None):
        return False
    if hybrid.plans is not None and number not in hybrid.plans:
        return False
    region = hybrid.regions[0]
    inputs, outputs = (tuple(tensor.name for tensor in ends) for ends in (manifest.inputs, manifest.outputs))
    return (region.inputs, region.outputs) == (inputs, outputs)


def write_region(package: HybridPackage, number: int, folder: str) -> str:
    """Write the file of a region into a folder; returns its path."""
    path = Path(folder) / region_name(number)
    path.write_bytes(package.region(number))
    return str(path)


def regions_among(hybrid: Hybrid | None, nodes: Sequence[NodeTime]) -> dict[int, NodeTime]:
    """Those of the nodes of a host graph that are regions, by the region's number."""
    numbers = _numbers(hybrid)
    return {at: node for node in nodes if (at := numbers.get((node.name, node.op))) is not None}


def _numbers(hybrid: Hybrid | None) -> dict[tuple[str, str], int]:
    """The numbers of regions by the name and the operator of their nodes."""
    regions = () if hybrid is None else hybrid.regions
    return {(region.name, f"Region{number}"): number for number, region in enumerate(regions)}


def profile_parts(
    package: HybridPackage,
    number: int,
    nodes: Sequence[NodeTime],
    times: Mapping[int, KernelTimes],
    threads: int,
    peak: Peak | None,
) -> Parts:
    """The parts of a network whose nodes onnxruntime has timed; `times` are those of the kernels of its regions.

    `number` is that of the combination of shapes.

    Raises:
        InputError: a region's file is damaged, or another one than was timed.
    """
    hybrid = package.manifest.hybrid
    numbers, inside = _numbers(hybrid), regions_among(hybrid, nodes)
    kernels = {at: _kernels(package, at, number, times[at], threads, peak) for at in inside if at in times}
    rows: list[ProfiledCall] = []
    timeline: list[tuple[int, float, float]] = []
    first = min((node.start_us for node in nodes), default=0.0)
    for node in sorted(nodes, key=lambda node: node.start_us):
        begun = node.start_us - first
        region = numbers.get((node.name, node.op))
        if region is None:
            timeline.append((len(rows), begun, node.us / node.times))
            rows.append(_row(node, len(rows), threads))
            continue
        made = kernels.get(region, _Kernels())
        for call, start in zip(made.calls, made.starts, strict=True):
            timeline.append((len(rows), begun + start, call.us))
            rows.append(
                msgspec.structs.replace(
                    call,
                    place=len(rows),
                    region=region,
                    us=call.us * node.times,
                    least_us=call.least_us * node.times,
                )
            )
    calls, prefix = finish(rows)
    total = sum(node.us for node in nodes)
    regions = [
        _region(at, region, inside.get(at), [call for call in calls if call.region == at], total, first)
        for at, region in enumerate(() if hybrid is None else hybrid.regions)
    ]
    notes = []
    if any(made.calls for made in kernels.values()):
        notes.append("each region's kernels were timed in the region alone, on drawn inputs")
    if not all(made.described for made in kernels.values()):
        notes.append(UNDESCRIBED)
    return Parts(calls, prefix, tuple(regions), tuple(timeline), tuple(notes))


def failure_notes(failed: Mapping[int, str]) -> list[str]:
    """What to say of the regions whose kernels could not be timed; `failed` has why, by their numbers."""
    return [f"region {number} does not run alone on drawn inputs: {why}" for number, why in sorted(failed.items())]


def _kernels(
    package: HybridPackage, region: int, number: int, times: KernelTimes, threads: int, peak: Peak | None
) -> _Kernels:
    """The kernels of one region, which were timed alone."""
    with tempfile.TemporaryDirectory(prefix="kintune-profile-") as folder:
        variant = Package.open(write_region(package, region, folder)).variants[0]
    number = min(number, len(variant.plans) - 1)
    plan = decode_plan(variant.plans[number].plan, checksum).plan
    starts = {place: start for place, start, _ in times.timeline}
    used = {place: us for place, us in times.us.items() if place in starts}
    calls = kernel_rows(plan, records_of(variant.manifest, number), used, threads, peak)
    return _Kernels(calls, [starts[place] for place in used], described=bool(variant.manifest.calls))


def _row(node: NodeTime, place: int, threads: int) -> ProfiledCall:
    """A node that onnxruntime runs."""
    source = SourceNode(node.name, node.op)
    record = CallRecord(place=place, kernel=node.name, nodes=(source,), operators=(node.op,))
    return ProfiledCall(
        place=place,
        kernel=node.name,
        title=title_of(record),
        nodes=record.nodes,
        operators=record.operators,
        where=IN_ONNXRUNTIME,
        threads=threads,
        us=node.us,
    )


def _region(
    number: int, region: Region, node: NodeTime | None, calls: Sequence[ProfiledCall], total: float, first: float
) -> RegionProfile:
    """A region; `node` is None where it did not run."""
    if node is None:
        return RegionProfile(number, region.name, 0, 0.0, 0.0, 0, 0.0, 0.0, 0.0, region.nodes)
    inside = sum(call.us for call in calls)
    boundary = node.us - inside if calls else 0.0
    share = node.us / total if total else 0.0
    begun = node.start_us - first
    return RegionProfile(
        number, region.name, node.times, node.us, share, len(calls), inside, boundary, begun, region.nodes
    )
