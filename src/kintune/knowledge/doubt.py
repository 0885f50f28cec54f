"""Failures that are not to be believed."""

from __future__ import annotations

from kintune.records import Measurement, RunState, Store

__all__ = ["is_doubtful"]

_KILLED = "killed by SIGKILL"  # as the engine words it: by hand, or when memory ran out


def is_doubtful(store: Store, measurement: Measurement) -> bool:
    """Whether a failure says nothing of the candidate: somebody killed the worker, or all of its run failed."""
    if (measurement.confirmed or measurement.outcome).ok:
        return False
    if measurement.outcome.cause == _KILLED:
        return True
    run_id = measurement.run_id
    return run_id is not None and store.runs.get(run_id).state is RunState.FAILED
