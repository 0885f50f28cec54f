from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given
from hypothesis import strategies as st

from kintune.models.converters.pooling import counted
from kintune.models.converters.windows import Windows
from tests.support.examples import compiled_examples

pytestmark = pytest.mark.tvm


def draw(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


@st.composite
def pool(draw_from: st.DrawFn) -> dict[str, Any]:
    rank = draw_from(st.integers(1, 3))

    def of(low: int, high: int) -> list[int]:
        return draw_from(st.lists(st.integers(low, high), min_size=rank, max_size=rank))

    kernel = of(1, 4)
    strides = of(1, 3)
    attributes: dict[str, Any] = {"sizes": [size + 5 for size in of(0, 4)], "kernel_shape": kernel, "strides": strides}
    automatic = draw_from(st.sampled_from(["NOTSET", "NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID"]))
    if automatic == "NOTSET":
        attributes["pads"] = [draw_from(st.integers(0, (taps - 1) // 2)) for taps in (*kernel, *kernel)]
        attributes["ceil_mode"] = draw_from(st.integers(0, 1))
    else:
        attributes["auto_pad"] = automatic
        attributes["strides"] = [min(stride, taps) for stride, taps in zip(strides, kernel, strict=True)]
    return attributes


def cases_of(make_case: Any, operator: str, several: list[dict[str, Any]], **more: Any) -> list[Any]:
    cases = []
    for entry in several:
        attributes = dict(entry)
        cases.append(make_case(operator, draw(2, 3, *attributes.pop("sizes")), **attributes, **more))
    return cases


examples = compiled_examples(
    3,
    deadline=None,
    phases=[Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


@examples
@given(several=st.lists(pool(), min_size=6, max_size=6), order=st.integers(0, 1))
def test_the_largest_of_any_windows(compare: Any, make_case: Any, several: Any, order: int) -> None:
    compare(cases_of(make_case, "MaxPool", several), 12)
    compare(cases_of(make_case, "MaxPool", several, outputs=2, storage_order=order), 12)


@examples
@given(several=st.lists(pool(), min_size=6, max_size=6), padded=st.integers(0, 1))
def test_the_mean_of_any_windows(compare: Any, make_case: Any, several: Any, padded: int) -> None:
    for opset in (11, 22):
        compare(cases_of(make_case, "AveragePool", several, count_include_pad=padded), opset)


@examples
@given(several=st.lists(pool(), min_size=6, max_size=6), norm=st.integers(1, 3))
def test_norms_of_any_windows(compare: Any, make_case: Any, several: Any, norm: int) -> None:
    compare(cases_of(make_case, "LpPool", several, p=norm), 18)


def test_dilations_and_equal_elements(compare: Any, make_case: Any) -> None:
    x = np.round(draw(1, 2, 9, 8) * 2)
    window = {"kernel_shape": [3, 2], "dilations": [2, 3], "strides": [2, 1], "pads": [1, 0, 1, 1]}
    compare(
        [
            make_case("MaxPool", x, outputs=2, **window),
            make_case("MaxPool", x, outputs=2, storage_order=1, **window),
            make_case("MaxPool", (x * 20).astype(np.int8), kernel_shape=[2, 2], pads=[1] * 4),
            make_case("MaxPool", (x * 20 + 128).astype(np.uint8), kernel_shape=[2, 2], pads=[1] * 4),
            make_case("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1, dilations=[1, 2]),
        ],
        12,
    )
    compare([make_case("AveragePool", x, ceil_mode=mode, **window) for mode in (0, 1)], 19)


@pytest.mark.parametrize("operator", ["MaxPool", "AveragePool", "LpPool"])
def test_padding_to_the_same_size_counts_no_dilations(compare: Any, make_case: Any, operator: str) -> None:
    """As in onnxruntime: there are fewer windows than the standard says."""
    window: dict[str, Any] = {"kernel_shape": [3, 2], "dilations": [2, 3]}
    compare(
        [
            make_case(operator, draw(1, 2, 9, size), auto_pad=automatic, strides=[1, stride], **window)
            for automatic in ("SAME_UPPER", "SAME_LOWER")
            for size, stride in ((8, 1), (8, 2), (7, 3))
        ],
        22,
    )


def test_windows_as_long_as_a_sequence_are_counted_one_by_one() -> None:
    """Not element by element, which would take hours here."""
    length = 1 << 22
    windows = Windows(
        kernel=(length,), strides=(1,), dilations=(1,), before=(0,), after=(length - 1,), declared_after=(0,),
        outputs=(length,),
    )  # fmt: skip
    counts = counted(windows, (length,), padded=False)
    assert counts[0] == length
    assert counts[-1] == 1


def test_pools_of_whole_channels(compare: Any, make_case: Any) -> None:
    x = draw(2, 3, 4, 5)
    compare(
        [make_case(f"Global{name}Pool", x) for name in ("Average", "Max", "Lp")]
        + [make_case("GlobalAveragePool", draw(2, 3, 4)), make_case("GlobalMaxPool", draw(1, 2, 3, 4, 2))]
        + [make_case("GlobalLpPool", x, p=1), make_case("GlobalLpPool", x, p=3)],
        13,
    )


def test_one_window_with_all_elements_is_a_pool_of_the_channel(compare: Any, make_case: Any) -> None:
    """Some exporters write a window larger than any image, and rely on `ceil_mode`."""
    x = draw(2, 3, 5, 7)
    large: dict[str, Any] = {"kernel_shape": [40, 60], "strides": [40, 60], "ceil_mode": 1}
    compare(
        [
            make_case("AveragePool", x, **large),
            make_case("MaxPool", x, **large),
            make_case("AveragePool", x, kernel_shape=[5, 7]),
            make_case("AveragePool", x, kernel_shape=[7, 9], pads=[1, 1, 1, 1], count_include_pad=1),
            make_case("AveragePool", x, kernel_shape=[7, 9], pads=[1, 1, 1, 1]),
            make_case("MaxPool", x, kernel_shape=[5, 7]),
        ],
        22,
    )


def test_a_window_larger_than_all_there_is_is_refused_without_ceil_mode(compare: Any, make_case: Any) -> None:
    from kintune.errors import ModelError

    with pytest.raises(ModelError, match="a window of 40 elements is larger than the 5 there are"):
        compare([make_case("MaxPool", draw(1, 2, 5, 7), kernel_shape=[40, 60], strides=[40, 60])], 22, expected=[])


def test_windows_without_a_number_above_the_least(compare: Any, make_case: Any) -> None:
    """The maximum is -inf, also beside padding, where onnxruntime has the least finite number; NaN stays."""
    x = draw(2, 2, 6, 6)
    x[0], x[1, 0, :3] = -np.inf, -np.inf
    cases = [
        make_case("MaxPool", x, outputs=2, kernel_shape=[3, 3], strides=[2, 2]),
        make_case("MaxPool", x, kernel_shape=[3, 3]),
        make_case("MaxPool", x.astype(np.float16), outputs=2, kernel_shape=[2, 2], dilations=[2, 2]),
        make_case("MaxPool", x.astype(np.float64), kernel_shape=[2, 3]),
    ]
    compare(cases, 12)
    low = np.full((1, 1, 3), -np.inf, np.float32)
    wanted = [low, np.array([[[0, 0, 1]]]), low]
    padded = [make_case("MaxPool", low, outputs=count, kernel_shape=[3], pads=[1, 1]) for count in (2, 1)]
    compare(padded, 12, expected=wanted)
    row = np.array([[[1, np.nan, 3, 2, 5]]], np.float32)
    wanted = [np.array([[[np.nan, np.nan, 3, 5]]], np.float32), np.array([[[1, 1, 2, 4]]])]
    compare([make_case("MaxPool", row, outputs=2, kernel_shape=[2])], 12, expected=wanted)


@pytest.mark.parametrize("by_column", [0, 1])
@pytest.mark.parametrize("kind", ["equal", "nan", "least"])
def test_places_are_those_of_the_first_largest_and_of_the_last_nan(
    compare: Any, make_case: Any, kind: str, by_column: int
) -> None:
    """A plain look at each window, with padding and other strides along each axis."""
    rng = np.random.default_rng(1)
    x = rng.integers(0, 4, (1, 2, 5, 6)).astype(np.float32)
    if kind == "nan":
        x[rng.random(x.shape) < 0.15] = np.nan
    elif kind == "least":
        x[:, :, 1:4] = -np.inf
    found, places = np.zeros((1, 2, 6, 3), np.float32), np.zeros((1, 2, 6, 3), np.int64)
    for at in np.ndindex(*found.shape):
        rows, columns = np.arange(at[2] - 1, at[2] + 1), np.arange(2 * at[3], 2 * at[3] + 3)
        inside = [(r, c) for r in rows for c in columns if 0 <= r < 5 and c < 6]
        values = np.array([x[at[0], at[1], r, c] for r, c in inside])
        number = np.flatnonzero(np.isnan(values))[-1] if np.isnan(values).any() else np.argmax(values)
        row, column = inside[number]
        found[at], places[at] = values[number], 30 * at[1] + (5 * column + row if by_column else 6 * row + column)
    pool = make_case(
        "MaxPool", x, outputs=2, kernel_shape=[2, 3], strides=[1, 2], pads=[1, 0, 1, 1], storage_order=by_column
    )
    compare([pool], 17, expected=[found, places])


def test_large_windows_take_as_few_kernels_as_small_ones(make_case: Any) -> None:
    """Windows of 16 x 16 elements once took half a minute to lower, tap by tap."""
    from kintune.compiler.graph.lower import lower
    from kintune.models.importer import load
    from kintune.models.ref import parse_ref
    from tests.models.converters.conftest import model_of
    from tests.support.targets import native_target

    numbers = []
    for size in (2, 16):
        x = np.zeros((1, 1, 32, 32), np.float32)
        model, _ = model_of([make_case("MaxPool", x, outputs=2, kernel_shape=[size, size])], 17)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "pool.onnx")
            path.write_bytes(model.SerializeToString())
            numbers.append(len(lower(load(parse_ref(str(path))).module, native_target()).workloads))
    assert numbers[0] == numbers[1] <= 2
