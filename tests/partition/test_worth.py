from __future__ import annotations

import pytest

from kintune.partition.tensor_types import infer_types
from kintune.partition.worth import can_pay
from tests.support.partitions import parse


def pays(text: str) -> bool:
    """Whether all nodes of a graph pay as one region."""
    model = parse(text)
    inputs = [value.name for value in model.graph.input]
    return can_pay(list(model.graph.node), infer_types(model)[()], inputs, [value.name for value in model.graph.output])


def chain(length: int, shape: str) -> str:
    nodes = " ".join(f"t{at + 1} = Relu(t{at})" for at in range(length))
    return f"m (float[{shape}] t0) => (float[{shape}] t{length}) {{ {nodes} }}"


def test_a_few_small_nodes_do_not_pay() -> None:
    assert not pays(chain(4, "2, 3"))


def test_many_small_nodes_pay_by_their_number() -> None:
    assert pays(chain(8, "2, 3"))


def test_tensors_that_need_not_be_written_pay() -> None:
    assert pays(chain(2, "64, 512"))


def test_the_tensor_of_one_node_is_written_all_the_same() -> None:
    assert not pays(chain(1, "64, 512"))


def test_nodes_that_touch_no_element_do_not_pay() -> None:
    nodes = " ".join(f"t{at + 1} = Identity(t{at})" for at in range(40))
    assert not pays(f"m (float[64, 512] t0) => (float[64, 512] t40) {{ {nodes} }}")


@pytest.mark.parametrize(
    ("small", "large"),
    [
        ("m (float[2, 8] x, float[8, 8] w) => (float[2, 8] y) { y = MatMul(x, w) }",
         "m (float[128, 512] x, float[512, 512] w) => (float[128, 512] y) { y = MatMul(x, w) }"),
        ("m (float[1, 4, 4, 4] x, float[4, 4, 1, 1] w) => (float[1, 4, 4, 4] y) { y = Conv(x, w) }",
         "m (float[1, 64, 58, 58] x, float[64, 64, 3, 3] w) => (float[1, 64, 56, 56] y) { y = Conv(x, w) }"),
        ("m (float[1, 4, 4, 4] x, float[4, 4, 1, 1] w) => (float[1, 4, 4, 4] y) { y = ConvTranspose(x, w) }",
         "m (float[1, 64, 28, 28] x, float[64, 64, 3, 3] w) => (float[1, 64, 30, 30] y) { y = ConvTranspose(x, w) }"),
        ("m (float[2, 1, 8] x, float[1, 32, 8] w, float[1, 32, 8] r) => (float[2, 1, 1, 8] y) { y = LSTM(x, w, r) }",
         "m (float[64, 1, 512] x, float[1, 2048, 512] w, float[1, 2048, 512] r) => (float[64, 1, 1, 512] y)"
         " { y = LSTM(x, w, r) }"),
        ("m (float[2, 8] x, float[8, 8] w) => (float[2, 8] y) { y = Gemm<transB = 1>(x, w) }",
         "m (float[128, 512] x, float[512, 512] w) => (float[128, 512] y) { y = Gemm<transB = 1>(x, w) }"),
    ],
)  # fmt: skip
def test_arithmetic_pays(small: str, large: str) -> None:
    assert not pays(small)
    assert pays(large)


def test_many_boundary_tensors_cost() -> None:
    """Six nodes pay with few tensors at the boundary, and not with many."""
    assert pays(chain(6, "2, 3"))
    nodes = " ".join(f"y{at} = Relu(x{at})" for at in range(6))
    inputs = ", ".join(f"float[2, 3] x{at}" for at in range(6))
    outputs = ", ".join(f"float[2, 3] y{at}" for at in range(6))
    assert not pays(f"m ({inputs}) => ({outputs}) {{ {nodes} }}")
