"""One family's cost model: stock's XGBoost model, trained on that family's samples alone.

Features, training and labels are stock's own, so that the split into families is the only difference.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import xgboost as xgb
from numpy.typing import NDArray
from tvm.s_tir import meta_schedule as ms
from tvm.s_tir.meta_schedule.cost_model.xgb_model import FeatureGroup, XGBConfig

from kintune.errors import InputError

__all__ = ["FamilyModel", "FamilyModelSettings"]


class FamilyModelSettings(NamedTuple):
    """The settings of all families' models; `threads` None is stock's default, one thread a physical core."""

    warmup_samples: int
    seed: int
    threads: int | None


class FamilyModel:
    """The samples of a family, by workload, and the model that is trained on them."""

    def __init__(self, settings: FamilyModelSettings) -> None:
        self._warmup = settings.warmup_samples
        self._stock = ms.cost_model.XGBModel(
            config=XGBConfig(seed=settings.seed),
            num_warmup_samples=settings.warmup_samples,
            num_tuning_cores=settings.threads,
        )

    @property
    def samples(self) -> int:
        """The number of its samples, each of a measured candidate."""
        return int(self._stock.data_size)

    @property
    def is_ready(self) -> bool:
        """Whether it is trained, on enough samples to predict."""
        return self._stock.booster is not None and self.samples >= self._warmup

    @property
    def groups(self) -> dict[str, FeatureGroup]:
        """The samples by the workload's structural hash; not to be changed."""
        return self._stock.data  # type: ignore[no-any-return]

    def update(
        self,
        context: ms.TuneContext,
        candidates: Sequence[ms.MeasureCandidate],
        results: Sequence[ms.runner.RunnerResult],
    ) -> None:
        """Add measured candidates, and train again if enough are new.

        As in stock, these are a fifth of the number of samples at the last training.
        """
        self._stock.update(context, candidates, results)

    def predict(self, context: ms.TuneContext, candidates: Sequence[ms.MeasureCandidate]) -> NDArray[np.float64]:
        """Return scores, shape (len(candidates),), higher is faster; only if `is_ready`."""
        scores: NDArray[np.float64] = self._stock.predict(context, candidates)
        return scores

    def give(self, workload: str, group: FeatureGroup) -> None:
        """Add a workload's samples; `train` or `adopt` must be called afterwards."""
        self._stock.data[workload] = group
        self._stock.data_size += len(group.costs)

    def take(self, workload: str) -> FeatureGroup | None:
        """Remove a workload's samples and return them, if it has any; `train` must be called afterwards."""
        group = self._stock.data.pop(workload, None)
        if group is not None:
            self._stock.data_size -= len(group.costs)
        return group

    def train(self) -> None:
        """Train on all samples now."""
        groups = list(self._stock.data.values())
        self._stock.last_train_size = self.samples
        if not groups:
            self._stock.booster = None
            return
        labels = np.concatenate([group.min_cost / group.costs for group in groups])
        self._stock._train(xs=[rows for group in groups for rows in group.features], ys=labels)

    def to_bytes(self) -> bytes:
        """The trained model (XGBoost's UBJSON); empty when there is none."""
        booster = self._stock.booster
        return b"" if booster is None else bytes(booster.save_raw("ubj"))

    def adopt(self, blob: bytes) -> None:
        """Use a model that `to_bytes` returned and that was trained on the samples that it has now.

        Raises:
            InputError: the bytes are no model.
        """
        try:
            self._stock.booster = xgb.Booster(model_file=bytearray(blob)) if blob else None
        except xgb.core.XGBoostError as error:
            raise InputError("the trees of a family model are damaged; save the cost model again") from error
        self._stock.last_train_size = self.samples
