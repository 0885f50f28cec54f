from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

pytestmark = pytest.mark.tvm


def draw(*shape: int, mean: float = 0.0, dtype: Any = np.float32, seed: int = 0) -> Any:
    return (np.random.default_rng(seed).standard_normal(shape) + mean).astype(dtype)


def test_layer_normalization_in_all_its_forms(compare: Any, make_case: Any) -> None:
    x = draw(2, 3, 4, 5)
    norm = "LayerNormalization"
    compare(
        [
            make_case(norm, x, draw(5), draw(5)),
            make_case(norm, x, draw(5)),
            make_case(norm, x, draw(4, 5), draw(4, 5), axis=2),
            make_case(norm, x, draw(3, 4, 5), axis=-3, epsilon=0.1),
            make_case(norm, x, draw(2, 3, 4, 5), draw(2, 3, 4, 5), axis=0, outputs=3),
            make_case(norm, x, draw(5), draw(5), outputs=3),
            make_case(norm, x, draw(5), outputs=[True, False, True]),
            make_case(norm, draw(3, 5, dtype=np.float64), draw(5, dtype=np.float64), outputs=3),
            make_case(norm, x, draw(3, 1, 5), draw(4, 5), axis=-1),
            make_case(norm, draw(4, 16, dtype=np.float16), draw(16, dtype=np.float16), draw(16, dtype=np.float16)),
        ],
        17,
        rtol=1e-3,
        atol=1e-3,
    )


def test_norms_that_onnxruntime_writes_into_the_domain_of_the_standard(compare: Any, make_case: Any) -> None:
    x = draw(2, 3, 8)
    compare(
        [
            make_case("LayerNormalization", x, draw(8), draw(8)),
            make_case("LayerNormalization", x, draw(8), draw(8), constant=[1, 2], epsilon=1e-3),
            make_case("SimplifiedLayerNormalization", x, draw(8), constant=[1]),
            make_case("SimplifiedLayerNormalization", x, draw(8), axis=-1, epsilon=1e-3),
        ],
        14,
    )


def test_layer_normalization_of_bfloat16_is_computed_in_float32(compare: Any, make_case: Any) -> None:
    x, scale = (draw(4, 64, mean=2.0, dtype=ml_dtypes.bfloat16), draw(64, dtype=ml_dtypes.bfloat16))
    wide = x.astype(np.float64)
    normed = (wide - wide.mean(-1, keepdims=True)) / np.sqrt(wide.var(-1, keepdims=True) + 1e-5)
    expected = (normed * scale.astype(np.float64)).astype(ml_dtypes.bfloat16)
    case = make_case("LayerNormalization", x, scale)
    compare([case], 17, rtol=1e-2, atol=1e-2, expected=[expected])


def test_batch_normalization_in_evaluation_and_in_training(compare: Any, make_case: Any) -> None:
    x, values = draw(3, 4, 5, 6, mean=1.0), [draw(4, seed=seed) for seed in range(3)]
    variance = np.abs(draw(4, seed=4)) + 0.5
    norm = "BatchNormalization"
    compare(
        [
            make_case(norm, x, *values, variance, constant=[1, 2, 3, 4]),
            make_case(norm, x, *values, variance, epsilon=0.3),
            make_case(norm, draw(3, 4), *values, variance),
            make_case(norm, x, *values, variance, training_mode=1, outputs=3),
            make_case(norm, x, *values, variance, training_mode=1, momentum=0.3, epsilon=0.2, outputs=3),
            make_case(norm, draw(2, 4, 7, dtype=np.float64), *(v.astype(np.float64) for v in [*values, variance])),
        ],
        15,
    )


def test_statistics_of_each_element_of_old_batch_normalizations(compare: Any, make_case: Any) -> None:
    x, values = draw(3, 4, 2), [draw(4, 2, seed=seed) for seed in range(3)]
    compare([make_case("BatchNormalization", x, *values, np.abs(draw(4, 2)) + 0.5, spatial=0)], 7)


def test_group_and_instance_normalization(compare: Any, make_case: Any) -> None:
    x = draw(2, 6, 3, 4)
    compare(
        [
            make_case("GroupNormalization", x, draw(6), draw(6, seed=1), num_groups=3),
            make_case("GroupNormalization", draw(2, 6, 7), draw(6), draw(6), num_groups=2, epsilon=0.1),
            make_case("InstanceNormalization", x, draw(6), draw(6, seed=1)),
            make_case("InstanceNormalization", draw(2, 6, 5), draw(6), draw(6), epsilon=0.1),
        ],
        21,
    )


def test_rms_normalization_over_each_axis(compare: Any, make_case: Any) -> None:
    x = draw(2, 3, 4)
    compare(
        [make_case("RMSNormalization", x, draw(*x.shape[axis:]), axis=axis, epsilon=0.01) for axis in range(-3, 3)]
        + [make_case("RMSNormalization", draw(3, 8, dtype=np.float16), draw(8, dtype=np.float16))],
        23,
        rtol=1e-3,
        atol=1e-3,
    )


def test_a_mean_far_from_zero_costs_no_digits(compare: Any, make_case: Any) -> None:
    x = draw(2, 3, 8, 8, mean=1000.0)
    wide = x.astype(np.float64)
    centred = wide - wide.mean((0, 2, 3), keepdims=True)
    expected = (centred / wide.std((0, 2, 3), keepdims=True)).astype(np.float32)
    compare([make_case("MeanVarianceNormalization", x)], 13, atol=2e-4, expected=[expected])
    compare(
        [
            make_case("MeanVarianceNormalization", draw(2, 3, 4, 4), axes=[0, 1, 2, 3]),
            make_case("MeanVarianceNormalization", draw(2, 3, 4), axes=[2]),
        ],
        13,
    )


