"""The samples that a family's model learns from."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kintune.search.cost_model import relative_speeds
from kintune.search.features.analytic import TRAITS
from kintune.search.subgraph import SubgraphState

__all__ = ["STORES", "WIDTH", "Rows", "count", "gather", "of_stores", "of_traits"]


class Rows(NamedTuple):
    """Samples of one family, workload by workload, each in the order of measuring: n of them.

    `features` have shape (n, width); `labels` (n,) are relative speeds, 0 for a failure; `workloads` (n,) are digests;
    `fresh` (n,) says which were measured in this run, the others being facts of the records.
    """

    features: NDArray[np.float32]
    labels: NDArray[np.float32]
    workloads: NDArray[np.str_]
    fresh: NDArray[np.bool_]

    def of(self, which: NDArray[np.bool_]) -> Rows:
        """Some of them, by a mask of shape (n,)."""
        return Rows(self.features[which], self.labels[which], self.workloads[which], self.fresh[which])


def count(members: Iterable[SubgraphState]) -> int:
    """How many samples there are of these subgraphs; of one that has no program that ran, none."""
    return sum(len(member.features) for member in members if math.isfinite(member.best_us))


def gather(members: Iterable[SubgraphState]) -> Rows:
    """The samples of these subgraphs, as many as `count` says."""
    ran = [member for member in members if math.isfinite(member.best_us)]
    rows = [(place, c, f) for place, member in enumerate(ran) for c, f in member.features.items()]
    places = np.array([place for place, _, _ in rows], np.int64)
    times = np.array([ran[place].times_us[c] for place, c, _ in rows], np.float64)
    return Rows(
        np.stack([f for _, _, f in rows]) if rows else np.zeros((0, 0), np.float32),
        relative_speeds(places, times, np.array([member.best_us for member in ran], np.float64)),
        np.array([member.subject.workload for member in ran], np.str_)[places],
        np.array([c not in ran[place].told for place, c, _ in rows], np.bool_),
    )


STORES = 328
"""Features that the extractor pools from a program's stores."""

WIDTH = TRAITS + STORES
"""Length of a feature row."""


def of_traits(traits: NDArray[np.float32]) -> NDArray[np.float32]:
    """Rows, shape (n, `WIDTH`), from traits of shape (n, `TRAITS`)."""
    return np.pad(traits, ((0, 0), (0, STORES)))


def of_stores(pooled: NDArray[np.float32]) -> NDArray[np.float32]:
    """Rows, shape (n, `WIDTH`), from pooled features of shape (n, `STORES`)."""
    return np.pad(pooled, ((0, 0), (TRAITS, 0)))
