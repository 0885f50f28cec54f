"""The cost model of one family: gradient-boosted trees from features to relative speed.

The label of a candidate is the best known time of its workload over its own time: 1.0 for the best known program, 0.0
for a failed one.  So labels of different workloads can be compared (Zheng et al., "Ansor", OSDI 2020, section 5.2).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from kintune.search.ranking import pair_accuracy

if TYPE_CHECKING:
    import xgboost as xgb  # imported where it is used: it takes half a second, and few commands train models

__all__ = ["CostModel", "Trees", "Trust", "relative_speeds"]


_OF_PRIOR = 200  # trees of a prior that training continues from, at most


_COLUMNS = "columns"  # the booster's attribute with the indices of the features that it reads


class CostModel(Protocol):
    """Scores candidates from their features; higher is faster."""

    def predict(self, features: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return scores, shape (n,), for features of shape (n, width)."""
        ...


class Trees:
    """An XGBoost regressor; deterministic for equal rows, seed and thread count.

    It reads only `columns` of the features: those in which the training rows differ.
    """

    def __init__(self, booster: xgb.Booster, columns: NDArray[np.int64]) -> None:
        self._booster = booster
        self._columns = columns

    @classmethod
    def train(
        cls,
        features: NDArray[np.float32],
        labels: NDArray[np.float32],
        *,
        seed: int,
        threads: int,
        rounds: int = 100,
        depth: int = 6,
        prior: Trees | None = None,
    ) -> Trees:
        """Train `rounds` trees of at most `depth` levels on features of shape (n, width) and labels of shape (n,).

        With a `prior`, training continues from its trees and uses its columns.  At most the first `_OF_PRIOR` trees of
        the prior are taken, so that models do not grow from job to job.
        """
        parameters = {
            "objective": "reg:squarederror",
            "tree_method": "hist",
            "max_depth": depth,
            "eta": 0.15,
            "min_child_weight": 1.0,
            "subsample": 0.9,
            "colsample_bytree": 0.5,
            "seed": seed,
            "nthread": threads,
            "verbosity": 0,
        }
        import xgboost as xgb

        columns = _telling(features) if prior is None else prior._columns
        data = xgb.DMatrix(_scaled(features[:, columns]), label=labels, nthread=threads)
        # a copy, since XGBoost changes the booster that it continues from
        before = None if prior is None else bytearray(prior._first(_OF_PRIOR).to_bytes())
        return cls(xgb.train(parameters, data, num_boost_round=rounds, xgb_model=before), columns)

    @classmethod
    def from_bytes(cls, blob: bytes) -> Trees:
        """Return the model that `to_bytes` serialised.

        Raises:
            ValueError: it is not such a model.
        """
        import xgboost as xgb

        if not blob:
            raise ValueError("the model is empty")  # XGBoost would end the process
        booster = xgb.Booster()
        booster.load_model(bytearray(blob))
        columns = booster.attr(_COLUMNS)
        if columns is None:
            raise ValueError("the model does not say which features it looks at")
        return cls(booster, np.array(columns.split(), dtype=np.int64))

    @classmethod
    def can_read(cls, blob: bytes) -> bool:
        """Return whether this version of XGBoost can read the model."""
        try:
            cls.from_bytes(blob)
        except ValueError:
            return False
        return True

    def to_bytes(self) -> bytes:
        """Return the trained model in XGBoost's UBJSON format."""
        self._booster.set_attr(**{_COLUMNS: " ".join(map(str, self._columns))})
        return bytes(self._booster.save_raw("ubj"))

    def _first(self, rounds: int) -> Trees:
        return Trees(self._booster[:rounds], self._columns) if self._booster.num_boosted_rounds() > rounds else self

    def predict(self, features: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return scores, shape (n,); about 1.0 for programs as fast as the best known one of their workload."""
        scores: NDArray[np.float32] = self._booster.inplace_predict(_scaled(features[:, self._columns]))
        return scores


def relative_speeds(
    workloads: NDArray[np.int64], times_us: NDArray[np.float64], best_us: NDArray[np.float64]
) -> NDArray[np.float32]:
    """Return the labels `best_us[workloads] / times_us`, shape (n,); 0 for an infinite time (the candidate failed).

    `workloads` and `times_us` have shape (n,); `best_us` has one entry for each workload.
    """
    with np.errstate(invalid="ignore"):
        labels = best_us[workloads] / times_us
    return np.where(np.isfinite(times_us), labels, 0.0).astype(np.float32)


def _telling(features: NDArray[np.float32]) -> NDArray[np.int64]:
    """Return the indices of the columns in which rows differ; the first column if all rows are equal."""
    telling = np.flatnonzero((features != features[:1]).any(axis=0))
    return telling if telling.size else np.zeros(1, dtype=np.int64)


def _scaled(features: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the features on a logarithmic scale, since float32 histograms cannot span their orders of magnitude."""
    return np.asarray(np.sign(features) * np.log1p(np.abs(features)), dtype=np.float32)


_HOLDS = 0.6  # share of pairs in the right order from which on a model is trusted more


_CHANCE = 0.5


_LEAST_PAIRS = 6  # with fewer pairs, the share is not used


_GIVEN_UP = 3  # doubts at which a family gets no more foresee rounds


class Trust:
    """Counts doubts about each family's model, by comparing its predictions with measurements.

    Each doubt halves the size of the family's foresee rounds; at three doubts there are none.  Full rounds are judged
    too, so that a family gets foresee rounds again when its model improves.
    """

    def __init__(self) -> None:
        self._doubts: dict[str, int] = {}

    def size(self, family: str, full: int) -> int:
        """Return the number of candidates of a foresee round of the family, at most `full`."""
        doubts = self._doubts.get(family, 0)
        return 0 if doubts >= _GIVEN_UP else full >> doubts

    def judge(
        self, family: str, predicted: list[float], times_us: list[float], *, foreseen: bool, improved: bool
    ) -> None:
        """Take in a measured round of the family: scores and times of its candidates, in the same order.

        `foreseen` is True for a foresee round, `improved` if the round found a faster program for its subgraph.
        """
        accuracy, pairs = pair_accuracy(np.array(predicted, np.float32), np.array(times_us, np.float64))
        ranked = accuracy if pairs >= _LEAST_PAIRS else float("nan")
        doubts = self._doubts.get(family, 0)
        if (foreseen and improved) or ranked >= _HOLDS:
            self._doubts[family] = max(0, doubts - 1)
        elif (foreseen and not improved) or ranked < _CHANCE:
            self._doubts[family] = min(_GIVEN_UP, doubts + 1)
