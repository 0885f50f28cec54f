"""A call's title names its main node, and the operators fused with it."""

from __future__ import annotations

import pytest

from kintune.core.kernel_call import CallRecord, SourceNode, title_of


def call(*nodes: tuple[str, str], operators: tuple[str, ...] = (), inserted: bool = False) -> CallRecord:
    named = tuple(SourceNode(name, op) for name, op in nodes)
    return CallRecord(place=0, kernel="fused_conv2d_add", nodes=named, operators=operators, inserted=inserted)


@pytest.mark.parametrize(
    ("record", "title"),
    [
        (call(), "fused_conv2d_add"),
        (call(("conv1/Conv", "Conv"), ("bn", "BatchNormalization"), ("r", "Relu")), "conv1/Conv + BN + Relu"),
        (call(("fc", "Gemm")), "fc (Gemm)"),
        (call(("flat", "Flatten"), ("fc", "MatMul"), ("a", "Add"), ("b", "Add")), "fc (MatMul) + 2 Add"),
        (call(("flat", "Flatten"), ("t", "Transpose")), "flat (Flatten) + Transpose"),
        (call(("m", "Mul"), ("s", "Softmax")), "s (Softmax) + Mul"),
        (call(("conv1", "Conv"), operators=("transpose",), inserted=True), "transpose for conv1"),
    ],
)
def test_titles(record: CallRecord, title: str) -> None:
    assert title_of(record) == title
