"""The profile of a result, from the times of its kernel calls that the validation has taken, as its report has it."""

from __future__ import annotations

from pathlib import Path

from kintune.core.execution_plan import Copy
from kintune.core.profile import Profile
from kintune.core.quantiles import quantile
from kintune.core.stage_results import Summary
from kintune.errors import InputError
from kintune.profiling.rows import finish, kernel_rows, records_of
from kintune.runtime.package import Package
from kintune.runtime.plan_format import decode_plan
from kintune_runtime.library import checksum

__all__ = ["result_profile"]

_TUNED = "tuned"
_NO_PEAK = (
    "this machine's peak is not known, so no limits are named: kintune estimate measures it once, and so do searches "
    "of five minutes or more"
)


def result_profile(path: str, summary: Summary) -> Profile | None:
    """The profile of the published file; None where its calls were not timed, or it is not the one that was timed.

    Of several combinations of shapes it is that of the first.
    """
    proof = summary.proof
    if proof is None or proof.calls is None:
        return None
    times_ms = sorted((proof.each[0] if proof.each else proof).latency_ms.get(_TUNED, ()))
    calls = proof.calls
    try:
        package = Package.open(path)
        stored = package.variants[0]
        plan = decode_plan(stored.plans[0].plan, checksum).plan
        rows = kernel_rows(plan, records_of(stored.manifest, 0), calls.us, calls.threads, summary.peak)
    except (InputError, ValueError, IndexError):  # the result is another one, such as one for onnxruntime
        return None
    if not times_ms or not rows:
        return None
    done, prefix = finish(rows)
    copies = [operation for operation in plan.operations if isinstance(operation, Copy)]
    kernels_ms = sum(call.us for call in done) / 1e3
    run_ms = quantile(times_ms, 0.5)
    notes = [] if summary.peak is not None else [_NO_PEAK]
    combinations = stored.manifest.combinations
    if len(combinations) > 1:
        notes.append(f"it runs with {len(combinations)} combinations of shapes; this is the profile of the first")
    return Profile(
        executable=Path(path).name,
        model=stored.manifest.model_name,
        cpu=calls.cpu,
        threads=calls.threads,
        shapes=combinations[0].shapes,
        runs=len(times_ms),
        run_ms=run_ms,
        p10_ms=quantile(times_ms, 0.1),
        p90_ms=quantile(times_ms, 0.9),
        kernels_ms=kernels_ms,
        gap_ms=run_ms - kernels_ms,
        copies=len(copies),
        copied_bytes=sum(plan.tensors[copy.source].nbytes for copy in copies),
        peak=summary.peak,
        prefix=prefix,
        calls=done,
        onnxruntime=None,
        timeline=calls.timeline,
        notes=tuple(notes),
    )
