"""Excerpts of the samples of subgraphs, and the small models trained on them to compare subgraphs."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
import xgboost as xgb
from numpy.typing import NDArray

from kintune.search.family.samples import Samples

__all__ = ["FOLDS", "Excerpt", "Small"]


FOLDS = 3
"""Number of parts of an excerpt for cross-validation."""

_MOST_SAMPLES = 64  # of a subgraph; few enough to compare all subgraphs after each round


_ROUNDS, _DEPTH = 24, 4  # trees of a small model, and their levels


class Excerpt:
    """Samples spread evenly over the order of measurement: early ones vary widely, late ones are close to the best.

    `times` are relative to the best one, infinite for a failure.  `fold` is the part of each sample, from 0 on.
    `digest` is that of the contents.
    """

    def __init__(self, samples: Samples) -> None:
        count = len(samples.labels)
        rows = np.linspace(0, count - 1, min(count, _MOST_SAMPLES)).round().astype(np.int64)
        self.features = np.ascontiguousarray(samples.features[rows])
        self.labels = samples.labels[rows]
        with np.errstate(divide="ignore"):
            self.times: NDArray[np.float64] = np.where(self.labels > 0, 1 / self.labels.astype(np.float64), np.inf)
        self.fold: NDArray[np.int64] = np.arange(len(rows)) % FOLDS
        self.digest = hashlib.sha256(self.features.tobytes() + self.labels.tobytes()).digest()


class Small:
    """A small model that is trained in milliseconds; used to compare subgraphs, not to search."""

    def __init__(self, excerpts: Sequence[Excerpt], *, without: int | None = None, seed: int, threads: int) -> None:
        """Train on the excerpts, leaving out the part `without` of each."""
        rows = [excerpt.fold != without for excerpt in excerpts]
        features = np.concatenate([excerpt.features[kept] for excerpt, kept in zip(excerpts, rows, strict=True)])
        labels = np.concatenate([excerpt.labels[kept] for excerpt, kept in zip(excerpts, rows, strict=True)])
        parameters = {
            "objective": "reg:squarederror",
            "tree_method": "hist",
            "max_bin": 64,
            "max_depth": _DEPTH,
            "eta": 0.25,
            "subsample": 0.9,
            "colsample_bytree": 0.5,
            "seed": seed,
            "nthread": threads,
            "verbosity": 0,
        }
        data = xgb.DMatrix(features, label=labels, nthread=threads)
        self._booster = xgb.train(parameters, data, num_boost_round=_ROUNDS)

    def rank(self, parts: Sequence[NDArray[np.float32]]) -> list[NDArray[np.float32]]:
        """Return scores for each array of features; higher is faster."""
        ends = np.cumsum([len(part) for part in parts])[:-1]
        return list(np.split(self._booster.inplace_predict(np.concatenate(parts)), ends))
