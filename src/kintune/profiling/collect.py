"""Profiles an executable: its runs, its kernels and onnxruntime's nodes are timed in turns, each in its own process."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from typing import NamedTuple

import msgspec
import numpy as np

from kintune.core.device import Peak
from kintune.core.execution_plan import Copy
from kintune.core.model import Combination
from kintune.core.profile import Profile, ProfiledCall
from kintune.errors import EngineError, InputError
from kintune.hardware.cores import choose_cores
from kintune.hardware.cpu import inspect_machine
from kintune.profiling.matching import compare
from kintune.profiling.parts import (
    SLOWED,
    UNDESCRIBED,
    failure_notes,
    is_whole,
    profile_parts,
    regions_among,
    write_region,
)
from kintune.profiling.peak import measure_peak_apart
from kintune.profiling.rows import finish, kernel_rows, records_of, stand_beside
from kintune.profiling.timing import ProfiledFile, ProfileRequest, Times, read_original, time_network
from kintune.runtime.executable import Executable
from kintune.runtime.hybrid_package import HybridPackage
from kintune.runtime.inputs import load_fitting
from kintune.runtime.package import Manifest, Package, read_manifest
from kintune.runtime.plan_format import decode_plan
from kintune.runtime.requirements import why_not_here
from kintune.validate.region_times import time_regions
from kintune_runtime.library import checksum
from kintune_runtime.onnxruntime_session import import_onnxruntime

__all__ = ["ProfileRequest", "profile_executable"]

MeasurePeak = Callable[[str, int], Peak | None]


class _Run(NamedTuple):
    """What is profiled: the file's manifest, the number of a combination of shapes, cores, and the user's model."""

    manifest: Manifest
    number: int
    cores: tuple[int, ...]
    original: ProfiledFile | None

    @property
    def combination(self) -> Combination:
        return self.manifest.combinations[self.number]


def profile_executable(request: ProfileRequest, measure_peak: MeasurePeak = measure_peak_apart) -> Profile:
    """Profiles an executable for this machine's CPU.

    `measure_peak` takes a canonical target (JSON) and a number of threads; it returns None where it cannot measure.

    Raises:
        InputError: a file cannot be used, or is for a GPU or another CPU; the inputs do not fit; onnxruntime is missing
            or too old for a result that runs partly in it.
        TargetError: more threads are asked for than there are cores.
        EngineError: the network does not run.
    """
    manifest = read_manifest(request.path)
    if manifest.hybrid is None:
        return _profile_compiled(request, measure_peak)
    package = HybridPackage.open(request.path)
    number = 0 if request.inputs is None else load_fitting(manifest.combinations, request.inputs)[0]
    if not is_whole(manifest, number):
        return _profile_hybrid(request, package, measure_peak)
    with tempfile.TemporaryDirectory(prefix="kintune-profile-") as folder:
        inside = request._replace(path=write_region(package, 0, folder))
        found = _profile_compiled(inside, measure_peak, manifest)
    note = "inputs of other shapes run in onnxruntime; this profile is of one that runs as Kintune's kernels"
    return msgspec.structs.replace(found, executable=str(request.path), notes=(*found.notes, note))


def _profile_compiled(request: ProfileRequest, measure_peak: MeasurePeak, described: Manifest | None = None) -> Profile:
    """The profile of a file that runs without onnxruntime; `described` is another manifest to name the model by."""
    package = Package.open(request.path)
    opened = Executable.open(request.path)
    manifest, variant = opened.manifest, opened.variant.number
    opened.close()
    run = _run(request, manifest)
    plan = decode_plan(package.variants[variant].plans[run.number].plan, checksum).plan
    peak = measure_peak(manifest.target, len(run.cores))
    times = time_network(request, run.original, run.combination, run.cores, hybrid=False)
    calls, prefix = finish(kernel_rows(plan, records_of(manifest, run.number), times.calls, len(run.cores), peak))
    notes = []
    if peak is None:
        notes.append(_NO_PEAK)
    if not manifest.calls:
        notes.append(UNDESCRIBED)
    copies = [operation for operation in plan.operations if isinstance(operation, Copy)]
    found = _profile(request, run._replace(manifest=described or manifest), times, calls, peak, notes)
    return msgspec.structs.replace(
        found,
        prefix=prefix,
        timeline=times.timeline,
        copies=len(copies),
        copied_bytes=sum(plan.tensors[copy.source].nbytes for copy in copies),
    )


def _profile_hybrid(request: ProfileRequest, package: HybridPackage, measure_peak: MeasurePeak) -> Profile:
    """The profile of a file that runs partly, or wholly, in onnxruntime."""
    manifest = package.manifest
    if package.regions and (why := why_not_here(manifest)) is not None:
        raise InputError(f"{request.path}: {why}")
    import_onnxruntime()  # raises before anything runs if it is missing or too old
    run = _run(request, manifest)
    peak = measure_peak(manifest.target, len(run.cores)) if package.regions else None
    times = time_network(request, run.original, run.combination, run.cores, hybrid=True)
    if times.own_nodes is None:
        raise EngineError(f"{request.path}: onnxruntime told nothing of its nodes")
    nodes = times.own_nodes.nodes
    inside = regions_among(manifest.hybrid, nodes)
    alone = time_regions(package, inside, run.number, run.cores, request.runs, request.seconds)
    parts = profile_parts(package, run.number, nodes, alone.kernels, len(run.cores), peak)
    notes = [*parts.notes, *failure_notes(alone.failed), *([_NO_PEAK] if peak is None and package.regions else [])]
    found = _profile(request, run, times, parts.calls, peak, notes)
    if found.gap_ms < 0:
        found = msgspec.structs.replace(found, notes=(*found.notes, SLOWED))
    return msgspec.structs.replace(found, prefix=parts.prefix, timeline=parts.timeline, regions=parts.regions)


_NO_PEAK = "the machine's peak could not be measured (see kintune doctor), so no limits are named"


def _run(request: ProfileRequest, manifest: Manifest) -> _Run:
    """Resolves a request: cores, the combination of shapes that its inputs have, and the user's model, if any."""
    cores = choose_cores(request.threads or min(manifest.threads, len(choose_cores(0))))
    number = 0 if request.inputs is None else load_fitting(manifest.combinations, request.inputs)[0]
    ref = request.model
    original = None if ref is None else read_original(ref, manifest.combinations[number])
    return _Run(manifest, number, tuple(cores), original)


