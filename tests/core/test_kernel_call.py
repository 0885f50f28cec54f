"""A call's title names its main node, and the operators fused with it."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kintune.core.kernel_call import (
    CallRecord,
    SourceNode,
    common_folder,
    own_kernel,
    readable,
    title_of,
    told_apart,
)


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


@example(["a/1", "a/2", "a/3", "a/4", "b/5"])
@example(["a/b/1", "a/b/2", "a/b/3", "a/b/4", "a/c/5"])
@given(st.lists(st.text("ab/", max_size=7), max_size=12))
def test_a_common_folder_is_the_longest_of_four_fifths_of_the_names(names: list[str]) -> None:
    folders = {name[: at + 1] for name in names for at, letter in enumerate(name) if letter == "/"}
    shared = [each for each in folders if sum(name.startswith(each) for name in names) >= 0.8 * len(names)]
    assert common_folder(names) == (max(shared, key=len, default="") if len(names) > 1 else "")


@pytest.mark.parametrize(
    ("name", "own"),
    [
        ("conv_prepacked", "conv"),
        ("conv_in_place1_bf16_0_12_prepacked", "conv"),
        ("conv_prepacked_add", "conv_prepacked_add"),
        ("conv_bf16", "conv_bf16"),
    ],
)
def test_a_kernel_is_the_same_however_it_reads_its_operands(name: str, own: str) -> None:
    assert own_kernel(name) == own
