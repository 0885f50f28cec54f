"""What a family algorithm is told of a task's samples."""

from __future__ import annotations

import numpy as np
from tvm.s_tir.meta_schedule.cost_model.xgb_model import FeatureGroup

from kintune.compiler.space.features import pooled
from kintune.search.family import Samples, Subject
from kintune.search.row import STORES

__all__ = ["samples_of"]

_FAILED_SECONDS = 1e9  # stock notes a failure as a run of 1e10 seconds


def samples_of(subject: Subject, group: FeatureGroup | None) -> Samples:
    """Stock's samples of one task with features and labels as our search has them: shapes (n, `STORES`) and (n,)."""
    if group is None:
        return Samples(subject, np.zeros((0, STORES), np.float32), np.zeros(0, np.float32))
    features = np.stack([pooled(stores) for stores in group.features])
    labels = np.where(group.costs < _FAILED_SECONDS, group.min_cost / group.costs, 0.0)
    return Samples(subject, features, labels.astype(np.float32))
