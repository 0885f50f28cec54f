"""Failures that are not to be believed."""

from __future__ import annotations

from kintune.records import Measurement, RunState, Store

__all__ = ["Doubt"]

_KILLED = "killed by SIGKILL"  # as the engine words it: by hand, or when memory ran out


class Doubt:
    """Tells which failures say nothing of their candidate: somebody killed the worker, or all of the run failed."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._failed: dict[str, bool] = {}

    def about(self, measurement: Measurement) -> bool:
        """Whether this measurement is one of them."""
        if (measurement.confirmed or measurement.outcome).ok:
            return False
        if measurement.outcome.cause == _KILLED:
            return True
        return measurement.run_id is not None and self._has_failed(measurement.run_id)

    def _has_failed(self, run_id: str) -> bool:
        if run_id not in self._failed:
            self._failed[run_id] = self._store.runs.get(run_id).state is RunState.FAILED
        return self._failed[run_id]
