"""Nodes converted one beside the other in one model, and compared with onnxruntime."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from kintune.models.evaluation import open_session

os.environ.setdefault("TVM_NUM_THREADS", "2")


class Case(NamedTuple):
    """One node: its operands are `inputs` and `constants` by the names that the node gives them."""

    node: NodeProto
    inputs: Mapping[str, NDArray[Any]]
    constants: Mapping[str, NDArray[Any]] = {}


def case(
    operator: str,
    *operands: NDArray[Any] | None,
    constant: Sequence[int] = (),
    outputs: int | Sequence[bool] = 1,
    domain: str = "",
    **attributes: Any,
) -> Case:
    """A node of `operator`; None is an operand that is left out, `constant` lists the operands known to the file.

    `outputs` is how many outputs the node has, or which ones of them are asked for.
    """
    names = [f"i{index}" if values is not None else "" for index, values in enumerate(operands)]
    asked = [True] * outputs if isinstance(outputs, int) else list(outputs)
    results = [f"o{index}" if wanted else "" for index, wanted in enumerate(asked)]
    node = helper.make_node(operator, names, results, domain=domain, **attributes)
    given = {name: values for name, values in zip(names, operands, strict=True) if values is not None}
    constants = {names[index]: given.pop(names[index]) for index in constant if names[index]}
    return Case(node, given, constants)


def model_of(cases: Sequence[Case], opset: int) -> tuple[ModelProto, dict[str, NDArray[Any]]]:
    """A model with all the nodes, none of them connected, and its inputs."""
    nodes, ports, weights, feeds, results = [], [], [], {}, []
    for index, entry in enumerate(cases):
        node = NodeProto()
        node.CopyFrom(entry.node)
        node.name = f"node{index}"
        node.input[:] = [f"n{index}_{name}" if name else "" for name in node.input]
        node.output[:] = [f"n{index}_{name}" if name else "" for name in node.output]
        results += [name for name in node.output if name]
        nodes.append(node)
        for name, values in entry.inputs.items():
            kind = helper.np_dtype_to_tensor_dtype(values.dtype)
            ports.append(helper.make_tensor_value_info(f"n{index}_{name}", kind, values.shape))
            feeds[f"n{index}_{name}"] = values
        weights += [numpy_helper.from_array(values, f"n{index}_{name}") for name, values in entry.constants.items()]
    graph = helper.make_graph(nodes, "graph", ports, [], weights)
    domains = sorted({node.domain for node in nodes} - {""})
    opsets = [helper.make_opsetid("", opset), *(helper.make_opsetid(domain, 1) for domain in domains)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    inferred = {value.name: value for value in onnx.shape_inference.infer_shapes(model).graph.value_info}
    for name in results:
        kind = inferred[name].type.tensor_type.elem_type if name in inferred else 0
        kind = kind or next((port.type.tensor_type.elem_type for port in ports), TensorProto.FLOAT)
        model.graph.output.append(helper.make_tensor_value_info(name, kind, None))
    return model, feeds


def reference(model: ModelProto, feeds: Mapping[str, NDArray[Any]]) -> list[NDArray[Any]]:
    """What onnxruntime computes; products of bytes are exact on all CPUs."""
    import onnxruntime

    onnxruntime.set_default_logger_severity(4)
    return list(open_session(model).run(None, {name: np.asarray(value) for name, value in feeds.items()}))


def computed(path: Path, feeds: Mapping[str, NDArray[Any]]) -> list[NDArray[Any]]:
    """What the imported and lowered model computes, each kernel with the compiler's default schedule."""
    import tvm
    from tvm import relax

    from kintune.compiler.graph.assemble import assemble
    from kintune.compiler.graph.lower import lower
    from kintune.models.importer import load
    from kintune.models.ref import parse_ref
    from kintune.runtime.target import resolve_target

    model = load(parse_ref(str(path)))
    target = tvm.target.Target(json.loads(resolve_target("native", 1)))
    program = assemble(lower(model.module, target), {}, target)
    machine = relax.VirtualMachine(program.executable, tvm.cpu())
    inputs = [tvm.runtime.tensor(np.array(feeds[tensor.name])) for tensor in model.inputs]
    result = machine["main"](*inputs, *program.weights)
    results = [result] if isinstance(result, tvm.runtime.Tensor) else list(result)
    return [value.numpy() for value in results[: len(model.outputs)]]  # indices to check come after


Compare = Callable[..., None]


@pytest.fixture
def compare(tmp_path: Path) -> Compare:
    """Compare cases with onnxruntime: shapes, element types, values."""

    def check(
        cases: Sequence[Case],
        opset: int,
        rtol: float = 1e-4,
        atol: float = 1e-5,
        expected: Sequence[NDArray[Any]] | None = None,
    ) -> None:
        model, feeds = model_of(cases, opset)
        path = tmp_path / "model.onnx"
        path.write_bytes(model.SerializeToString())
        wanted = list(expected) if expected is not None else reference(model, feeds)
        found = computed(path, feeds)
        names = [value.name for value in model.graph.output]
        attributes = {node.name.removeprefix("node"): node for node in model.graph.node}
        for name, ours, theirs in zip(names, found, wanted, strict=True):
            described = str(attributes[name[1:].partition("_")[0]])
            assert (ours.shape, ours.dtype) == (theirs.shape, theirs.dtype), described
            np.testing.assert_allclose(
                ours.astype(np.float64), theirs.astype(np.float64), rtol, atol, equal_nan=True, err_msg=described
            )

    return check


@pytest.fixture
def compare_model(tmp_path: Path) -> Compare:
    """Compare a whole model with onnxruntime."""

    def check(model: ModelProto, feeds: Mapping[str, NDArray[Any]], rtol: float = 1e-4, atol: float = 1e-4) -> None:
        path = tmp_path / "whole.onnx"
        path.write_bytes(model.SerializeToString())
        for ours, theirs in zip(computed(path, feeds), reference(model, feeds), strict=True):
            assert (ours.shape, ours.dtype) == (theirs.shape, theirs.dtype)
            np.testing.assert_allclose(ours, theirs, rtol, atol)

    return check


@pytest.fixture
def make_model(samples: Any) -> Callable[..., ModelProto]:
    """Makes a model of nodes, ports and weights."""
    return samples.make_model  # type: ignore[no-any-return]


@pytest.fixture
def make_case() -> Callable[..., Case]:
    """Makes a case."""
    return case
