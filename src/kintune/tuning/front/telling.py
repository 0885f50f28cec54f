"""From a job's last word to the report that people and machines read."""

from __future__ import annotations

from collections.abc import Mapping

from kintune.core.payloads import JobSpec, StageName, Summary
from kintune.core.report import (
    CurvePoint,
    Latencies,
    ModelIdentity,
    RunReport,
    StageSeconds,
    StopReason,
    SubgraphReport,
)
from kintune.records import Run
from kintune.workers.engine.timings import Timings

__all__ = ["report_of"]

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
    """The report of a finished run; stage times are those of this session."""
    proof = summary.proof
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
        seconds=timings.wall_seconds,
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
            )
            for end in summary.subgraphs
        ),
        curve=tuple(CurvePoint(*point) for point in summary.curve),
        latency_ms=Latencies.of(proof.latency_ms if proof else {}),
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
        notes=summary.notes,
    )
