"""The profile of a result, from the times of its parts that the validation has taken, as its report has it."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import NamedTuple

from kintune.core.call_times import CallTimes
from kintune.core.device import Peak
from kintune.core.execution_plan import Copy
from kintune.core.profile import Profile, ProfiledCall, RegionProfile
from kintune.core.quantiles import quantile
from kintune.core.stage_results import Summary
from kintune.errors import InputError
from kintune.profiling.parts import SLOWED, failure_notes, is_whole, profile_parts, regions_among, write_region
from kintune.profiling.rows import finish, kernel_rows, records_of
from kintune.runtime.hybrid_package import HybridPackage
from kintune.runtime.manifest import Manifest, read_manifest
from kintune.runtime.package import Package
from kintune.runtime.plan_format import decode_plan
from kintune_runtime.library import checksum

__all__ = ["result_profile"]

_TUNED = "tuned"
_REGION = "Region"  # the start of the operators of regions
_NO_PEAK = (
    "this machine's peak is not known, so no limits are named: kintune profile measures it and names them; searches of "
    "five minutes or more measure it too"
)


class _Content(NamedTuple):
    """The fields of a `Profile` that depend on the kind of the file."""

    calls: tuple[ProfiledCall, ...]
    prefix: str
    timeline: tuple[tuple[int, float, float], ...]
    copies: int = 0
    copied_bytes: int = 0
    regions: tuple[RegionProfile, ...] = ()
    notes: tuple[str, ...] = ()


def result_profile(path: str, summary: Summary) -> Profile | None:
    """The profile of the published file; None where its parts were not timed, or it is not the one that was timed.

    Of several combinations of shapes it is that of the first.
    """
    proof = summary.proof
    if proof is None or proof.calls is None:
        return None
    times_ms = sorted((proof.each[0] if proof.each else proof).latency_ms.get(_TUNED, ()))
    calls = proof.calls
    try:
        manifest = read_manifest(path)
        found = _content(path, manifest, calls, summary.peak)
    except (InputError, ValueError, IndexError):  # the result is another one, or somebody has moved it already
        return None
    if not times_ms or found is None or not found.calls:
        return None
    kernels_ms = sum(call.us for call in found.calls) / 1e3
    run_ms = quantile(times_ms, 0.5)
    notes = [*found.notes]
    if summary.peak is None and (found.regions or not calls.nodes):
        notes.append(_NO_PEAK)
    if calls.nodes and run_ms < kernels_ms:
        notes.append(SLOWED)
    combinations = manifest.combinations
    if len(combinations) > 1:
        notes.append(f"it runs with {len(combinations)} combinations of shapes; this is the profile of the first")
    return Profile(
        executable=Path(path).name,
        model=manifest.model_name,
        cpu=calls.cpu,
        threads=calls.threads,
        shapes=combinations[0].shapes,
        runs=len(times_ms),
        run_ms=run_ms,
        p10_ms=quantile(times_ms, 0.1),
        p90_ms=quantile(times_ms, 0.9),
        kernels_ms=kernels_ms,
        gap_ms=run_ms - kernels_ms,
        copies=found.copies,
        copied_bytes=found.copied_bytes,
        peak=summary.peak,
        prefix=found.prefix,
        calls=found.calls,
        onnxruntime=None,
        timeline=found.timeline,
        notes=tuple(notes),
        regions=found.regions,
    )


def _content(path: str, manifest: Manifest, calls: CallTimes, peak: Peak | None) -> _Content | None:
    """The parts of the file; None where it has others than those that were timed.

    Raises:
        InputError: the same, or the file cannot be read.
    """
    if calls.nodes:
        return _of_hybrid(path, manifest, calls, peak)
    if manifest.hybrid is None:
        return _of_kernels(path, calls, peak)
    if not is_whole(manifest):
        return None
    with tempfile.TemporaryDirectory(prefix="kintune-profile-") as folder:
        return _of_kernels(write_region(HybridPackage.open(path), 0, folder), calls, peak)


def _of_kernels(path: str, calls: CallTimes, peak: Peak | None) -> _Content:
    """Returns the content of a file that runs the first combination without onnxruntime."""
    stored = Package.open(path).variants[0]
    plan = decode_plan(stored.plans[0].plan, checksum).plan
    rows = kernel_rows(plan, records_of(stored.manifest, 0), calls.us, calls.threads, peak)
    done, prefix = finish(rows)
    copies = [operation for operation in plan.operations if isinstance(operation, Copy)]
    copied = sum(plan.tensors[copy.source].nbytes for copy in copies)
    return _Content(done, prefix, calls.timeline, len(copies), copied)


def _of_hybrid(path: str, manifest: Manifest, calls: CallTimes, peak: Peak | None) -> _Content | None:
    """Returns the content of a file that runs partly, or wholly, in onnxruntime; None if it has other regions."""
    package = HybridPackage.open(path)
    inside = regions_among(manifest.hybrid, calls.nodes)
    timed = sum(node.op.startswith(_REGION) and node.op[len(_REGION) :].isdigit() for node in calls.nodes)
    if timed != len(inside):
        return None
    parts = profile_parts(package, 0, calls.nodes, calls.regions, calls.threads, peak)
    notes = (*parts.notes, *failure_notes(calls.failed))
    return _Content(parts.calls, parts.prefix, parts.timeline, regions=parts.regions, notes=notes)
