"""The report of a run that ended without a result, from the end of its job and from the records."""

from __future__ import annotations

import math

import msgspec

from kintune.core.candidate import UNTUNED
from kintune.core.config import JobSpec
from kintune.core.failure_report import FailureReport
from kintune.core.messages import ItemStatus
from kintune.core.report import ModelIdentity, SubgraphReport
from kintune.core.stage_results import Prepared, StageName
from kintune.errors import KintuneError
from kintune.records import Measurement, Run, Store
from kintune.wire.channel import UNREADABLE
from kintune.workers.engine.job_run import JobEnd

__all__ = ["failure_report"]


def failure_report(
    store: Store, run: Run, spec: JobSpec, end: JobEnd, error: KintuneError, *, log: str, resumed: bool
) -> FailureReport:
    """Return the report of a run that ended with `error`; `run` is as it was when its last session began."""
    prepared = _prepared(store, run.run_id)
    measured = store.measurements.find(run_id=run.run_id, on_damage=_leave_out)
    return FailureReport(
        run_id=run.run_id,
        model=ModelIdentity(run.model_name, prepared.model_digest if prepared is not None else ""),
        target=spec.device_type.target,
        options=spec.options,
        seeds=run.seeds,
        versions=run.versions,
        error=type(error).__name__,
        cause=" ".join(str(error).split()),
        story=end.story,
        trials=len(measured),
        seconds=run.active_seconds + end.timings.wall_seconds,
        subgraphs=_subgraphs(prepared, measured),
        output=spec.output,
        log=log,
        resumed=resumed,
    )


def _prepared(store: Store, run_id: str) -> Prepared | None:
    """Returns the result of the run's last PREPARE stage; None if it has none, or none that can be read."""
    try:
        history = store.events.history(run_id)
    except (KintuneError, ValueError):  # the records are damaged, which is not what the report is about
        return None
    done = [event for event in history if event.kind == StageName.PREPARE and event.status is ItemStatus.OK]
    try:
        return msgspec.msgpack.decode(done[-1].payload, type=Prepared) if done else None
    except UNREADABLE:  # another version has written it
        return None


def _subgraphs(prepared: Prepared | None, measured: list[Measurement]) -> tuple[SubgraphReport, ...]:
    if prepared is None:
        return ()
    by_workload: dict[str, list[Measurement]] = {}
    for measurement in measured:
        by_workload.setdefault(measurement.candidate.workload, []).append(measurement)
    reports = []
    for subgraph in prepared.subgraphs:
        own = by_workload.get(subgraph.workload, [])
        failures: dict[str, int] = {}
        for each in own:
            if not (each.confirmed or each.outcome).ok:
                cause = each.outcome.cause_class or each.outcome.status.value
                failures[cause] = failures.get(cause, 0) + 1
        times = [each for each in own if math.isfinite(each.believed_us)]
        untuned = [each.believed_us for each in times if each.candidate.sketch == UNTUNED]
        reports.append(
            SubgraphReport(
                name=subgraph.name,
                weight=subgraph.weight,
                flops=subgraph.flops,
                family="",
                trials=len(own),
                best_us=min((each.believed_us for each in times), default=None),
                failures=failures,
                untuned_us=min(untuned, default=None),
                workload=subgraph.workload,
                titles=subgraph.titles,
            )
        )
    return tuple(reports)


def _leave_out(damage: object) -> None:
    """A damaged measurement is not counted."""
    del damage
