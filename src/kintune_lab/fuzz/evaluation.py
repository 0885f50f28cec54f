"""Runs single nodes of a drawn graph in onnxruntime without optimisation, and in ONNX's reference implementation."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TypeProto, helper

from kintune.models.evaluation import open_session
from kintune.models.onnx_nodes import used_tensors
from kintune_lab.fuzz.values import Array

__all__ = ["Evaluator", "Refused", "Value", "extents_of", "kind_of", "model_of", "value_info"]

Value: TypeAlias = "Array | list[Array]"
"""A tensor, or a sequence of tensors."""

IR_VERSION = 10
MICROSOFT = "com.microsoft"


class Refused(Exception):
    """A runtime does not take a node, or fails with these inputs."""


def kind_of(value: Value) -> str:
    """The type of a value as schemas name it, such as `tensor(float)`."""
    if isinstance(value, list):
        return f"seq({kind_of(value[0])})" if value else "seq()"
    kind = helper.np_dtype_to_tensor_dtype(value.dtype)
    return f"tensor({_SCHEMA_NAMES.get(value.dtype.name, value.dtype.name)})" if kind else ""


_SCHEMA_NAMES = {"float32": "float", "float64": "double"}


def value_info(name: str, value: Value) -> Any:
    """The declaration of a value with its shape."""
    if isinstance(value, list):
        element = helper.np_dtype_to_tensor_dtype(value[0].dtype)
        inner = helper.make_tensor_type_proto(element, None)
        return helper.make_value_info(name, helper.make_sequence_type_proto(inner))
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape)


def model_of(graph: GraphProto, opset: int) -> ModelProto:
    """A model of a graph; `opset` is the version of the default operator set."""
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid(MICROSOFT, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION)


class Evaluator:
    """Evaluates nodes; the sessions of nodes are kept, so that other inputs of the same shapes cost little."""

    def __init__(self, opset: int) -> None:
        self.opset = opset
        self._sessions: dict[tuple[Any, ...], Any] = {}

    def run(self, node: NodeProto, values: Mapping[str, Value]) -> dict[str, Value]:
        """The outputs of a node in onnxruntime.

        Raises:
            Refused: onnxruntime does not take the node, or fails.
        """
        read = list(dict.fromkeys(used_tensors(node)))
        key = (node.output[0], *((n, kind_of(values[n]), extents_of(values[n])) for n in read))
        try:
            session = self._sessions.get(key)
            if session is None:
                session = self._sessions[key] = open_session(self.single(node, values))
            names = [name for name in node.output if name]
            return dict(zip(names, session.run(names, {name: values[name] for name in read}), strict=True))
        except Exception as error:  # onnxruntime has its own exception types
            raise Refused(str(error)) from error

    def reference(self, node: NodeProto, values: Mapping[str, Value]) -> dict[str, Value] | None:
        """The outputs of a node in ONNX's reference implementation; None where it has none, or fails."""
        from onnx.reference import ReferenceEvaluator

        read = list(dict.fromkeys(used_tensors(node)))
        with warnings.catch_warnings(), contextlib.suppress(Exception), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            names = [name for name in node.output if name]
            found = ReferenceEvaluator(self.single(node, values)).run(names, {name: values[name] for name in read})
            return dict(zip(names, found, strict=True))
        return None

    def single(self, node: NodeProto, values: Mapping[str, Value]) -> ModelProto:
        """A model of a node alone, whose inputs are all that it reads, captured values included."""
        graph = GraphProto(name="node")
        graph.node.append(node)
        graph.input.extend(value_info(name, values[name]) for name in dict.fromkeys(used_tensors(node)))
        graph.output.extend(helper.make_value_info(name, TypeProto()) for name in node.output if name)
        return model_of(graph, self.opset)


def extents_of(value: Value) -> Any:
    """The shape of a tensor, or the shapes of those in a sequence."""
    return tuple(map(extents_of, value)) if isinstance(value, list) else np.shape(value)


def attribute(node: NodeProto, name: str, default: Any = None) -> Any:
    """The value of an attribute of a node."""
    found: AttributeProto | None = next((each for each in node.attribute if each.name == name), None)
    return default if found is None else helper.get_attribute_value(found)


Undefined: TypeAlias = Callable[[NodeProto, Sequence[Any]], bool]