def _profile(
    request: ProfileRequest,
    run: _Run,
    times: Times,
    calls: tuple[ProfiledCall, ...],
    peak: Peak | None,
    notes: list[str],
) -> Profile:
    """The profile as far as it is the same for compiled and hybrid files."""
    told = []
    onnx = None
    if times.problem:
        told.append(f"onnxruntime: {times.problem}")
    elif times.nodes is not None and run.original is not None:
        names = [tensor.name for tensor in run.combination.inputs]
        groups = compare(calls, times.nodes.nodes, run.original.graph, names)
        onnx, calls = stand_beside(times, groups, calls)
        if not groups:
            told.append("none of onnxruntime's nodes is one of this network's: is it the same model?")
    told += notes
    if len(run.manifest.combinations) > 1:
        told.append(
            f"it runs with {len(run.manifest.combinations)} combinations of shapes; --input chooses another one"
        )
    kernels_us = sum(call.us for call in calls)
    p10, median, p90 = (float(np.quantile(times.runs_ms, q)) for q in (0.1, 0.5, 0.9))
    return Profile(
        executable=str(request.path),
        model=run.manifest.model_name,
        cpu=inspect_machine().cpu,
        threads=len(run.cores),
        shapes=run.combination.shapes,
        runs=len(times.runs_ms),
        run_ms=median,
        p10_ms=p10,
        p90_ms=p90,
        kernels_ms=kernels_us / 1e3,
        gap_ms=median - kernels_us / 1e3,
        copies=0,
        copied_bytes=0,
        peak=peak,
        prefix="",
        calls=calls,
        onnxruntime=onnx,
        timeline=(),
        notes=tuple(told),
    )
