"""The measured samples of each subgraph as arrays, and the families that algorithms find from them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kintune.core.candidate import UNTUNED, Candidate
from kintune.core.version import FEATURES
from kintune.core.workload import Subgraph
from kintune.records import Store
from kintune.records.measurements import Measurement
from kintune.search.cost_model import relative_speeds
from kintune.search.family import Samples, Subject, families
from kintune.search.family.relation import LEAST_SAMPLES, Relations
from kintune.transfer.gather import UninformativeFailures

__all__ = [
    "LEAST_SAMPLES",
    "SampleConditions",
    "SubgraphSamples",
    "conditions_of",
    "group",
    "is_dynamic",
    "read_measured",
    "relate",
    "subject_of",
]


@dataclass(frozen=True)
class SubgraphSamples:
    """The measured candidates of one subgraph, in the order of measuring.

    `features` has shape (n, width) and is float32; `times_us` has shape (n,), float64, infinite for those that failed.
    A time is the first that was taken: those of the few that were timed again had another number of repeats, and count
    only where the first try failed.
    """

    subject: Subject
    candidates: tuple[Candidate, ...]
    features: NDArray[np.float32]
    times_us: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.candidates)

    @property
    def evidence(self) -> Samples:
        """The samples as a family algorithm is given them: with relative speeds in place of times."""
        workloads = np.zeros(len(self), dtype=np.int64)
        best_us = self.times_us.min(initial=np.inf, keepdims=True)
        return Samples(self.subject, self.features, relative_speeds(workloads, self.times_us, best_us))

    def take(self, rows: NDArray[np.int64]) -> SubgraphSamples:
        """These rows alone, in this order."""
        chosen = tuple(self.candidates[int(row)] for row in rows)
        return SubgraphSamples(self.subject, chosen, self.features[rows], self.times_us[rows])


@dataclass(frozen=True)
class SampleConditions:
    """Under which measurements can be compared: a device type (its digest) and a compiler's version."""

    device_type: str
    compiler: str


def subject_of(subgraph: Subgraph) -> Subject:
    """Returns a subgraph in the form in which a search is given it."""
    return Subject(subgraph.workload, subgraph.weight, subgraph.flops, subgraph.operator, subgraph.signature)


def conditions_of(store: Store, workloads: Iterable[str]) -> SampleConditions | None:
    """The conditions under which most was measured of these workloads; None when nothing was.

    Those under which nothing has features of this version, as what another tuner measured, do not count.
    """
    wanted = set(workloads)
    described = {(type, compiler) for type, compiler, version in store.measurements.conditions() if version == FEATURES}
    counts: dict[tuple[str, str], int] = {}
    for tally in store.measurements.tallies():
        key = (tally.device_type, tally.compiler)
        if tally.workload in wanted and key in described:
            counts[key] = counts.get(key, 0) + tally.measured
    if not counts:
        return None
    return SampleConditions(*max(sorted(counts), key=counts.__getitem__))


def read_measured(
    store: Store, subjects: Sequence[Subject], conditions: SampleConditions
) -> dict[str, SubgraphSamples]:
    """What was measured of each subject under these conditions with features of this version, by workload.

    Untuned programs have no features and are left out, as are failures that say nothing of their candidate, and
    subjects without any sample.

    Raises:
        DamagedRecord: a record's checksum is wrong.
    """
    by_workload: dict[str, list[Measurement]] = {}
    uninformative = UninformativeFailures(store)
    found = store.measurements.find(
        workloads=[subject.workload for subject in subjects],
        device_type=conditions.device_type,
        compiler=conditions.compiler,
    )
    for measurement in found:
        described = measurement.features and measurement.feature_version == FEATURES
        if described and measurement.candidate.sketch != UNTUNED and not uninformative.includes(measurement):
            by_workload.setdefault(measurement.candidate.workload, []).append(measurement)
    return _as_arrays(subjects, by_workload)


def _as_arrays(subjects: Sequence[Subject], found: Mapping[str, list[Measurement]]) -> dict[str, SubgraphSamples]:
    return {
        subject.workload: SubgraphSamples(
            subject,
            tuple(row.candidate for row in rows),
            np.stack([np.frombuffer(row.features, dtype="<f4").astype(np.float32) for row in rows]),
            np.array([_time_us(row) for row in rows], dtype=np.float64),
        )
        for subject in subjects
        if (rows := found.get(subject.workload))
    }


def _time_us(measurement: Measurement) -> float:
    """Returns the median time of the first try that worked, in microseconds."""
    first, again = measurement.outcome, measurement.confirmed
    return (again if again is not None and not first.ok else first).median_us


_NOTHING: NDArray[np.float32] = np.zeros((0, 0), np.float32)
_NO_LABELS: NDArray[np.float32] = np.zeros(0, np.float32)


def is_dynamic(algorithm: str) -> bool:
    """Whether the algorithm groups by samples."""
    return families(algorithm, seed=0, threads=1).dynamic


def group(algorithm: str, measured: Mapping[str, SubgraphSamples], subjects: Sequence[Subject] = ()) -> dict[str, str]:
    """Workload -> key of its family, of everything measured and of `subjects` without samples."""
    evidence = {subject.workload: Samples(subject, _NOTHING, _NO_LABELS) for subject in subjects}
    evidence.update({workload: samples.evidence for workload, samples in measured.items()})
    return families(algorithm, seed=0, threads=1).group(list(evidence.values()), {})


def relate(measured: Sequence[SubgraphSamples]) -> NDArray[np.float64]:
    """How well a model of each one's samples (row) ranks those of each other (column): shape (n, n), NaN if unknown."""
    relation = Relations(seed=0, threads=1).relate([samples.evidence for samples in measured])
    place = {workload: at for at, workload in enumerate(relation.workloads)}
    rows = [place.get(samples.subject.workload, -1) for samples in measured]
    matrix = np.pad(relation.matrix, ((0, 1), (0, 1)), constant_values=np.nan)
    return matrix[np.ix_(rows, rows)]
