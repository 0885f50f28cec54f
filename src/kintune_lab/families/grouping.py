"""The families of subgraphs by whatever algorithm, and how well one subgraph's samples rank another's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from kintune.search.family import Samples, Subject, families
from kintune.search.family.relation import LEAST_SAMPLES, Relations
from kintune_lab.families.samples import SubgraphSamples

__all__ = ["LEAST_SAMPLES", "group", "is_dynamic", "relate"]

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
    relation = Relations().relate([samples.evidence for samples in measured])
    place = {workload: at for at, workload in enumerate(relation.workloads)}
    rows = [place.get(samples.subject.workload, -1) for samples in measured]
    matrix = np.pad(relation.matrix, ((0, 1), (0, 1)), constant_values=np.nan)
    return matrix[np.ix_(rows, rows)]
