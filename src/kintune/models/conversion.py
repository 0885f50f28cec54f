"""Converts the nodes of an ONNX graph into one Relax function.

Every value has a fixed shape.  Nodes whose inputs are all constant are evaluated here, so that converters find sizes,
axes and indices as numbers.  Each node's outputs are bound to variables; `Conversion.sources` maps their names to the
ONNX tensors.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import tvm
from onnx import GraphProto, NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper
from tvm import relax

from kintune.errors import ModelError, cause_line
from kintune.models.bfloat16 import Shortened
from kintune.models.converters.library import find
from kintune.models.converters.node import Node, attribute_value, empty
from kintune.models.evaluation import evaluate
from kintune.models.expressions import constant_of, dtype_of, shape_of, static_shape
from kintune.models.onnx_nodes import DEFAULT_DOMAINS, used_tensors
from kintune.models.quantised_weights import quantised_weights
from kintune.models.stored_size import PACKED_BITS

__all__ = ["Conversion"]

_VALUE = "value_"  # prefix of the names of variables that hold the value of an ONNX tensor; a number follows
_MOST_EVALUATED_BYTES = 1 << 28  # a node with more bytes of constant inputs is left to the compiler

_WIDENED = {TensorProto.INT4: "int8", TensorProto.UINT4: "uint8"}
"""Element types of 4 bits -> those of 8 bits."""
_READING = ("Cast", "DequantizeLinear")
"""Operators that read such integers as numbers."""

_CASTS = ("Cast", "CastLike")


class Conversion:
    """Converts one graph; `sources` then maps the variables of `main` to the names of the ONNX tensors they hold.

    `label` names the model in messages, `opset` is the version of its default operator set, and `shapes` has the shapes
    of its inputs.
    """

    def __init__(self, label: str, opset: int, shapes: Mapping[str, tuple[int, ...]]) -> None:
        self.sources: dict[str, str] = {}
        self._label = label
        self._opset = opset
        self._shapes = shapes
        self._builder = relax.BlockBuilder()
        self._branches = 0  # how many branches that may not be taken are around the current node
        self._shortened = Shortened()
        self._quantised: set[str] = set()  # dequantised weights, not to be evaluated: see `quantised_weights`

    def convert(self, graph: GraphProto) -> tvm.IRModule:
        """Returns a module whose `main` takes the inputs of `graph` in order and returns its outputs.

        Raises:
            ModelError: naming the node that cannot be converted, and why.
        """
        values = _initial(graph, self._opset)
        self._quantised = quantised_weights(graph)
        parameters: list[relax.Var] = []
        for port in graph.input:
            if port.name in values:
                continue
            parameter = self._parameter(port, len(parameters))
            parameters.append(parameter)
            values[port.name] = _empty_as_constant(parameter)
            self.sources[str(parameter.name)] = port.name
        with self._builder.function("main", params=parameters):
            with self._builder.dataflow():
                self._nodes(graph.node, values)
                outputs = [self._output(port.name, values) for port in graph.output]
                result = self._builder.emit_output(outputs[0] if len(outputs) == 1 else relax.Tuple(outputs))
            self._builder.emit_func_output(result)
        return self._builder.get()

    def _parameter(self, port: ValueInfoProto, number: int) -> relax.Var:
        declared = port.type.tensor_type
        shape = self._shapes.get(port.name, tuple(size.dim_value for size in declared.shape.dim))
        dtype = str(helper.tensor_dtype_to_np_dtype(declared.elem_type))
        return relax.Var(f"input_{number}", relax.TensorType(list(shape), dtype))

    def _output(self, name: str, values: Mapping[str, Any]) -> Any:
        value = values[name]
        if not isinstance(value, tvm.ir.Expr):
            raise ModelError(f"{self._label}: output {name} is a sequence or optional, not a tensor")
        return value

    def _nodes(self, nodes: Iterable[NodeProto], values: dict[str, Any]) -> None:
        for node in nodes:
            try:
                results = self._node(node, values)
            except ModelError:
                raise
            except Exception as error:  # converters raise exceptions of many types
                name = node.name or f"of {next(filter(None, node.output), 'no output')}"
                raise ModelError(
                    f"{self._label}: operator {node.op_type} (node {name}) cannot be imported: {cause_line(error)}"
                ) from error
            for name, result in zip(node.output, results, strict=False):
                if name:
                    values[name] = self._bound(name, result)
            self._note(node, values)

    def _note(self, node: NodeProto, values: Mapping[str, Any]) -> None:
        """Note what a node does with a tensor that the model casts to bfloat16."""
        data = values[node.input[0]] if node.input and node.input[0] else None
        if not isinstance(data, relax.Var) or node.domain not in DEFAULT_DOMAINS:
            return
        results = [values[name] for name in node.output if name]
        if node.op_type in _CASTS:
            self._shortened.cast(data, results[0])
        elif (operator := find(node.domain, node.op_type, self._opset)) and operator.copies:
            self._shortened.moved(data, results)

    def _node(self, node: NodeProto, values: dict[str, Any]) -> list[Any]:
        inputs = [values[name] if name else None for name in node.input]
        attributes = {attribute.name: attribute_value(attribute) for attribute in node.attribute}
        if node.op_type == "If":
            return self._if(attributes, inputs[0], values)
        constants = [None if given is None else constant_of(given) for given in inputs]
        size = sum(value.nbytes for value in constants if value is not None)
        known = all(given is None or value is not None for given, value in zip(inputs, constants, strict=True))
        known = known and size <= _MOST_EVALUATED_BYTES and not self._quantised.intersection(node.output)
        computed = evaluate(node, constants, self._opset) if known else None
        if computed is not None:
            return [relax.const(array, str(array.dtype)) for array in computed]
        operator = find(node.domain, node.op_type, self._opset)
        if operator is None:
            raise ValueError("it is not in the library of operators")
        outputs = 1 + max((number for number, name in enumerate(node.output) if name), default=0)
        given = Node(
            self._builder,
            tuple(inputs),
            attributes,
            self._opset,
            outputs,
            tuple(node.input),
            self._branches > 0,
            operator.constants,
        )
        results = self._results(node, operator.converted(given))
        if node.op_type in _CASTS and dtype_of(results[0]) == "float32":
            rounded = self._shortened.restored(self._builder, inputs[0])
            return results if rounded is None else [rounded]
        return results

    def _results(self, node: NodeProto, converted: Any) -> list[Any]:
        """One result for each output, each of fixed shape."""
        if not isinstance(converted, tvm.ir.Expr):
            return [converted]  # a sequence or an optional
        if isinstance(converted, relax.Tuple):
            results = list(converted.fields)
        else:
            converted = self._builder.normalize(converted)
            if isinstance(converted.ty, relax.TupleType):
                whole = self._builder.emit(converted)
                results = [relax.TupleGetItem(whole, i) for i in range(len(converted.ty.fields))]
            else:
                results = [converted]
        if any(node.output[len(results) :]):
            raise ValueError(f"its output {node.output[len(results)]} is not supported")
        return [
            self._fixed(name, self._builder.normalize(result))
            for name, result in zip(node.output, results, strict=False)
        ]

    def _fixed(self, name: str, result: Any) -> Any:
        """A result, which must have a fixed shape; a constant where it has no elements."""
        if isinstance(result, relax.ShapeExpr):
            return relax.const(np.array([int(size) for size in result.values], np.int64), "int64")
        if not isinstance(result.ty, relax.TensorType):
            raise ValueError(f"its result {name} is no tensor but {result.ty}")
        if static_shape(result.ty) is None:
            raise ValueError(f"the shape of its result {name} depends on the data")
        return _empty_as_constant(result)

    def _bound(self, name: str, result: Any) -> Any:
        """Binds `result`, the value of tensor `name`, to a new variable, unless it is a variable or a constant."""
        if isinstance(result, tvm.ir.Expr) and not isinstance(result, relax.Var | tvm.ir.GenericConst):
            hint = f"{_VALUE}{len(self.sources)}"
            result = self._builder.emit(result, hint)
            self.sources[str(result.name)] = name
        return result

    def _if(self, attributes: Mapping[str, Any], condition: Any, values: dict[str, Any]) -> list[Any]:
        """The results of the branch that a constant condition takes; else both are computed, and `where` selects."""
        known = constant_of(condition)
        if known is not None:
            return self._branch(attributes["then_branch" if known.reshape(-1)[0] else "else_branch"], values)
        self._branches += 1
        taken = self._branch(attributes["then_branch"], values)
        other = self._branch(attributes["else_branch"], values)
        self._branches -= 1
        if not all(isinstance(result, tvm.ir.Expr) for result in (*taken, *other)):
            raise ValueError("its results are sequences or optionals; fix the condition with --constant NAME=VALUE")
        if [(shape_of(a), dtype_of(a)) for a in taken] != [(shape_of(b), dtype_of(b)) for b in other]:
            raise ValueError(
                "its branches have results of different shapes; fix the condition with --constant NAME=VALUE"
            )
        condition = self._builder.emit(relax.op.reshape(condition, ()))
        return [relax.op.where(condition, a, b) for a, b in zip(taken, other, strict=True)]

    def _branch(self, graph: GraphProto, values: Mapping[str, Any]) -> list[Any]:
        inner = {**values, **_initial(graph, self._opset)}
        self._nodes(graph.node, inner)
        return [inner[port.name] for port in graph.output]


def _initial(graph: GraphProto, opset: int) -> dict[str, Any]:
    """The constants of a graph; those of 4 bits that are only read as numbers, or copied and then read, have 8, which
    the compiler can store.
    """
    kept = {port.name for port in graph.output}
    for node in reversed(graph.node) if any(each.data_type in _WIDENED for each in graph.initializer) else ():
        copied = (operator := find(node.domain, node.op_type, opset)) and operator.copies
        if node.op_type not in _READING and not (copied and kept.isdisjoint(node.output)):
            kept.update(used_tensors(node))
    return {tensor.name: _constant(tensor, tensor.name in kept) for tensor in graph.initializer}


def _constant(tensor: TensorProto, kept: bool) -> Any:
    values = numpy_helper.to_array(tensor)
    if tensor.data_type in _WIDENED and not kept:
        values = values.astype(_WIDENED[tensor.data_type])
    elif values.size > 1 and TensorProto.DataType.Name(tensor.data_type) in PACKED_BITS:
        raise ValueError(
            f"{values.dtype} of constant {tensor.name} is supported where it is dequantised or cast, alone"
        )
    return relax.const(np.ascontiguousarray(values).reshape(values.shape), str(values.dtype))


def _empty_as_constant(value: Any) -> Any:
    """A constant in place of a value without elements: kernels over no elements cannot be built."""
    shape = shape_of(value)
    return empty(shape, dtype_of(value)) if 0 in shape else value
