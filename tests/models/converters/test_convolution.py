from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given
from hypothesis import strategies as st

from kintune.errors import ModelError
from tests.support.examples import compiled_examples

pytestmark = pytest.mark.tvm


def draw(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def test_convolutions_of_one_to_three_dimensions(compare: Any, make_case: Any) -> None:
    conv = "Conv"
    compare(
        [
            make_case(conv, draw(1, 4, 9), draw(6, 4, 3), draw(6), pads=[1, 2], strides=[2], constant=[1, 2]),
            make_case(conv, draw(1, 4, 9), draw(6, 2, 3), group=2, dilations=[2]),
            make_case(conv, draw(2, 4, 9, 8), draw(6, 4, 3, 2), draw(6), pads=[1, 0, 2, 1], constant=[1]),
            make_case(conv, draw(2, 4, 9, 8), draw(4, 1, 3, 3), group=4, strides=[2, 1], auto_pad="SAME_UPPER"),
            make_case(conv, draw(2, 4, 9, 8), draw(4, 2, 4, 3), group=2, strides=[2, 3], auto_pad="SAME_LOWER"),
            make_case(conv, draw(2, 4, 9, 8), draw(4, 4, 2, 2), dilations=[2, 3], auto_pad="VALID"),
            make_case(conv, draw(1, 4, 5, 6, 4), draw(6, 4, 2, 3, 2), draw(6), pads=[1, 0, 0, 0, 1, 1]),
            make_case(conv, draw(1, 4, 5, 6, 4), draw(6, 2, 2, 3, 2), group=2, strides=[2, 1, 2]),
        ],
        17,
    )


@pytest.mark.parametrize("constant", [[1, 2], []])
def test_transposed_convolutions(compare: Any, make_case: Any, constant: list[int]) -> None:
    conv = "ConvTranspose"
    x, w = draw(1, 4, 5, 6), draw(4, 3, 3, 4)
    if not constant:  # weights that are inputs of the network
        w = w + 0.5
    compare(
        [
            make_case(conv, draw(1, 4, 5), draw(4, 3, 3), draw(3), strides=[2], pads=[1, 0], constant=constant),
            make_case(conv, x, w, draw(3), constant=constant),
            make_case(conv, x, w, draw(3), strides=[2, 3], pads=[1, 0, 0, 2], constant=constant),
            make_case(conv, x, w, strides=[3, 2], output_padding=[2, 1], constant=constant[:1]),
            make_case(conv, x, w, strides=[3, 3], output_shape=[16, 20], constant=constant[:1]),
            make_case(conv, x, w, strides=[3, 3], output_shape=[14, 17], constant=constant[:1]),
            make_case(conv, x, w, draw(3), strides=[2, 2], auto_pad="SAME_UPPER", constant=constant),
            make_case(conv, x, w, strides=[2, 2], auto_pad="SAME_LOWER", constant=constant[:1]),
            make_case(conv, x, w, draw(3), strides=[4, 5], auto_pad="SAME_UPPER", constant=constant),
            make_case(conv, x, draw(4, 3, 1, 1), strides=[2, 1], auto_pad="SAME_LOWER", constant=constant[:1]),
            make_case(conv, x, w, strides=[2, 1], dilations=[2, 3], auto_pad="VALID", constant=constant[:1]),
            make_case(conv, x, draw(4, 3, 2, 2), draw(6), group=2, strides=[2, 2], constant=constant),
            make_case(conv, x, draw(4, 3, 1, 1), strides=[2, 2], output_padding=[1, 0], constant=constant[:1]),
            make_case(conv, draw(1, 4, 3, 4, 2), draw(4, 2, 2, 3, 3), draw(2), strides=[2, 1, 2], constant=constant),
        ],
        17,
    )


@st.composite
def transposed(draw_from: st.DrawFn) -> dict[str, Any]:
    rank = draw_from(st.integers(1, 2))

    def of(low: int, high: int) -> list[int]:
        return draw_from(st.lists(st.integers(low, high), min_size=rank, max_size=rank))

    kernel, strides, dilations = of(1, 5), of(1, 4), of(1, 3)
    reach = [(taps - 1) * dilation for taps, dilation in zip(kernel, dilations, strict=True)]
    pads = [draw_from(st.integers(0, limit)) for limit in (*reach, *reach)]
    extra = [draw_from(st.integers(0, stride - 1)) for stride in strides]
    sizes = [size + 6 for size in of(0, 3)]
    group = draw_from(st.integers(1, 2))
    return {
        "sizes": sizes, "kernel": kernel, "strides": strides, "dilations": dilations, "pads": pads,
        "output_padding": extra, "group": group,
    }  # fmt: skip


@compiled_examples(
    3, deadline=None, phases=[Phase.generate], suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(several=st.lists(transposed(), min_size=6, max_size=6))
def test_transposed_convolutions_of_any_attributes(compare: Any, make_case: Any, several: list[dict[str, Any]]) -> None:
    cases = []
    for entry in several:
        attributes = dict(entry)
        sizes, kernel = attributes.pop("sizes"), attributes.pop("kernel")
        whole = [
            (size - 1) * stride + (taps - 1) * dilation + 1
            for size, stride, taps, dilation in zip(sizes, entry["strides"], kernel, entry["dilations"], strict=True)
        ]
        pads, rank = entry["pads"], len(sizes)
        if any(whole[axis] - pads[axis] - pads[axis + rank] < 1 for axis in range(rank)):
            attributes["pads"] = [0] * (2 * rank)
        operands = [draw(1, 2 * entry["group"], *sizes), draw(2 * entry["group"], 3, *kernel, seed=1)]
        bias = draw(3 * entry["group"], seed=2)
        cases.append(make_case("ConvTranspose", *operands, bias, constant=[1, 2], **attributes))
    compare(cases, 17, atol=1e-4)


def test_a_transposed_convolution_between_two_convolutions(tmp_path: Any, make_model: Any, compare_model: Any) -> None:
    from onnx import TensorProto, helper

    weights = {"a": draw(8, 3, 3, 3), "b": draw(8, 8, 2, 2), "c": draw(4, 8, 3, 3), "bias": draw(8)}
    nodes = [
        helper.make_node("Conv", ["x", "a"], ["p"], pads=[1] * 4),
        helper.make_node("ConvTranspose", ["p", "b", "bias"], ["q"], strides=[2, 2]),
        helper.make_node("Relu", ["q"], ["r"]),
        helper.make_node("Conv", ["r", "c"], ["y"], pads=[1] * 4),
    ]
    ports = [("x", TensorProto.FLOAT, [1, 3, 6, 6])], [("y", TensorProto.FLOAT, [1, 4, 12, 12])]
    compare_model(make_model(nodes, *ports, weights), {"x": draw(1, 3, 6, 6)})


def test_deformable_convolutions(compare: Any, make_case: Any) -> None:
    conv = "DeformConv"
    x = draw(2, 4, 6, 7)
    offset = draw(2, 2 * 2 * 9, 6, 7, seed=1) * 2
    compare(
        [
            make_case(conv, x, draw(6, 4, 3, 3), offset[:, :18], draw(6), pads=[1] * 4, kernel_shape=[3, 3]),
            make_case(conv, x, draw(6, 2, 3, 3), offset, pads=[1] * 4, group=2, offset_group=2),
            make_case(
                conv, x, draw(6, 4, 3, 3), offset[:, :18], draw(6), draw(2, 9, 6, 7, seed=5), pads=[1] * 4
            ),
            make_case(
                conv, x, draw(6, 4, 2, 2), draw(2, 8, 4, 3, seed=1), strides=[2, 2], dilations=[1, 2], pads=[1, 0, 2, 1]
            ),
        ],
        19,
        atol=1e-4,
    )  # fmt: skip


def test_what_cannot_be_computed_is_refused_by_name(compare: Any, make_case: Any) -> None:
    with pytest.raises(ModelError, match=r"Conv \(node node0\).*4 spatial dimensions"):
        compare([make_case("Conv", draw(1, 2, 3, 3, 3, 3), draw(1, 2, 1, 1, 1, 1))], 17, expected=[])
