"""The user's nodes are found again in the kernels, whatever lowering and fusion made of them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from onnx import NodeProto, TensorProto, helper, numpy_helper, save

if TYPE_CHECKING:
    from kintune.compiler.graph.provenance import KernelOrigin
    from kintune.models.model import ImportedModel

pytestmark = pytest.mark.tvm


def weights(**shapes: Sequence[int]) -> list[TensorProto]:
    draw = np.random.default_rng(0)
    return [
        numpy_helper.from_array(draw.uniform(0.5, 1.0, shape).astype(np.float32), name)
        for name, shape in shapes.items()
    ]


def imported(
    folder: Path, nodes: list[NodeProto], held: list[TensorProto], x: Sequence[int], y: Sequence[int]
) -> ImportedModel:
    from kintune.models.importer import load
    from kintune.models.ref import parse_ref

    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, x)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, y)],
        held,
    )
    path = folder / "m.onnx"
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), str(path))
    return load(parse_ref(str(path), []))


def target() -> Any:
    import json

    import tvm

    from kintune.runtime.target import resolve_target

    return tvm.target.Target(json.loads(resolve_target("native", 1)))


def origins_of(model: ImportedModel, *, conservative: bool = False) -> tuple[KernelOrigin, ...]:
    from kintune.compiler.graph.lower import lower
    from kintune.compiler.graph.provenance import origins

    return origins(lower(model.module, target(), conservative=conservative).trail, model)


def names(origin: KernelOrigin) -> list[str]:
    return [node.name for node in origin.nodes]


def block(number: int, before: str, after: str) -> list[NodeProto]:
    """Convolution, batch norm and relu."""
    return [
        helper.make_node("Conv", [before, f"w{number}"], [f"c{number}"], f"conv{number}", pads=[1, 1, 1, 1]),
        helper.make_node(
            "BatchNormalization",
            [f"c{number}", f"s{number}", f"o{number}", f"m{number}", f"v{number}"],
            [f"b{number}"],
            f"bn{number}",
        ),
        helper.make_node("Relu", [f"b{number}"], [after], f"relu{number}"),
    ]


def held_by_blocks(count: int) -> list[TensorProto]:
    shapes = {f"{kind}{number}": [8] for number in range(count) for kind in "somv"}
    return weights(**{f"w{number}": [8, 8, 3, 3] for number in range(count)}, **shapes)


def test_convolution_norm_and_relu_are_one_kernel(tmp_path: Path) -> None:
    model = imported(tmp_path, block(0, "x", "y"), held_by_blocks(1), [1, 8, 6, 6], [1, 8, 6, 6])
    found = origins_of(model)
    (kernel,) = [origin for origin in found if "conv2d" in origin.operators]
    assert names(kernel) == ["conv0", "bn0", "relu0"]
    assert [node.op for node in kernel.nodes] == ["Conv", "BatchNormalization", "Relu"]
    assert kernel.operators[-1] == "relu"
    assert all(names(origin)[0] in ("bn0", "relu0", "conv0") for origin in found if origin.inserted)


def test_kernels_that_are_one_function_keep_their_own_nodes(tmp_path: Path) -> None:
    nodes = [*block(0, "x", "h"), *block(1, "h", "i"), *block(2, "i", "y")]
    model = imported(tmp_path, nodes, held_by_blocks(3), [1, 8, 6, 6], [1, 8, 6, 6])
    found = [names(origin) for origin in origins_of(model) if not origin.inserted]
    assert found == [[f"conv{n}", f"bn{n}", f"relu{n}"] for n in range(3)]


def test_without_layouts_it_is_the_same(tmp_path: Path) -> None:
    model = imported(tmp_path, block(0, "x", "y"), held_by_blocks(1), [1, 8, 6, 6], [1, 8, 6, 6])
    (kernel,) = origins_of(model, conservative=True)
    assert names(kernel) == ["conv0", "bn0", "relu0"]
    assert not kernel.inserted


def attention() -> tuple[list[NodeProto], list[TensorProto]]:
    nodes = []
    for name in "qkv":
        nodes += [
            helper.make_node("MatMul", ["x", f"w{name}"], [f"{name}0"], name),
            helper.make_node("Add", [f"{name}0", f"b{name}"], [f"{name}1"], f"{name}_bias"),
            helper.make_node("Reshape", [f"{name}1", "heads"], [f"{name}2"], f"{name}_split"),
            helper.make_node("Transpose", [f"{name}2"], [f"{name}3"], f"{name}_turn", perm=[0, 2, 1, 3]),
        ]
    nodes += [
        helper.make_node("Transpose", ["k3"], ["kt"], "k_last", perm=[0, 1, 3, 2]),
        helper.make_node("MatMul", ["q3", "kt"], ["scores"], "scores"),
        helper.make_node("Softmax", ["scores"], ["shares"], "softmax", axis=-1),
        helper.make_node("MatMul", ["shares", "v3"], ["mixed"], "mix"),
        helper.make_node("Transpose", ["mixed"], ["back"], "back", perm=[0, 2, 1, 3]),
        helper.make_node("Reshape", ["back", "flat"], ["y"], "join"),
    ]
    held = weights(**{f"w{name}": [16, 16] for name in "qkv"}, **{f"b{name}": [16] for name in "qkv"})
    held.append(numpy_helper.from_array(np.array([1, 4, 2, 8], np.int64), "heads"))
    held.append(numpy_helper.from_array(np.array([1, 4, 16], np.int64), "flat"))
    return nodes, held


def test_each_projection_of_attention_is_told_apart(tmp_path: Path) -> None:
    nodes, held = attention()
    model = imported(tmp_path, nodes, held, [1, 4, 16], [1, 4, 16])
    found = origins_of(model)
    products = [names(origin) for origin in found if "matmul" in origin.operators]
    for name in "qkv":
        assert any({name, f"{name}_bias"} <= set(product) for product in products)
    (mixed,) = (names(origin) for origin in found if "attention" in origin.operators)
    assert {"scores", "softmax", "mix"} <= set(mixed)
    everything = {name for origin in found for name in names(origin)}
    assert everything == {node.name for node in nodes}


def test_shared_operands_do_not_confuse(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Exp", ["x"], ["a"], "first"),
        helper.make_node("MatMul", ["a", "w"], ["b"], "left"),
        helper.make_node("MatMul", ["a", "u"], ["c"], "right"),
        helper.make_node("Sub", ["b", "c"], ["y"], "difference"),
    ]
    model = imported(tmp_path, nodes, weights(w=[4, 4], u=[4, 4]), [2, 4], [2, 4])
    found = [names(origin) for origin in origins_of(model)]
    assert sum("left" in each for each in found) == 1
    assert sum("right" in each for each in found) == 1


def test_calls_of_a_plan_have_their_nodes_with_packed_weights(tmp_path: Path) -> None:
    from kintune.compiler.graph.assemble import assemble_plan
    from kintune.compiler.graph.lower import lower
    from kintune.compiler.graph.provenance import origins

    nodes = [*block(0, "x", "h"), *block(1, "h", "y")]
    model = imported(tmp_path, nodes, held_by_blocks(2), [1, 8, 6, 6], [1, 8, 6, 6])
    lowered = lower(model.module, target())
    lowered = lowered._replace(origins=origins(lowered.trail, model))
    program = assemble_plan(lowered, {}, target(), inputs=model.inputs, outputs=model.outputs)
    computing = [call for call in program.calls if not call.inserted]
    assert [[node.name for node in call.nodes] for call in computing] == [
        [f"conv{n}", f"bn{n}", f"relu{n}"] for n in range(2)
    ]
    least = 2.0 * 8 * 8 * 9 * 4 * 4  # of the points that all taps reach
    assert all(call.flops > least for call in computing)
    assert all(call.nbytes > call.weight_bytes > 4 * 8 * 8 * 9 for call in computing)


@pytest.mark.needs("torch")
def test_modules_of_pytorch_are_found(tmp_path: Path) -> None:
    import torch

    from kintune.models.importer import load
    from kintune.models.ref import parse_ref

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = torch.nn.Conv2d(3, 8, 3)
            self.norm = torch.nn.BatchNorm2d(8)
            self.head = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 4))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.softmax(self.head(torch.relu(self.norm(self.conv(x))).mean((2, 3))), -1)

    path = tmp_path / "net.pt2"
    torch.export.save(torch.export.export(Net().eval(), (torch.randn(1, 3, 8, 8),)), path)
    found = origins_of(load(parse_ref(str(path), [])))
    by_operator = {origin.operators[0]: names(origin) for origin in found if not origin.inserted}
    assert by_operator["conv2d"][:2] == ["conv", "norm"]
    linear = [names(origin)[-1] for origin in found if "matmul" in origin.operators]
    assert linear[-1] == "head.2"
    assert names(next(origin for origin in found if "softmax" in origin.operators))
