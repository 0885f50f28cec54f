"""Small ONNX files to read and to import, and a way to run what was imported."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from kintune.models.evaluation import open_session

os.environ.setdefault("TVM_NUM_THREADS", "2")

Port = tuple[str, int, Sequence[int | str | None] | None]
Arrays = Mapping[str, NDArray[Any]]


def make_model(
    nodes: Sequence[NodeProto],
    inputs: Sequence[Port],
    outputs: Sequence[Port],
    weights: Arrays | None = None,
    opset: int = 17,
    domains: Sequence[str] = (),
    **fields: Any,
) -> ModelProto:
    """A model; shapes may hold names (open dimensions) and None (open and nameless)."""
    graph = helper.make_graph(
        list(nodes),
        "graph",
        [helper.make_tensor_value_info(*port) for port in inputs],
        [helper.make_tensor_value_info(*port) for port in outputs],
        [numpy_helper.from_array(np.asarray(values), name) for name, values in (weights or {}).items()],
    )
    opsets = [helper.make_opsetid("", opset), *(helper.make_opsetid(domain, 1) for domain in domains)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10, **fields)


def linear_model(rows: int | str | None = 2, seed: int = 0) -> ModelProto:
    """Relu(x @ w + b): x is (rows, 64), w is large enough to count as a large weight."""
    draw = np.random.default_rng(seed)
    return make_model(
        [
            helper.make_node("MatMul", ["x", "w"], ["product"], name="product"),
            helper.make_node("Add", ["product", "b"], ["sum"], name="sum"),
            helper.make_node("Relu", ["sum"], ["y"], name="relu"),
        ],
        [("x", TensorProto.FLOAT, [rows, 64])],
        [("y", TensorProto.FLOAT, [rows, 512])],
        {
            "w": draw.standard_normal((64, 512), dtype=np.float32),
            "b": draw.standard_normal(512, dtype=np.float32),
        },
    )


class Samples:
    """Writes models into a directory of the test."""

    make_model = staticmethod(make_model)
    linear_model = staticmethod(linear_model)

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def write(self, model: ModelProto, name: str = "model.onnx") -> Path:
        path = self.directory / name
        path.write_bytes(model.SerializeToString())
        return path

    def write_external(
        self, location: str, offset: int = 0, length: int | None = None, values: NDArray[Any] | None = None
    ) -> Path:
        """A linear model whose weight `w` is said to lie in `location`; the data file is not written."""
        model = linear_model()
        tensor = next(t for t in model.graph.initializer if t.name == "w")
        if values is not None:
            tensor.dims[:] = values.shape
        externalise(tensor, location, offset, length)
        return self.write(model)


def externalise(tensor: TensorProto, location: str, offset: int = 0, length: int | None = None) -> None:
    """Say of a tensor that its values lie in a file."""
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value=location)
    tensor.external_data.add(key="offset", value=str(offset))
    if length is not None:
        tensor.external_data.add(key="length", value=str(length))


@pytest.fixture
def samples(tmp_path: Path) -> Samples:
    directory = tmp_path / "models"
    directory.mkdir()
    return Samples(directory)


@pytest.fixture(scope="session")
def random_inputs() -> Callable[..., dict[str, NDArray[Any]]]:
    """Inputs for a model's signature: normal floats, small ids, masks of ones."""

    def draw(tensors: Sequence[Any], seed: int = 0) -> dict[str, NDArray[Any]]:
        import ml_dtypes

        rng = np.random.default_rng(seed)
        values: dict[str, NDArray[Any]] = {}
        for tensor in tensors:
            dtype = np.dtype(ml_dtypes.bfloat16) if tensor.dtype == "bfloat16" else np.dtype(tensor.dtype)
            if "float" in tensor.dtype:
                values[tensor.name] = rng.standard_normal(tensor.shape).astype(dtype)
            elif "mask" in tensor.name:
                values[tensor.name] = np.ones(tensor.shape, dtype)
            else:
                values[tensor.name] = rng.integers(0, 2, tensor.shape).astype(dtype)
        return values

    return draw


@pytest.fixture(scope="session")
def run_module() -> Callable[[Any, Arrays], list[NDArray[Any]]]:
    """Build an imported model without tuning, and run it."""

    def run(model: Any, inputs: Arrays) -> list[NDArray[Any]]:
        import tvm
        from tvm import relax

        from kintune.compiler.graph.own_rules import own_rules

        with own_rules(tvm.target.Target("llvm")):
            built = tvm.compile(relax.get_pipeline("zero")(model.module), "llvm")
        machine = relax.VirtualMachine(built, tvm.cpu())
        result = machine["main"](*[tvm.runtime.tensor(inputs[tensor.name]) for tensor in model.inputs])
        results = [result] if isinstance(result, tvm.runtime.Tensor) else list(result)
        return [value.numpy() for value in results[: len(model.outputs)]]

    return run


@pytest.fixture(scope="session")
def run_reference() -> Callable[[str, Arrays], list[NDArray[Any]]]:
    """Run an ONNX file in onnxruntime."""

    def run(path: str, inputs: Arrays) -> list[NDArray[Any]]:
        import onnx

        # Its fusions of quantised operators compute in 8 bits what the model says in 32.
        return [np.asarray(value) for value in open_session(onnx.load(path)).run(None, dict(inputs))]

    return run
