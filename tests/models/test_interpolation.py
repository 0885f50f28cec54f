"""Kernels that resize along one axis: which elements they sum, as integer arithmetic and as an attribute."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytestmark = pytest.mark.tvm


@given(size=st.integers(1, 40), outputs=st.integers(1, 90), half=st.booleans())
def test_first_taps_follow_a_line(size: int, outputs: int, half: bool) -> None:
    from kintune.models.interpolation import line

    at = np.arange(outputs)
    places = (at + 0.5) * size / outputs - 0.5 if half else at * size / outputs
    first = np.floor(places + 1e-9).astype(np.int64)
    slope, start, divisor = line(places, first)
    np.testing.assert_array_equal((slope * at + start) // divisor, first)


def test_what_follows_no_line_is_refused() -> None:
    from kintune.models.interpolation import line

    with pytest.raises(ValueError, match="follow no line"):
        line(np.array([0.0, 1.0, 5.0, 6.0]), np.array([0, 1, 5, 6]))


def test_a_kernel_says_what_it_sums() -> None:
    from tvm import relax

    from kintune.models.converters.node import Node
    from kintune.models.interpolation import Interpolation, resized

    builder = relax.BlockBuilder()
    data = relax.Var("x", relax.TensorType((1, 3, 4, 5), "float32"))
    places = (np.arange(8) + 0.5) / 2 - 0.5
    first = np.floor(places).astype(np.int64)
    share = places - first
    with builder.function("main", [data]):
        resize = resized(Node(builder, (), {}, 18, 1), data, 2, places, first, np.stack([1 - share, share], axis=1))
        builder.emit_func_output(builder.emit(resize))
    (function,) = (each for name, each in builder.get().functions_items() if name.name_hint.startswith("resize"))
    found = Interpolation.of(function)
    assert found is not None
    assert (found.axis, found.taps) == (2, 2)
    assert [(found.slope * at + found.start) // found.divisor for at in range(8)] == list(first)
    assert Interpolation.of(function.without_attr("kintune.interpolation")) is None


def test_taps_without_weight_are_left_out() -> None:
    """An axis that keeps its size is a copy, and a tap that no output uses is not read."""
    from tvm import relax

    from kintune.models.converters.node import Node
    from kintune.models.interpolation import Interpolation, resized

    builder = relax.BlockBuilder()
    data = relax.Var("x", relax.TensorType((1, 3, 4, 5), "float32"))
    at = np.arange(5)
    with builder.function("main", [data]):
        node = Node(builder, (), {}, 18, 1)
        weights = np.stack([np.zeros(5), np.ones(5), np.zeros(5)], axis=1)
        assert resized(node, data, 3, at.astype(float), at - 1, weights) is data
        share = np.array([0.25, 0.75])
        weights = np.stack([share, 1 - share, np.zeros(2)], axis=1)
        builder.emit_func_output(resized(node, data, 2, np.array([0.25, 2.25]), np.array([0, 2]), weights))
    (function,) = (each for name, each in builder.get().functions_items() if name.name_hint.startswith("resize"))
    found = Interpolation.of(function)
    assert found is not None
    assert found.taps == 2
