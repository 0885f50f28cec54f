"""Trained models as blobs."""

from __future__ import annotations

from kintune.core.knowledge import TrainedModel
from kintune.core.workload import Subject


def test_a_trained_model_is_the_same_after_its_blob_and_one_of_an_earlier_version_is_its_trees() -> None:
    model = TrainedModel(b"trees", (Subject("w", 1, 2.0, "dense", "dense"),))
    assert TrainedModel.from_bytes(model.to_bytes()) == model
    assert TrainedModel.from_bytes(b"{L bare trees") == TrainedModel(b"{L bare trees")
