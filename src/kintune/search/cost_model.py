"""The cost model of one family: gradient-boosted trees from features to relative speed.

The label of a candidate is the best known time of its workload over its own time, so 1.0 is the best known program and
0.0 a failed one; labels of different workloads of a family are comparable that way (Zheng et al., "Ansor", OSDI 2020,
section 5.2).
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
import xgboost as xgb
from numpy.typing import NDArray

from kintune.search.ranking import pair_accuracy

__all__ = ["CostModel", "Trees", "Trust", "relative_speeds"]


_OF_PRIOR = 200


_COLUMNS = "columns"


class CostModel(Protocol):
    """Scores candidates from their features; higher is faster."""

    def predict(self, features: NDArray[np.float32]) -> NDArray[np.float32]:
        """Scores, shape (n,), of features of shape (n, width)."""
        ...


class Trees:
    """An XGBoost regressor; deterministic for equal rows, seed and thread count.

    It looks at `columns` of a feature row only, those in which the rows that it was trained on differ.
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

        With a `prior`, they come on top of its trees, look at its columns, and correct what it gets wrong; of a prior
        that was itself trained on top of others, the first `_OF_PRIOR` trees, or models would grow from job to job.
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
        columns = _telling(features) if prior is None else prior._columns
        data = xgb.DMatrix(_scaled(features[:, columns]), label=labels, nthread=threads)
        before = None if prior is None else bytearray(prior._first(_OF_PRIOR).to_bytes())  # not as it was left by use
        return cls(xgb.train(parameters, data, num_boost_round=rounds, xgb_model=before), columns)

    @classmethod
    def from_bytes(cls, blob: bytes) -> Trees:
        """The model that `to_bytes` serialised."""
        booster = xgb.Booster()
        booster.load_model(bytearray(blob))
        columns = booster.attr(_COLUMNS)
        if columns is None:
            raise ValueError("the model does not say which features it looks at")
        return cls(booster, np.array(columns.split(), dtype=np.int64))

    def to_bytes(self) -> bytes:
        """The trained model (XGBoost's UBJSON)."""
        self._booster.set_attr(**{_COLUMNS: " ".join(map(str, self._columns))})
        return bytes(self._booster.save_raw("ubj"))

    def _first(self, rounds: int) -> Trees:
        return Trees(self._booster[:rounds], self._columns) if self._booster.num_boosted_rounds() > rounds else self

    def predict(self, features: NDArray[np.float32]) -> NDArray[np.float32]:
        """Scores, shape (n,); about 1.0 for programs as fast as the best known of their workload."""
        scores: NDArray[np.float32] = self._booster.inplace_predict(_scaled(features[:, self._columns]))
        return scores


def relative_speeds(
    workloads: NDArray[np.int64], times_us: NDArray[np.float64], best_us: NDArray[np.float64]
) -> NDArray[np.float32]:
    """Labels: `best_us[workloads] / times_us`, 0 where the time is infinite (the candidate failed).

    `workloads` and `times_us` have shape (n,); `best_us` one entry a workload.
    """
    with np.errstate(invalid="ignore"):
        labels = best_us[workloads] / times_us
    return np.where(np.isfinite(times_us), labels, 0.0).astype(np.float32)


def _telling(features: NDArray[np.float32]) -> NDArray[np.int64]:
    """The columns in which rows differ; the first one where all are the same."""
    telling = np.flatnonzero((features != features[:1]).any(axis=0))
    return telling if telling.size else np.zeros(1, dtype=np.int64)


def _scaled(features: NDArray[np.float32]) -> NDArray[np.float32]:
    """Features span many orders of magnitude; trees do not care, but float32 histograms do."""
    return np.asarray(np.sign(features) * np.log1p(np.abs(features)), dtype=np.float32)


_HOLDS = 0.6  # share of pairs in the right order from which on predictions hold


_CHANCE = 0.5


_LEAST_PAIRS = 6  # below, the order says nothing


_GIVEN_UP = 3  # doubts after which a family's foresee rounds stop


class Trust:
    """Doubts about each family's model, from how its predictions compare with what was measured.

    A foresee round shrinks by half for every doubt, and is left out at three.  Full rounds are judged too, so that a
    family regains its foresee rounds as its model gets better.
    """

    def __init__(self) -> None:
        self._doubts: dict[str, int] = {}

    def size(self, family: str, full: int) -> int:
        """The candidates that a foresee round of the family gets, of `full` at most."""
        doubts = self._doubts.get(family, 0)
        return 0 if doubts >= _GIVEN_UP else full >> doubts

    def judge(
        self, family: str, predicted: list[float], times_us: list[float], *, foreseen: bool, improved: bool
    ) -> None:
        """A round of the family was measured: scores and times of its candidates, in the same order.

        `foreseen` says that it was a foresee round, `improved` that it brought its subgraph a better program.
        """
        accuracy, pairs = pair_accuracy(np.array(predicted, np.float32), np.array(times_us, np.float64))
        ranked = accuracy if pairs >= _LEAST_PAIRS else float("nan")
        doubts = self._doubts.get(family, 0)
        if (foreseen and improved) or ranked >= _HOLDS:
            self._doubts[family] = max(0, doubts - 1)
        elif (foreseen and not improved) or ranked < _CHANCE:
            self._doubts[family] = min(_GIVEN_UP, doubts + 1)
