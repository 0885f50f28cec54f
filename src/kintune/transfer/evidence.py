"""What was measured, as samples that models can be trained on."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from kintune.core.candidate import UNTUNED
from kintune.core.conditions import Conditions
from kintune.records import Measurement, OnDamage, Store
from kintune.search.cost_model import relative_speeds
from kintune.search.family import Samples
from kintune.transfer.doubt import Doubt
from kintune.transfer.offer import subject_of

__all__ = ["samples"]


def samples(
    store: Store, conditions: Conditions, on_damage: OnDamage, *, without: Collection[str] = ()
) -> list[Samples]:
    """The samples of every workload measured under these conditions, by digest; `without` are left out.

    A workload of which no candidate ran is left out too: nothing is relative to nothing.
    """
    found: list[Samples] = []
    doubt = Doubt(store)
    for workload in store.workloads.list(on_damage):
        if workload.digest in without:
            continue
        measured = store.measurements.find(
            workloads=[workload.digest],
            device_type=conditions.device_type,
            compiler=conditions.compiler,
            on_damage=on_damage,
        )
        times = np.array([m.believed_us for m in measured], dtype=np.float64)
        rows = [i for i, m in enumerate(measured) if _is_sample(m, conditions.feature_version) and not doubt.about(m)]
        if not rows or not np.isfinite(times).any():
            continue
        features = np.stack([np.frombuffer(measured[i].features, dtype="<f4").astype(np.float32) for i in rows])
        best = times.min(keepdims=True)
        labels = relative_speeds(np.zeros(len(rows), dtype=np.int64), times[rows], best)
        found.append(Samples(subject_of(workload), features, labels))
    return found


def _is_sample(measurement: Measurement, feature_version: str) -> bool:
    return (
        measurement.candidate.sketch != UNTUNED
        and bool(measurement.features)
        and measurement.feature_version == feature_version
    )
