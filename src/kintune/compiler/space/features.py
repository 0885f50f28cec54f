"""Features of candidates: a fixed-length vector from the loop nest that a candidate becomes.

TVM's extractor describes every buffer store of the lowered program (Zheng et al., "Ansor", OSDI 2020, appendix B:
arithmetic, vectorisation, unrolling, parallelism, touched bytes, reuse).  Programs have different numbers of stores, so
the rows are pooled: their sum and their largest values, side by side.  A change here needs another
`kintune.core.version.FEATURES`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from tvm.s_tir import Schedule
from tvm.s_tir import meta_schedule as ms

from kintune.compiler.space.packing import computes_packing, without_packing
from kintune.compiler.tir import plain_schedule
from kintune.search.training_rows import STORES

__all__ = ["FeatureExtractor", "pooled"]


class FeatureExtractor:
    """Extracts the features of candidates of one tuning context (workload and target)."""

    def __init__(self, context: ms.TuneContext) -> None:
        self._context = context
        self._per_store = ms.feature_extractor.PerStoreFeature()

    def __call__(self, schedules: Sequence[Schedule]) -> NDArray[np.float32]:
        """One row of `STORES` float32 a schedule: shape (len(schedules), STORES).

        A program that the compiler cannot describe has zeros.
        """
        rows = np.zeros((len(schedules), STORES), dtype=np.float32)
        for row, schedule in zip(rows, schedules, strict=True):
            try:
                candidate = ms.MeasureCandidate(_running(schedule), [])
                (stores,) = self._per_store.extract_from(self._context, [candidate])
            except RuntimeError:  # an error of TVM's, in one of its threads
                continue
            row[:] = pooled(np.asarray(stores.numpy(), dtype=np.float32))
        return rows


def _running(schedule: Schedule) -> Schedule:
    """The schedule without blocks that compute packed weights: these do not run with the network.

    The compiler's extractor does not know such blocks.
    """
    if not computes_packing(schedule.mod):
        return schedule
    return plain_schedule(without_packing(schedule.mod))


def pooled(stores: NDArray[np.float32]) -> NDArray[np.float32]:
    """The features of one program, shape (`STORES`,), from those of its stores, shape (stores, `STORES` / 2).

    A program in whose stores the extractor recognises none has zeros.
    """
    if not len(stores):
        return np.zeros(2 * stores.shape[1], dtype=np.float32)
    return np.concatenate([stores.sum(axis=0), stores.max(axis=0)])
