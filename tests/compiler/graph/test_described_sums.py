"""What lowering writes on the block of a sum is what the loops of the sum say, for each layer that was recorded."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.compiler.kernels.test_reading import check_notes, further_modules

pytestmark = pytest.mark.tvm


def test_what_lowering_says_of_each_layer_is_what_its_loops_say() -> None:
    from benchmarks.layers import read
    from kintune.compiler.space.replay import load_workload

    modules = [*(load_workload(layer.module) for layer in read().values()), *further_modules()]
    counts = Counter(kind for module in modules for kind in check_notes(module))
    assert counts["floats", "dense"] > 400
    assert sorted(counts) == [
        ("blockwise", "dense"),
        *[("bytes", "batched"), ("bytes", "dense")],
        *[("floats", "dense"), ("floats", "depthwise"), ("floats", "grouped")],
    ]
