from __future__ import annotations

import pytest
from onnx import ModelProto, NodeProto, TensorProto, helper

from kintune.models import zoo
from kintune.tuning.estimation import count_flops, count_network_flops

PUBLISHED_GMACS = {"resnet18": 1.82, "resnet50": 4.09, "mobilenet_v2": 0.30, "vit_base": 17.6}
Shape = tuple["int | str", ...]


def model_of(node: NodeProto, output: Shape, **inputs: Shape) -> ModelProto:
    graph = helper.make_graph(
        [node],
        "one",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in inputs.items()],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, output)],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


@pytest.mark.parametrize(("name", "gmacs"), PUBLISHED_GMACS.items())
def test_the_zoo_counts_as_published(name: str, gmacs: float) -> None:
    assert count_network_flops(zoo.build(name)) / 2e9 == pytest.approx(gmacs, rel=0.02)


@pytest.mark.parametrize(
    ("operator", "attributes", "x", "w", "y", "multiplications"),
    [
        ("Conv", {}, (1, 4, 6, 6), (8, 4, 3, 3), (1, 8, 4, 4), 8 * 16 * 36),
        ("Conv", {"group": 4}, (1, 4, 6, 6), (4, 1, 3, 3), (1, 4, 4, 4), 4 * 16 * 9),
        ("ConvTranspose", {}, (1, 4, 2, 2), (4, 2, 3, 3), (1, 2, 4, 4), 16 * 2 * 9),
        ("MatMul", {}, (2, 3, 4), (4, 5), (2, 3, 5), 30 * 4),
        ("Gemm", {"transA": 1}, (4, 3), (4, 5), (3, 5), 15 * 4),
        ("Gemm", {}, (3, 4), (4, 5), (3, 5), 15 * 4),
        ("Add", {}, (4,), (4,), (4,), 0),
        ("MatMul", {}, ("n", 4), (4, 5), ("n", 5), 0),
    ],
)
def test_an_operator_counts_two_for_each_multiplication(
    operator: str, attributes: dict[str, int], x: Shape, w: Shape, y: Shape, multiplications: int
) -> None:
    node = helper.make_node(operator, ["x", "w"], ["y"], **attributes)
    assert count_flops(model_of(node, y, x=x, w=w)) == 2 * multiplications
