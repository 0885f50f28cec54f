"""Attention of onnxruntime's own set, compared with onnxruntime."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

pytestmark = pytest.mark.tvm

RNG = np.random.default_rng(0)
OURS = {"domain": "com.microsoft", "num_heads": 2}
BATCH, ROWS, HIDDEN = 2, 4, 8


def draw(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype(np.float32)


def chosen(*shape: int) -> Any:
    """A mask in which the first key counts always."""
    mask = RNG.integers(0, 2, shape).astype(np.int32)
    mask[..., 0] = 1
    return mask


def test_self_attention_with_masks_of_every_kind_and_earlier_keys(compare: Any, make_case: Any) -> None:
    x, weights, added = draw(BATCH, ROWS, HIDDEN), draw(HIDDEN, 3 * HIDDEN), draw(3 * HIDDEN)
    mask, bias, past = chosen(BATCH, ROWS), draw(1, 2, ROWS, ROWS), draw(2, BATCH, 2, 3, HIDDEN // 2)

    integers = [RNG.integers(0, 64, (BATCH, ROWS, HIDDEN)).astype(np.uint8)]
    integers.append(RNG.integers(-63, 64, (HIDDEN, 3 * HIDDEN)).astype(np.int8))
    steps = [np.float32(0.02), RNG.uniform(0.01, 0.03, 3 * HIDDEN).astype(np.float32)]
    quantised = [*integers, added, *steps, chosen(BATCH, ROWS + 3), np.uint8(30), np.int8(0), past]

    def attention(*more: Any, outputs: int = 1, **attributes: Any) -> Any:
        operands = (x, weights, added, *more)
        return make_case("Attention", *operands, constant=[1, 2], outputs=outputs, **OURS, **attributes)

    compare(
        [
            attention(unidirectional=0),
            attention(mask, scale=0.3),
            attention(chosen(BATCH, ROWS, ROWS), mask_filter_value=-1e9),
            attention(np.array([3, 2], np.int32)),
            attention(np.array([4, 3, 1, 0], np.int32)),
            attention(mask, unidirectional=1),
            attention(mask, None, bias),
            attention(None, past, outputs=2, unidirectional=1),
            make_case("QAttention", *quantised, constant=[1, 2], outputs=2, unidirectional=1, **OURS),
            make_case("Attention", x, draw(HIDDEN, 20), draw(20), qkv_hidden_sizes=[8, 8, 4], **OURS),
        ],
        17,
    )


def test_attention_of_queries_to_other_keys(compare: Any, make_case: Any) -> None:
    columns = 5
    given = [draw(BATCH, ROWS, HIDDEN), draw(BATCH, columns, HIDDEN), draw(BATCH, columns, 6)]
    past = [draw(BATCH, 2, 3, HIDDEN // 2) for _ in range(2)]

    def attention(*more: Any, outputs: int = 1, **attributes: Any) -> Any:
        return make_case("MultiHeadAttention", *given, *more, outputs=outputs, **OURS, **attributes)

    apart = [draw(BATCH, 2, columns, HIDDEN // 2) for _ in range(2)]
    compare(
        [
            attention(scale=0.2),
            attention(draw(2 * HIDDEN + 6), chosen(BATCH, columns)),
            attention(None, np.array([4, 2], np.int32), draw(1, 2, ROWS, columns)),
            make_case("MultiHeadAttention", *given[:2], given[1], None, None, None, *past, outputs=3, **OURS),
            attention(unidirectional=1),
            make_case("MultiHeadAttention", given[0], *apart, **OURS),
        ],
        17,
    )


def test_pairs_of_elements_are_turned_by_their_positions(compare: Any, make_case: Any) -> None:
    tables = [function(np.outer(np.arange(9), (1.0, 0.1))).astype(np.float32) for function in (np.cos, np.sin)]
    x, positions = draw(BATCH, ROWS, HIDDEN), RNG.integers(0, 9, (BATCH, ROWS))
    rotary, domain = "RotaryEmbedding", "com.microsoft"
    compare(
        [
            make_case(rotary, x, positions, *tables, constant=[2, 3], domain=domain),
            make_case(rotary, x, np.array([3]), *tables, constant=[2, 3], interleaved=1, domain=domain),
            make_case(rotary, draw(BATCH, 2, ROWS, 4), positions, *tables, domain=domain),
            make_case(rotary, draw(BATCH, ROWS, 12), positions, *tables, rotary_embedding_dim=4, **OURS),
        ],
        17,
    )


def test_it_is_one_kernel_beside_the_product_that_makes_its_operands(make_model: Any, tmp_path: Path) -> None:
    import tvm

    from kintune.compiler.graph.lower import lower
    from kintune.models.importer import load
    from kintune.models.ref import parse_ref

    node = helper.make_node("Attention", ["x", "w", "b", "mask"], ["y"], unidirectional=1, **OURS)
    ports = [("x", TensorProto.FLOAT, [1, 7, HIDDEN]), ("mask", TensorProto.INT32, [1, 7])]
    weights = {"w": draw(HIDDEN, 3 * HIDDEN), "b": draw(3 * HIDDEN)}
    model = make_model([node], ports, [("y", TensorProto.FLOAT, [1, 7, HIDDEN])], weights, domains=["com.microsoft"])
    path = tmp_path / "attention.onnx"
    path.write_bytes(model.SerializeToString())
    target = tvm.target.Target({"kind": "llvm", "mcpu": "core-avx2", "num-cores": 2})
    operators = [each.operator for each in lower(load(parse_ref(str(path))).module, target).workloads]
    assert operators.count("attention") == 1
    assert len(operators) <= 3  # the product and the mask


def test_attention_of_as_many_keys_as_are_valid(compare: Any, make_case: Any) -> None:
    """The standard's operator, some of whose inputs are left out between others."""
    draw = np.random.default_rng(0).standard_normal
    query, key, value = (draw((2, heads, rows, 4)).astype(np.float32) for heads, rows in ((4, 3), (2, 8), (2, 8)))
    lengths = np.array([4, 8], np.int64)
    cases = [make_case("Attention", query, key, value, None, None, None, lengths, is_causal=c) for c in (0, 1)]
    compare([*cases, make_case("Attention", query, key, value, None, key, value, outputs=3)], 24)