def test_norms_of_vectors_and_of_neighbouring_channels(compare: Any, make_case: Any) -> None:
    x = draw(2, 5, 3, 4)
    x[0, :, 0, 0] = 0
    x[1, :, 0, 0] = 1e-30  # squares of it are 0
    compare(
        [make_case("LpNormalization", x, p=p, axis=axis) for p in (1, 2) for axis in (1, -1)]
        + [make_case("LRN", x, size=size, alpha=0.1, beta=0.6, bias=1.5) for size in (1, 3, 5, 9)],
        13,
    )


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_norms_of_all_axes(compare: Any, make_case: Any, dtype: Any) -> None:
    cases = [
        make_case("LayerNormalization", draw(8, dtype=dtype), draw(8, dtype=dtype, seed=1), constant=[1]),
        make_case(
            "LayerNormalization", draw(2, 3, mean=100, dtype=dtype), draw(2, 3, dtype=dtype, seed=1),
            draw(2, 3, dtype=dtype, seed=2), constant=[1, 2], axis=0,
        ),
    ]  # fmt: skip
    compare(cases, 17, atol=1e-4)


def test_responses_to_large_values_stay_in_their_neighbourhood(compare: Any, make_case: Any) -> None:
    """Not as in onnxruntime, whose running sum of squares keeps a NaN, or the error of a large square."""
    for dtype in (np.float16, np.float32):
        x = (draw(2, 7, 3, 4) * 300).astype(dtype)
        x[0, :, 0] = np.array([6e4, 0, np.inf, -1e-7, np.nan, -6e4, 1])[:, None]
        squares = np.pad(np.square(x.astype(np.float32)), ((0, 0), (1, 1), (0, 0), (0, 0)))
        with np.errstate(invalid="ignore"):
            expected = x / (1.5 + 0.1 / 3 * sum(squares[:, start : start + 7] for start in range(3))) ** 0.6
        case = make_case("LRN", x, size=3, alpha=0.1, beta=0.6, bias=1.5)
        compare([case], 13, rtol=2e-3 if dtype == np.float16 else 1e-5, expected=[expected.astype(dtype)])


@pytest.mark.parametrize("opset", [7, 10, 13])
def test_dropout_keeps_everything(compare: Any, make_case: Any, opset: int) -> None:
    x = draw(2, 3)
    cases = [make_case("Dropout", x), make_case("Dropout", x, outputs=2)]
    if opset == 13:
        false, ratio = np.array(False), np.array(0.3, np.float32)
        cases += [
            make_case("Dropout", x, ratio, false, constant=[1, 2], outputs=2),
            make_case("Dropout", x, np.array(0.0, np.float32), np.array(True), constant=[1, 2], outputs=2),
        ]
    compare(cases, opset)


def test_dropout_at_random_is_refused(compare: Any, make_case: Any) -> None:
    from kintune.errors import ModelError

    with pytest.raises(ModelError, match=r"Dropout \(node node0\).*drops at random.*evaluation mode"):
        compare([make_case("Dropout", draw(2), None, np.array(True), constant=[2])], 13, expected=[])


def test_skip_layer_normalization_and_its_sum(compare: Any, make_case: Any) -> None:
    x, skip = draw(2, 3, 8), draw(2, 3, 8, seed=1)
    gamma, beta, bias = (draw(8, seed=seed) for seed in (2, 3, 4))
    norm, simple = "SkipLayerNormalization", "SkipSimplifiedLayerNormalization"
    ports = [True, False, False, True]
    compare(
        [
            make_case(norm, x, skip, gamma, beta, bias, domain="com.microsoft"),
            make_case(norm, x, skip, gamma, beta, domain="com.microsoft", epsilon=0.1),
            make_case(norm, x, skip, gamma, domain="com.microsoft", outputs=ports),
            make_case(norm, x, skip, gamma, beta, bias, domain="com.microsoft", outputs=ports),
            make_case(simple, x, skip, gamma, bias, domain="com.microsoft", outputs=ports),
        ],
        17,
    )


def test_neighbouring_channels_of_an_even_number_reach_one_further_forward(compare: Any, make_case: Any) -> None:
    x = draw(2, 6, 3)
    squares = np.pad(x**2, ((0, 0), (1, 2), (0, 0)))
    expected = x / (1 + 0.5 / 4 * sum(squares[:, start : start + 6] for start in range(4))) ** 0.75
    compare([make_case("LRN", x, size=4, alpha=0.5)], 13, expected=[expected])


@pytest.mark.parametrize("operator", ["SoftmaxCrossEntropyLoss", "NegativeLogLikelihoodLoss"])
def test_losses_of_constants(compare: Any, make_case: Any, operator: str) -> None:
    """Definitions of the standard stand for them, also where operands are constants of the file."""
    labels, weights = np.array([[0, 4, 2], [3, 1, 1]], np.int64), draw(5, mean=3)
    compare(
        [
            make_case(operator, draw(2, 5, 3), labels, constant=[1]),
            make_case(operator, draw(2, 5, 3), labels, constant=[0], reduction="sum", ignore_index=1),
            make_case(operator, draw(2, 5, 3), labels, weights, constant=[1, 2], reduction="none"),
        ],
        17,
    )
