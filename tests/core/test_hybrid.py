from __future__ import annotations

from kintune.core.hybrid import Hybrid, Region


def test_it_says_what_is_left_to_onnxruntime() -> None:
    region = Region("r", ("a",), ("x",), ("y",))
    assert Hybrid((region,), {"NonZero": 1, "LSTM": 2}, {}, ()).summary == (
        "runs partly in onnxruntime (2 LSTM, 1 NonZero)"
    )
    assert Hybrid((), {"Loop": 1}, {}, ()).summary == "runs wholly in onnxruntime (1 Loop)"
    assert Hybrid((region,), {}, {}, ()).left == "no operator"
