"""What onnxruntime makes of several operators when it optimises a graph, compared with onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

pytestmark = pytest.mark.tvm

RNG = np.random.default_rng(0)
OURS = {"domain": "com.microsoft"}


def draw(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype(np.float32)


def test_activations_with_a_bias_and_products_of_transposed_matrices(compare: Any, make_case: Any) -> None:
    x = draw(2, 3, 8)
    compare(
        [
            make_case("BiasGelu", x, draw(8), **OURS),
            make_case("FastGelu", x, **OURS),
            make_case("FastGelu", x, draw(8), **OURS),
            make_case("QuickGelu", x, **OURS),
            make_case("QuickGelu", x, alpha=1.0, **OURS),
            make_case("FusedMatMul", x, draw(2, 8, 5), alpha=0.5, **OURS),
            make_case("FusedMatMul", x, draw(2, 5, 3), transA=1, transB=1, **OURS),
            make_case("FusedGemm", x[0], draw(8, 5), activation="Relu", **OURS),
            make_case(
                "FusedGemm", x[0], draw(5, 8), draw(5), transB=1, alpha=0.5, beta=2.0, activation="LeakyRelu",
                activation_alpha=0.3, **OURS,
            ),
        ],
        17,
    )  # fmt: skip


def test_a_product_leaves_out_what_is_multiplied_by_zero(compare: Any, make_case: Any) -> None:
    nowhere = np.full((3, 5), np.nan, np.float32)
    compare([make_case("Gemm", draw(3, 8), draw(5, 8), nowhere, transB=1, alpha=0.5, beta=0.0)], 17)


def test_convolutions_with_an_activation(compare: Any, make_case: Any) -> None:
    operands = [draw(1, 3, 5, 5), draw(4, 3, 3, 3), draw(4)]

    def fused(activation: str, *more: Any, **attributes: Any) -> Any:
        attributes = {**attributes, **OURS, "activation": activation}
        return make_case("FusedConv", *operands, *more, constant=[1, 2], **attributes)

    compare(
        [
            fused("Relu", pads=[1, 1, 1, 1]),
            fused("Relu", draw(1, 4, 3, 3)),
            fused("Clip", activation_params=[-0.5, 1.0]),
            fused("HardSigmoid", activation_params=[0.3, 0.4]),
            fused("LeakyRelu", activation_params=[0.3]),
        ],
        17,
    )


def test_an_activation_that_nobody_knows_is_refused(compare: Any, make_case: Any) -> None:
    from kintune.errors import ModelError

    with pytest.raises(ModelError, match=r"FusedGemm.*activation 'Wobble' is not supported"):
        compare([make_case("FusedGemm", draw(2, 3), draw(3, 2), activation="Wobble", **OURS)], 17, expected=[])


def test_embeddings_are_summed_normed_and_counted(compare_model: Any, make_model: Any) -> None:
    weights = {"w": draw(9, 8), "p": draw(6, 8), "s": draw(2, 8), "scale": draw(8), "bias": draw(8)}
    whole = {"ids": (9, [2, 4]), "segments": (2, [2, 4]), "mask": (2, [2, 4]), "at": (6, [2, 4])}
    nodes = [
        helper.make_node(
            "EmbedLayerNormalization",
            ["ids", "segments", "w", "p", "s", "scale", "bias", "mask"],
            ["y", "count"],
            **OURS,
        ),
        helper.make_node(
            "EmbedLayerNormalization",
            ["ids", "", "w", "p", "", "scale", "bias", "", "at"],
            ["z", "none", "sum"],
            epsilon=1e-3,
            **OURS,
        ),
    ]
    outputs = [(name, TensorProto.FLOAT, [2, 4, 8]) for name in ("y", "z", "sum")]
    outputs += [(name, TensorProto.INT32, [2]) for name in ("count", "none")]
    inputs = [(name, TensorProto.INT32, shape) for name, (_, shape) in whole.items()]
    model = make_model(nodes, inputs, outputs, weights, domains=["com.microsoft"])
    feeds = {name: RNG.integers(0, below, shape).astype(np.int32) for name, (below, shape) in whole.items()}
    compare_model(model, feeds)


def test_embeddings_of_bytes(compare_model: Any, make_model: Any) -> None:
    tables = ["w", "p", "s", "scale", "bias"]
    shapes = [(9, 8), (6, 8), (2, 8), (8,), (8,)]
    weights = {name: RNG.integers(0, 256, shape).astype(np.uint8) for name, shape in zip(tables, shapes, strict=True)}
    steps = {f"{name} step": np.float32(0.01 * (at + 1)) for at, name in enumerate(tables)}
    zeros = {f"{name} zero": np.uint8(100 + at) for at, name in enumerate(tables)}
    given = ["ids", "segments", *tables, "mask", *steps, *zeros]
    node = helper.make_node("QEmbedLayerNormalization", given, ["y", "count"], epsilon=1e-6, **OURS)
    below = {"ids": 9, "segments": 2, "mask": 2}
    model = make_model(
        [node],
        [(name, TensorProto.INT32, [2, 4]) for name in below],
        [("y", TensorProto.FLOAT, [2, 4, 8]), ("count", TensorProto.INT32, [2])],
        {**weights, **steps, **zeros},
        domains=["com.microsoft"],
    )
    compare_model(model, {name: RNG.integers(0, most, (2, 4)).astype(np.int32) for name, most in below.items()})
