"""A call's title names its main node, and the operators fused with it."""

from __future__ import annotations

import pytest

from kintune.core.kernel_call import CallRecord, SourceNode, readable, title_of, told_apart


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


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("fused_conv2d24_add4_relu", "conv2d + add + relu"),
        ("transpose1", "transpose"),
        ("fused_matmul_add231@1x64", "matmul + add (1x64)"),
        ("fused_batch_matmul_softmax", "batch matmul + softmax"),
    ],
)
def test_a_kernels_name_is_read_as_operators(name: str, said: str) -> None:
    assert readable(name) == said


def test_equal_titles_are_told_apart() -> None:
    titles = {"a": ("conv + Relu", "conv2 + Relu"), "b": ("conv + Relu",), "c": ("fc",), "d": ()}
    others = {"a": "conv2d (8)", "b": "conv2d (12)", "c": "dense", "d": "pool"}
    assert told_apart(titles, others) == {
        "a": ("conv + Relu: conv2d (8)", "conv2 + Relu"),
        "b": ("conv + Relu: conv2d (12)",),
        "c": ("fc",),
        "d": (),
    }
