"""Publishing: checks the proof of a result, moves the executable to its output path, and makes the report."""

from __future__ import annotations

import glob
from collections.abc import Mapping, Sequence
from pathlib import Path

from kintune.core.candidate import FULL_PRECISION
from kintune.core.config import JobSpec
from kintune.core.failure_report import remove_report
from kintune.core.hybrid import Region
from kintune.core.kernel_bounds import KernelBounds
from kintune.core.profile import Profile
from kintune.core.report import (
    CombinationReport,
    CurvePoint,
    Latencies,
    ModelIdentity,
    RegionReport,
    RunReport,
    StageSeconds,
    StopReason,
    SubgraphReport,
)
from kintune.core.stage_requests import kernel_name
from kintune.core.stage_results import (
    ALONE_FILE,
    BOARD_FILE,
    EXPORTED_FILE,
    QUANTISED_DATA,
    QUANTISED_FILE,
    UNPROVEN,
    UNTUNED_FILE,
    Packaged,
    StageName,
    Summary,
    ValidationResult,
)
from kintune.core.uncertainty import uncertain_calls, uncertain_latency
from kintune.core.verdict import Verdict
from kintune.errors import InputError, JobFailed, NumericsError, StorageError
from kintune.files import move_into_place
from kintune.models.combinations import MOST_COMBINATIONS
from kintune.partition.keeping import hand_over_all, hand_over_plans, keep_regions, limit_region_threads
from kintune.records import Run
from kintune.runtime.hybrid_package import kernel_bounds
from kintune.runtime.package import read_manifest, write_with_error, write_with_thread_counts
from kintune.tuning.front.result_profile import result_profile
from kintune.tuning.job.handover import slow_line
from kintune.tuning.job.stage_factory import held_back
from kintune.workers.engine.timings import Timings

__all__ = ["discard", "publish", "report_of"]


def publish(output: str, summary: Summary) -> dict[str, str]:
    """Move the executable to `output` if its proof holds; returns what was skipped, with reasons.

    The number of threads that the proof has chosen for each kernel is written into it.

    If the untuned network is faster than the tuned one, the untuned one is published.  A report beside `output` is
    removed, since it describes an earlier result.

    Raises:
        NumericsError: the outputs differ.
        JobFailed: there is no proof.
        StorageError: the file cannot be written.
    """
    proof, packaged = summary.proof, summary.packaged
    if packaged is None or proof is None:
        raise JobFailed("the result could not be proven, so it was not written; the run's log says why")
    if proof.verdict is Verdict.WRONG:
        raise NumericsError(
            f"the outputs of the compiled network differ from those of {' and '.join(proof.compared_with)}, so it was "
            f"not written: {proof.disagreement}"
        )
    skipped = dict(proof.skipped)
    source = packaged.tuned
    if packaged.untuned is not None and proof.regions is None and _slower(proof):
        source = packaged.untuned
        skipped["tuned"] = "slower than the untuned network, which was written instead"
    try:
        if proof.thread_counts and source is packaged.tuned:
            write_with_thread_counts(source, source, proof.thread_counts)
        if proof.norm_error is not None:
            write_with_error(source, proof.norm_error)
        _keep(Path(source), packaged, proof, is_tuned=source is packaged.tuned)
        move_into_place(source, output)
        remove_report(output)
    except (InputError, StorageError) as error:
        raise StorageError(f"{error}; the same command continues from here") from error
    except OSError as error:
        raise StorageError(
            f"{output} cannot be written: {error.strerror}; the same command continues from here"
        ) from error
    return skipped


def _keep(path: Path, packaged: Packaged, proof: ValidationResult, *, is_tuned: bool) -> None:
    """Give back to onnxruntime what the proof says; the tuned network gets the threads of its regions' kernels."""
    if proof.regions == () and packaged.onnx is not None:
        hand_over_all(path, Path(packaged.onnx), packaged.constants, path, fixed=proof.fixed)
    elif proof.plans is not None and packaged.onnx is not None:
        hand_over_plans(path, proof.plans, Path(packaged.onnx), packaged.constants, path)
    elif packaged.hybrid:
        onnx = Path(packaged.onnx) if packaged.onnx else None
        keep_regions(path, proof.regions, path, onnx, packaged.constants)
        if proof.region_threads and is_tuned:
            limit_region_threads(path, proof.region_threads, path)


def discard(output: str) -> None:
    """Remove the files beside `output` that are needed for the proof only."""
    alone = (f"{ALONE_FILE}{number or ''}" for number in range(MOST_COMBINATIONS))
    quantised = (f"{QUANTISED_FILE}{suffix}" for suffix in ("", QUANTISED_DATA, ".json"))
    for suffix in (UNPROVEN, UNTUNED_FILE, *quantised, *alone):
        Path(f"{output}{suffix}").unlink(missing_ok=True)
        Path(f"{output}{suffix}{BOARD_FILE}").unlink(missing_ok=True)
    for exported in Path(output).parent.glob(f"{glob.escape(Path(output).name)}.*{EXPORTED_FILE}*"):
        exported.unlink(missing_ok=True)


def _slower(proof: ValidationResult) -> bool:
    """Whether the untuned network is faster, as far as their times tell."""
    latencies = Latencies.of(proof.latency_ms, proof.rounds_ms)
    if (paired := latencies.paired.get("untuned")) is not None:
        return paired.low > 1.0
    return latencies.gain is not None and latencies.gain < 1.0


_FOUR = (StageName.SELECT, StageName.BUILD, StageName.PROFILE, StageName.UPDATE)


