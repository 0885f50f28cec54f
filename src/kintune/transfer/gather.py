"""Gathers the knowledge of the records for a job, and the samples that models are trained on."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

import msgspec
import numpy as np

from kintune.core.candidate import UNTUNED
from kintune.core.knowledge import Knowledge, TrainingConditions
from kintune.core.outcome import Outcome
from kintune.errors import RecordsError, StorageError
from kintune.records import Measurement, OnDamage, RunState, Store
from kintune.search.cost_model import relative_speeds
from kintune.search.family import Samples, Subject
from kintune.transfer.choice import TransferChoice, choose, choose_programs, expand, subject_of

__all__ = ["UninformativeFailures", "gather_knowledge", "is_uninformative", "samples"]

_KILLED = frozenset(f"killed by {name}" for name in ("SIGKILL", "SIGTERM", "SIGHUP", "SIGINT"))
"""The engine's causes for a worker that was killed by hand, with its service, or because memory ran out."""

_SCARCE = re.compile(
    "No space left on device|Disk quota exceeded|Too many open files|Resource temporarily unavailable"
    "|can't start new thread|fork: Cannot allocate memory"
)
"""Error messages of programs and compilers that lack space, files, processes or memory."""

_NO_REFERENCE = "no reference"  # beginning of the device worker's cause when the reference was not built


def gather_knowledge(
    store: Store,
    device_type: str,
    compiler: str,
    feature_version: str,
    subjects: Sequence[Subject],
    *,
    families: str = "op",
    exclude: Collection[str] = (),
    seed: int = 0,
    threads: int = 1,
) -> Knowledge:
    """Returns programs of other workloads with the core operators of `subjects`, and models of their families.

    `device_type` is a digest, `families` the job's family algorithm.  Workloads in `exclude` count as never measured:
    their programs are left out, and models are trained here from the samples of all other workloads, since the models
    in the records may have been trained on the excluded ones.  Damaged records are left out.

    Raises:
        InputError: for an unknown algorithm.
    """
    conditions = TrainingConditions(device_type, compiler, feature_version)
    with store.snapshot():
        if not exclude:
            return expand(store, choose(store, conditions, subjects, families)).knowledge
        programs = choose_programs(store, conditions, subjects, without=exclude)
        told = expand(store, TransferChoice(programs)).knowledge
        from kintune.transfer.pretrain import train_all

        models = train_all(store, conditions, families, without=exclude, seed=seed, threads=threads)
        operators = {subject.operator for subject in subjects}
        useful = tuple(m.known for m in models if operators & {subject.operator for subject in m.known.subjects})
        return msgspec.structs.replace(told, models=useful)


def samples(
    store: Store, conditions: TrainingConditions, on_damage: OnDamage, *, without: Collection[str] = ()
) -> list[Samples]:
    """Returns the samples of every workload measured under these conditions, by digest; `without` are left out.

    A workload of which no candidate ran is left out too, since speeds are relative to its fastest candidate.
    """
    found: list[Samples] = []
    uninformative = UninformativeFailures(store)
    for workload in store.workloads.list(on_damage):
        if workload.digest in without:
            continue
        measured = store.measurements.find(
            workloads=[workload.digest],
            device_type=conditions.device_type,
            compiler=conditions.compiler,
            on_damage=on_damage,
        )
        times = np.array([m.believed_us for m in measured], dtype=np.float64)
        rows = [
            i
            for i, m in enumerate(measured)
            if _is_sample(m, conditions.feature_version) and not uninformative.includes(m)
        ]
        if not rows or not np.isfinite(times).any():
            continue
        features = np.stack([np.frombuffer(measured[i].features, dtype="<f4").astype(np.float32) for i in rows])
        best = times.min(keepdims=True)
        labels = relative_speeds(np.zeros(len(rows), dtype=np.int64), times[rows], best)
        found.append(Samples(subject_of(workload), features, labels))
    return found


def _is_sample(measurement: Measurement, feature_version: str) -> bool:
    return (
        measurement.candidate.sketch != UNTUNED
        and bool(measurement.features)
        and measurement.feature_version == feature_version
    )


def is_uninformative(outcome: Outcome) -> bool:
    """Returns whether this is a failure whose cause is not the candidate."""
    cause = outcome.cause
    elsewhere = cause in _KILLED or cause.startswith(_NO_REFERENCE) or _SCARCE.search(cause) is not None
    return not outcome.ok and elsewhere


class UninformativeFailures:
    """The failures that say nothing of their candidate.

    The worker was killed, the machine had no room or no process left, there was no reference, or the whole run failed.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._failed: dict[str, bool] = {}

    def includes(self, measurement: Measurement) -> bool:
        """Returns whether this measurement is one of them, by its confirmation if there is one."""
        believed = measurement.confirmed or measurement.outcome
        if believed.ok:
            return False
        if is_uninformative(believed):
            return True
        return measurement.run_id is not None and self._has_failed(measurement.run_id)

    def _has_failed(self, run_id: str) -> bool:
        if run_id not in self._failed:
            try:
                self._failed[run_id] = self._store.runs.get(run_id).state is RunState.FAILED
            except (RecordsError, StorageError):  # damaged, so it may have failed
                self._failed[run_id] = True
        return self._failed[run_id]
