"""Failures that are not to be believed."""

from __future__ import annotations

from kintune.errors import RecordsError
from kintune.records import Measurement, RunState, Store

__all__ = ["Doubt"]

_KILLED = "killed by SIGKILL"  # as the engine words it: by hand, or when memory ran out
_NO_REFERENCE = "no reference"  # as the device worker begins: there was nothing to compare it with


class Doubt:
    """Tells which failures say nothing of their candidate.

    Somebody killed the worker, there was nothing to compare with, or all of the run failed.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._failed: dict[str, bool] = {}

    def about(self, measurement: Measurement) -> bool:
        """Whether this measurement is one of them, by its confirmation if there is one."""
        believed = measurement.confirmed or measurement.outcome
        if believed.ok:
            return False
        if believed.cause == _KILLED or believed.cause.startswith(_NO_REFERENCE):
            return True
        return measurement.run_id is not None and self._has_failed(measurement.run_id)

    def _has_failed(self, run_id: str) -> bool:
        if run_id not in self._failed:
            try:
                self._failed[run_id] = self._store.runs.get(run_id).state is RunState.FAILED
            except RecordsError:  # damaged: nobody knows
                self._failed[run_id] = True
        return self._failed[run_id]