def report_of(
    run: Run,
    spec: JobSpec,
    summary: Summary,
    timings: Timings,
    *,
    skipped: Mapping[str, str],
    output: str,
    log: str,
    resumed: bool,
) -> RunReport:
    """Return the report of a finished run; `run` is as it was when this session, to which `timings` belong, began."""
    proof = summary.proof
    runs_programs = "tuned" not in skipped and not (proof is not None and proof.regions == ())
    latency_ms = Latencies.of(*((proof.latency_ms, proof.rounds_ms) if proof else ({},)))
    profile = result_profile(output, summary) if "tuned" not in skipped else None
    by_stage = timings.stage_seconds
    four = {name: by_stage.get(name, 0.0) for name in _FOUR}
    return RunReport(
        run_id=run.run_id,
        model=ModelIdentity(summary.model_name, summary.model_digest),
        target=spec.device_type.target,
        options=spec.options,
        seeds=run.seeds,
        versions=run.versions,
        reason=StopReason(summary.reason),
        trials=summary.trials,
        reused_records=summary.reused,
        disturbed=summary.disturbed,
        seconds=run.active_seconds + timings.wall_seconds,
        stage_seconds=StageSeconds(**four, other=timings.wall_seconds - sum(four.values())),
        subgraphs=tuple(
            SubgraphReport(
                name=end.name,
                weight=end.weight,
                flops=end.flops,
                family=end.family,
                trials=end.trials,
                best_us=end.best_us,
                failures=end.failures,
                untuned_us=end.untuned_us,
                precision=end.precision if runs_programs else FULL_PRECISION,
                workload=end.workload,
                titles=end.titles,
            )
            for end in summary.subgraphs
        ),
        curve=tuple(CurvePoint(*point) for point in summary.curve),
        latency_ms=latency_ms,
        max_abs_error=proof.max_abs_error if proof else None,
        max_rel_error=proof.max_rel_error if proof else None,
        within_tolerance=proof.within_tolerance if proof else None,
        output=output,
        log=log,
        skipped=dict(skipped),
        resumed=resumed,
        kernels_ms=summary.kernels_ms,
        overhead_seconds=timings.overhead_seconds,
        knowledge=summary.knowledge,
        notes=(*summary.notes, *(proof.notes if proof else ())),
        combinations=_combinations(spec, summary),
        fastest_baseline=latency_ms.fastest_baseline,
        norm_error=proof.norm_error if proof else None,
        score=proof.score if proof else None,
        held_back=held_back(spec) if spec.options.error_budget is not None else 0,
        quantised=summary.quantised if proof is None or proof.regions != () else None,
        kept_tensors=summary.packaged.kept if runs_programs and summary.packaged is not None else 0,
        baselines_before_ms=summary.baselines.together_ms() if summary.baselines is not None else {},
        bound=proof.bound if proof else "",
        extreme_inputs=proof.extremes if proof else (),
        bounds=_bounds(output),
        not_compared=_not_compared(proof),
        profile=profile,
        uncertain=(
            *uncertain_latency(latency_ms),
            *_uncertain_calls(profile, summary),
            *(slow_line(part) for part in (proof.slow if proof else ())),
        ),
        regions=tuple(RegionReport(each.name, len(each.nodes), each.precisions) for each in _regions(summary, output)),
    )


def _uncertain_calls(profile: Profile | None, summary: Summary) -> list[str]:
    """Lines on what takes far longer in the network than alone."""
    if profile is None or summary.packaged is None:
        return []
    alone_us = {}
    for end in summary.subgraphs:
        if end.best_us is not None:
            alone_us[end.name] = end.best_us
            alone_us[kernel_name(summary.packaged.chosen.get(end.workload, ""))] = end.best_us
    is_all = not profile.is_hybrid and not summary.kernels_each_ms and all(end.best_us for end in summary.subgraphs)
    return uncertain_calls(profile, summary.kernels_ms if is_all else None, alone_us)


def _bounds(path: str) -> tuple[KernelBounds, ...]:
    try:
        return kernel_bounds(path)
    except InputError:  # somebody has moved it already
        return ()


def _not_compared(proof: ValidationResult | None) -> tuple[str, ...]:
    return ("its outputs: the result was not run",) if proof is None else proof.not_compared


def _regions(summary: Summary, output: str) -> Sequence[Region]:
    """The regions of a result that is published; none of one that runs in Kintune alone, or in onnxruntime."""
    if summary.packaged is None or not summary.packaged.hybrid:
        return ()
    try:
        hybrid = read_manifest(output).hybrid
    except InputError:  # somebody has moved it already
        return ()
    return () if hybrid is None else hybrid.regions


def _combinations(spec: JobSpec, summary: Summary) -> tuple[CombinationReport, ...]:
    """The report of each combination of shapes; nothing where there is only one."""
    combinations = spec.model.combinations
    if len(combinations) == 1:
        return ()
    proofs = summary.proof.each if summary.proof is not None else ()
    reports = []
    for number, shapes in enumerate(combinations):
        proof = proofs[number] if proofs else None
        reports.append(
            CombinationReport(
                shapes=shapes,
                kernels_ms=summary.kernels_each_ms[number] if summary.kernels_each_ms else None,
                latency_ms=Latencies.of(*((proof.latency_ms, proof.rounds_ms) if proof else ({},))),
                max_abs_error=proof.max_abs_error if proof else None,
                max_rel_error=proof.max_rel_error if proof else None,
                within_tolerance=proof.within_tolerance if proof else None,
            )
        )
    return tuple(reports)
