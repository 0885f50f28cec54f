from __future__ import annotations

from types import SimpleNamespace

import pytest

from kintune_lab.comparison import where
from kintune_lab.comparison.where import BOTH, KERNELS, ONNXRUNTIME, Place, where_it_runs


@pytest.mark.parametrize(
    ("hybrid", "place", "whole"),
    [
        (None, Place(KERNELS), True),
        (SimpleNamespace(regions=("a", "b"), left="1 LSTM"), Place(BOTH, 2, "1 LSTM"), False),
        (SimpleNamespace(regions=(), left="1 LSTM"), Place(ONNXRUNTIME, 0, "1 LSTM"), False),
    ],
)
def test_the_manifest_says_what_runs_where(
    monkeypatch: pytest.MonkeyPatch, hybrid: object, place: Place, whole: bool
) -> None:
    monkeypatch.setattr(where, "read_manifest", lambda path: SimpleNamespace(hybrid=hybrid))
    assert where_it_runs("a.kt") == place
    assert place.whole is whole


def test_a_result_of_kernels_alone_may_say_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(where, "read_manifest", lambda path: SimpleNamespace())
    assert where_it_runs("a.kt") == Place(KERNELS)
