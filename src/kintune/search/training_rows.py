"""The samples that a family's model learns from."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kintune.search.cost_model import relative_speeds
from kintune.search.features.analytic import ANALYTIC
from kintune.search.subgraph import SubgraphState

__all__ = ["STORES", "WIDTH", "TrainingRows", "count", "gather", "of_analytic", "of_stores"]


class TrainingRows(NamedTuple):
    """The n samples of one family, workload by workload, each in order of measurement.

    `features` has shape (n, width).  `labels` (n,) are relative speeds, 0 for a failure.  `workloads` (n,) are digests.
    `fresh` (n,) is True for samples that were measured in this run, False for those from the records.
    """

    features: NDArray[np.float32]
    labels: NDArray[np.float32]
    workloads: NDArray[np.str_]
    fresh: NDArray[np.bool_]

    def of(self, which: NDArray[np.bool_]) -> TrainingRows:
        """Return the rows that a mask of shape (n,) selects."""
        return TrainingRows(self.features[which], self.labels[which], self.workloads[which], self.fresh[which])


def count(members: Iterable[SubgraphState]) -> int:
    """Return the number of samples of these subgraphs; a subgraph of which no program ran has none."""
    return sum(len(member.features) for member in members if math.isfinite(member.best_us))


def gather(members: Iterable[SubgraphState]) -> TrainingRows:
    """Return the samples that `count` counts."""
    ran = [member for member in members if math.isfinite(member.best_us)]
    rows = [(place, c, f) for place, member in enumerate(ran) for c, f in member.features.items()]
    places = np.array([place for place, _, _ in rows], np.int64)
    times = np.array([ran[place].times_us[c] for place, c, _ in rows], np.float64)
    return TrainingRows(
        np.stack([f for _, _, f in rows]) if rows else np.zeros((0, 0), np.float32),
        relative_speeds(places, times, np.array([member.best_us for member in ran], np.float64)),
        np.array([member.subject.workload for member in ran], np.str_)[places],
        np.array([c not in ran[place].told for place, c, _ in rows], np.bool_),
    )


STORES = 328
"""Number of features that the extractor pools from a program's stores."""

WIDTH = ANALYTIC + STORES
"""Length of a feature row."""


def of_analytic(analytic: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return feature rows, shape (n, `WIDTH`), from analytic features of shape (n, `ANALYTIC`)."""
    return np.pad(analytic, ((0, 0), (0, STORES)))


def of_stores(pooled: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return feature rows, shape (n, `WIDTH`), from pooled features of shape (n, `STORES`)."""
    return np.pad(pooled, ((0, 0), (ANALYTIC, 0)))
