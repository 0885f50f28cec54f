"""Shapes asked for, changed and put together, compared with onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from kintune.models.converters.shaping import _bounds

pytestmark = pytest.mark.tvm

X = np.arange(24, dtype=np.float32).reshape(2, 3, 4)


def ints(*values: int) -> Any:
    return np.array(values, np.int64)


def test_shapes(compare: Any, make_case: Any) -> None:
    compare(
        [
            make_case("Shape", X),
            *(make_case("Shape", X, start=s, end=e) for s, e in ((1, 3), (-2, -1), (0, 99), (2, 1), (-99, 2))),
            make_case("Size", X),
            *(make_case("Reshape", X, ints(*s), constant=[1]) for s in ((0, -1), (4, 3, 2), (-1,), (0, 0, 4, 1))),
            make_case("Reshape", X, ints(4, 6), constant=[1], allowzero=1),
            *(make_case("Flatten", X, axis=axis) for axis in (0, 1, -1, 3)),
            make_case("Squeeze", X[:1, :, :1], ints(-1), constant=[1]),
            make_case("Squeeze", X[:1, :, :1]),
            make_case("Unsqueeze", X, ints(-1, 0), constant=[1]),
            make_case("Transpose", X),
            make_case("Transpose", X, perm=[1, 2, 0]),
        ],
        17,
    )


def test_parts(compare: Any, make_case: Any) -> None:
    compare(
        [
            make_case("Split", X, ints(1, 2), constant=[1], outputs=2, axis=-2),
            make_case("Split", X, ints(0, 3), constant=[1], outputs=2, axis=1),
            make_case("Split", X, axis=1, num_outputs=2, outputs=2),
            make_case("Concat", X, X[:1], axis=-3),
            make_case("Concat", X, X[:, :0], axis=1),
            make_case("Expand", X, ints(2, 1, 3, 1), constant=[1]),
            make_case("Expand", np.float32(3), ints(2, 2), constant=[1]),
            make_case("Tile", X, ints(1, 2, 2), constant=[1]),
            make_case("Compress", X, np.array([True, False, True]), constant=[1], axis=1),
            make_case("Compress", X, np.array([False, True, True]), constant=[1]),
            make_case("Compress", X[0], np.arange(40) % 3 == 1, constant=[1]),  # longer than the data
            make_case("Compress", X[0], np.arange(40) > 30, constant=[1], axis=0),
            make_case("EyeLike", X[0], dtype=6, k=1),
            *(make_case("Trilu", X, np.array(k, np.int64), constant=[1], upper=u) for k in (-1, 0, 2) for u in (0, 1)),
            make_case("Where", X > 3, X, np.float32(0)),
            make_case("DepthToSpace", X.reshape(1, 8, 1, 3), blocksize=2),
            make_case("DepthToSpace", X.reshape(1, 8, 1, 3), blocksize=2, mode="CRD"),
            make_case("SpaceToDepth", X.reshape(1, 1, 4, 6), blocksize=2),
        ],
        18,
    )


def test_slices(compare: Any, make_case: Any) -> None:
    least, most = np.iinfo(np.int64).min, np.iinfo(np.int64).max
    kinds = [
        (ints(1), ints(99), ints(-1), None),
        (ints(-1), ints(least), ints(2), ints(-1)),
        (ints(-2, 0), ints(most, -1), ints(1, 0), None),
        (ints(3), ints(0), ints(2), ints(-2)),
        (ints(2), ints(1), ints(1), None),
        (ints(99), ints(-99), ints(1), ints(-1)),
        (ints(0, 0), ints(2, 2), None, None),
    ]
    compare([make_case("Slice", X, *kind, constant=[1, 2, 3, 4]) for kind in kinds], 13)
    compare([make_case("Slice", X, starts=[0, 1], ends=[1, -1], axes=[0, 2])], 9)


def test_axes_that_are_an_empty_list_squeeze_all(compare: Any, make_case: Any) -> None:
    compare([make_case("Squeeze", X[:, :1, :1], ints(), constant=[1])], 13)


def test_the_middle_is_cut_out_or_filled_up(compare: Any, make_case: Any) -> None:
    wanted = [(2, 3, 4), (1, 2, 1), (2, 6, 9), (5, 1, 4)]
    cases = [make_case("CenterCropPad", X, ints(*shape), constant=[1]) for shape in wanted]
    cases.append(make_case("CenterCropPad", X, ints(7, 2), constant=[1], axes=[-1, 1]))
    compare(cases, 18)


@settings(max_examples=200)
@given(st.integers(-12, 12), st.integers(-12, 12), st.integers(-4, 4).filter(bool), st.integers(1, 8))
def test_bounds_of_slices_are_python_s(start: int, end: int, step: int, size: int) -> None:
    """But for a start before the first element when a slice runs backwards: ONNX begins with the first element then."""
    assume(step > 0 or start >= -size)
    assert list(range(*_bounds(start, end, step, size), step)) == list(range(size))[start:end:step]


def test_pads(compare: Any, make_case: Any) -> None:
    pads = np.array([0, 1, 2, 0, 1, 1], np.int64)
    cases = [make_case("Pad", X, pads, constant=[1], mode=mode) for mode in ("constant", "reflect", "edge", "wrap")]
    cases += [
        make_case("Pad", X, pads, np.float32(2.5), constant=[1, 2]),
        make_case("Pad", X, np.array([2, 2], np.int64), None, np.array([-1], np.int64), constant=[1, 3], mode="wrap"),
        make_case("Pad", X, np.array([0, -1, 1, 0, 1, -2], np.int64), constant=[1]),
        make_case("Pad", X.astype(np.int64), pads, np.int64(-7), constant=[1, 2]),
        make_case("Pad", X, pads, np.float32(2.5), constant=[1]),
        make_case("Pad", X > 3, pads, np.array(True), constant=[1]),
    ]
    compare(cases, 19)
