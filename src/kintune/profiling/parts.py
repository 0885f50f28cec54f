"""The parts of a result that runs partly in onnxruntime: nodes that onnxruntime runs, and the kernels of regions."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from kintune.core.device import Peak
from kintune.core.hybrid import Region
from kintune.core.kernel_call import CallRecord, SourceNode, title_of
from kintune.core.profile import IN_ONNXRUNTIME, ProfiledCall, RegionProfile
from kintune.errors import EngineError
from kintune.profiling.rows import finish, kernel_rows, records_of
from kintune.profiling.timing import ProfileRequest, time_kernels
from kintune.runtime.hybrid_package import HybridPackage, region_name
from kintune.runtime.manifest import Manifest
from kintune.runtime.package import Package
from kintune.runtime.plan_format import decode_plan
from kintune.validate.baselines.node_times import NodeTime, NodeTimes
from kintune_runtime.library import checksum

__all__ = ["Parts", "is_whole", "profile_parts", "write_region"]

_SHORTEST_SECONDS = 0.2  # for each region, however many there are


class Parts(NamedTuple):
    """The calls in the order in which they began, and more as in `Profile`."""

    calls: tuple[ProfiledCall, ...]
    prefix: str
    regions: tuple[RegionProfile, ...]
    timeline: tuple[tuple[int, float, float], ...]
    notes: tuple[str, ...]


class _Kernels(NamedTuple):
    """The kernels of one region alone: their calls, when each began in one run, and what went wrong.

    `described` is whether the file says what its kernels compute.
    """

    calls: Sequence[ProfiledCall] = ()
    starts: Sequence[float] = ()
    problem: str | None = None
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


def profile_parts(
    request: ProfileRequest,
    package: HybridPackage,
    number: int,
    nodes: NodeTimes,
    cores: Sequence[int],
    peak: Peak | None,
) -> Parts:
    """The parts of a network whose nodes onnxruntime has timed; the kernels of its regions are timed here.

    `number` is that of the combination of shapes.

    Raises:
        InputError: a region's file is damaged.
    """
    hybrid = package.manifest.hybrid
    told = () if hybrid is None else hybrid.regions
    numbers = {(region.name, f"Region{at}"): at for at, region in enumerate(told)}
    inside = {at: node for node in nodes.nodes if (at := numbers.get((node.name, node.op))) is not None}
    seconds = max(_SHORTEST_SECONDS, request.seconds / max(1, len(inside)))
    kernels: dict[int, _Kernels] = {}
    with tempfile.TemporaryDirectory(prefix="kintune-profile-") as folder:
        for at in inside:
            path = write_region(package, at, folder)
            kernels[at] = _kernels(path, at, number, cores, request.runs, seconds, peak)
            Path(path).unlink()
    rows: list[ProfiledCall] = []
    timeline: list[tuple[int, float, float]] = []
    first = min((node.start_us for node in nodes.nodes), default=0.0)
    for node in sorted(nodes.nodes, key=lambda node: node.start_us):
        begun = node.start_us - first
        region = numbers.get((node.name, node.op))
        if region is None:
            timeline.append((len(rows), begun, node.us / node.times))
            rows.append(_row(node, len(rows), len(cores)))
            continue
        for call, start in zip(kernels[region].calls, kernels[region].starts, strict=True):
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
    total = sum(node.us for node in nodes.nodes)
    regions = [
        _region(at, region, inside.get(at), [call for call in calls if call.region == at], total, first)
        for at, region in enumerate(told)
    ]
    notes = [made.problem for made in kernels.values() if made.problem is not None]
    if any(made.calls for made in kernels.values()):
        notes.insert(0, "each region's kernels were timed in the region alone, on drawn inputs")
    if not all(made.described for made in kernels.values()):
        notes.append("the file does not say what its kernels compute: an earlier version wrote it; compile it again")
    return Parts(calls, prefix, tuple(regions), tuple(timeline), tuple(notes))


def _kernels(
    path: str, region: int, number: int, cores: Sequence[int], runs: int, seconds: float, peak: Peak | None
) -> _Kernels:
    """Time the kernels of one region alone."""
    variant = Package.open(path).variants[0]
    number = min(number, len(variant.plans) - 1)
    manifest = variant.manifest
    try:
        times = time_kernels(path, manifest.combinations[number], cores, runs, seconds)
    except EngineError as error:
        return _Kernels(problem=f"region {region} does not run alone on drawn inputs: {error}")
    plan = decode_plan(variant.plans[number].plan, checksum).plan
    starts = {place: start for place, start, _ in times.timeline}
    used = {place: us for place, us in times.us.items() if place in starts}
    calls = kernel_rows(plan, records_of(manifest, number), used, len(cores), peak)
    return _Kernels(calls, [starts[place] for place in used], described=bool(manifest.calls))


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
