"""The cases of ONNX's own backend suite that onnxruntime runs with tensors of numpy's types."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray
from onnx import ModelProto, TensorProto, defs, numpy_helper

__all__ = ["Case", "cases", "deciding_inputs", "operators", "reference"]

Arrays = Sequence[NDArray[Any]]

_KINDS = ("node", "simple", "pytorch-converted", "pytorch-operator")
_TYPE_NAMES = "float16 float32 float64 int8 int16 int32 int64 uint8 uint16 uint32 uint64 bool"

_OF_LOOPS = {"Loop": {"M", "cond"}}
"""Inputs that decide how often a loop runs: it is written out before operators are converted."""


@dataclass(frozen=True)
class Case:
    """A model with its inputs in order, the outputs it must have, and how far these may differ."""

    name: str
    model: bytes
    inputs: list[NDArray[Any]]
    outputs: list[NDArray[Any]]
    rtol: float
    atol: float

    @property
    def proto(self) -> ModelProto:
        return onnx.load_from_string(self.model)

    @property
    def feeds(self) -> dict[str, NDArray[Any]]:
        """The inputs by name: those of the graph without the weights, in order."""
        graph = self.proto.graph
        weights = {weight.name for weight in graph.initializer}
        names = [value.name for value in graph.input if value.name not in weights]
        return dict(zip(names, self.inputs, strict=False))


def cases() -> Iterator[Case]:
    """All cases with tensors of numpy's types alone; those written in terms of other operators are left out."""
    types = frozenset(_TYPE_NAMES.split())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the suite computes infinities on purpose
        from onnx.backend.test.loader import load_model_tests

        for kind in _KINDS:
            for each in load_model_tests(kind=kind):
                if each.name.endswith("_expanded"):
                    continue
                if each.model_dir is None:
                    model, (inputs, outputs) = each.model, each.data_sets[0]
                else:
                    model = onnx.load(Path(each.model_dir) / "model.onnx")
                    data = Path(each.model_dir) / "test_data_set_0"
                    inputs, outputs = _tensors(data, "input"), _tensors(data, "output")
                values = [_array(value) for value in (*inputs, *outputs)]
                if all(value is not None and value.dtype.name in types for value in values):
                    known = [value for value in values if value is not None]
                    split = len(inputs)
                    yield Case(each.name, model.SerializeToString(), known[:split], known[split:], each.rtol, each.atol)


def _tensors(folder: Path, what: str) -> list[TensorProto]:
    found = sorted(folder.glob(f"{what}_*.pb"), key=lambda path: int(path.stem.rpartition("_")[2]))
    return [onnx.load_tensor(path) for path in found]


def _array(value: object) -> NDArray[Any] | None:
    if isinstance(value, TensorProto):
        try:
            value = numpy_helper.to_array(value)
        except (TypeError, ValueError):
            return None
    return value if isinstance(value, np.ndarray) else None


def reference(case: Case) -> Arrays | None:
    """What onnxruntime computes; None where it cannot run the case, or finds other shapes."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    with contextlib.suppress(Exception):  # it raises whatever it stumbles over
        session = onnxruntime.InferenceSession(case.model, options, providers=["CPUExecutionProvider"])
        names = [value.name for value in session.get_inputs()]
        results = session.run(None, dict(zip(names, case.inputs, strict=False)))
        if all(np.shape(result) == wanted.shape for result, wanted in zip(results, case.outputs, strict=False)):
            return [np.asarray(result) for result in results]
    return None


def operators(model: ModelProto) -> set[str]:
    """The operators of a model at any depth, those of other domains with the domain before them."""
    return {f"{node.domain}::{node.op_type}" if node.domain else node.op_type for node in _nodes(model.graph)}


def _nodes(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            for inner in (attribute.g, *attribute.graphs):
                yield from _nodes(inner)


def deciding_inputs(model: ModelProto) -> dict[str, str]:
    """The inputs of a model that must be constants, each with what it does, as in "axes of Squeeze"."""
    from kintune.models.converters.library import find

    opsets = {opset.domain: opset.version for opset in model.opset_import}
    given = {value.name for value in model.graph.input}
    found: dict[str, str] = {}
    for node in _nodes(model.graph):
        with contextlib.suppress(defs.SchemaError):
            schema = defs.get_schema(node.op_type, opsets.get(node.domain, 1), node.domain)
            operator = find(node.domain, node.op_type, opsets.get(node.domain, 1))
            loops = _OF_LOOPS.get(node.op_type, set[str]())
            for index, (formal, actual) in enumerate(zip(schema.inputs, node.input, strict=False)):
                if actual in given and (formal.name in loops or (operator and index in operator.constants)):
                    found[actual] = f"{formal.name} of {node.op_type}"
    return found


def as_constants(model: ModelProto, values: Mapping[str, NDArray[Any]]) -> ModelProto:
    """The model with some of its inputs fixed."""
    fixed = ModelProto()
    fixed.CopyFrom(model)
    kept = [value for value in model.graph.input if value.name not in values]
    del fixed.graph.input[:]
    fixed.graph.input.extend(kept)
    fixed.graph.initializer.extend(numpy_helper.from_array(value, name) for name, value in values.items())
    return fixed
