from __future__ import annotations

from kintune.core.hybrid import Hybrid, Region


def test_it_says_what_is_left_to_onnxruntime() -> None:
    region = Region("r", ("a",), ("x",), ("y",))
    assert Hybrid((region,), {"NonZero": 1, "LSTM": 2}, {}, ()).summary == (
        "runs partly in onnxruntime (2 LSTM, 1 NonZero)"
    )
    assert Hybrid((), {"Loop": 1}, {}, ()).summary == "runs wholly in onnxruntime (1 Loop)"
    assert Hybrid((region,), {}, {}, ()).left == "no operator"


def test_a_region_says_in_what_it_computes() -> None:
    plain = Region("r", ("a",), ("x",), ("y",))
    assert (plain.is_narrow, plain.described) == (False, "")
    wide = Region("r", ("a",), ("x",), ("y",), {"fp32": 2})
    assert (wide.is_narrow, wide.described) == (False, "2 in fp32")
    narrow = Region("r", ("a",), ("x",), ("y",), {"fp32": 2, "bf16": 3})
    assert (narrow.is_narrow, narrow.described) == (True, "3 in bf16 and 2 in fp32")
