from __future__ import annotations

from types import SimpleNamespace

import pytest

from kintune.core.hybrid import Hybrid, Region
from kintune_lab.comparison import where
from kintune_lab.comparison.where import BOTH, KERNELS, ONNXRUNTIME, ResultPlace, where_it_runs

REGION = Region("kintune/region0", ("Conv 'a'",), ("x",), ("y",))


@pytest.mark.parametrize(
    ("hybrid", "place", "whole"),
    [
        (None, ResultPlace(KERNELS), True),
        (Hybrid((REGION, REGION), {"LSTM": 1, "Relu": 2}, {}, ()), ResultPlace(BOTH, 2, "1 LSTM, 2 Relu"), False),
        (Hybrid((), {"LSTM": 1}, {}, ()), ResultPlace(ONNXRUNTIME, 0, "1 LSTM"), False),
    ],
)
def test_the_manifest_says_what_runs_where(
    hybrid: Hybrid | None, place: ResultPlace, whole: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(where, "read_manifest", lambda path: SimpleNamespace(hybrid=hybrid))
    found = where_it_runs("model.kt")
    assert (found, found.whole) == (place, whole)
