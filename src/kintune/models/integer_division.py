"""Divisions of the least integer of a type by -1, which end the process that computes them.

The quotient has no place in the type, and the processor raises an exception, in onnxruntime as in compiled code.  Here
it wraps around, as sums and products do.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper, shape_inference

from kintune.models.onnx_nodes import DEFAULT_DOMAINS, nodes, subgraphs

__all__ = ["guard_divisions", "without_overflow"]

_DIVISIONS = frozenset({"Div", "Mod"})
_TRAPPING = (TensorProto.INT32, TensorProto.INT64)  # narrower integers are divided as int32
_GUARD = "kintune divisor "  # how the names of guarded divisors begin


def without_overflow(node: NodeProto, values: Sequence[NDArray[Any] | None]) -> list[NDArray[Any] | None]:
    """Operands that give the same results as `values`, and by which a node can be computed."""
    operands = list(values)
    if not _is_division(node) or len(operands) != 2 or any(each is None or each.dtype.kind != "i" for each in operands):
        return operands
    dividend, divisor = (np.asarray(each) for each in operands)
    opposite = divisor == -1
    if not opposite.any():
        return operands
    if node.op_type == "Div":
        dividend = np.where(opposite, np.zeros_like(dividend) - dividend, dividend)
    return [np.asarray(dividend), np.where(opposite, np.ones_like(divisor), divisor)]


def guard_divisions(model: ModelProto) -> None:
    """Change divisions of signed integers so that those by -1 are divisions of the opposite by 1.

    Those whose divisors are constants without -1 stay as they are.
    """
    if not any(map(_is_division, nodes(model))) or not any(
        _may_trap(node, constants) for node, constants in _with_constants(model.graph, {})
    ):
        return
    try:
        inferred = shape_inference.infer_shapes(model)
    except Exception:  # it has its own exception types; nothing that it cannot read is run
        return
    _guard(model.graph, inferred.graph, {}, {})


def _is_division(node: NodeProto) -> bool:
    return node.op_type in _DIVISIONS and node.domain in DEFAULT_DOMAINS and len(node.input) == 2


def _with_constants(graph: GraphProto, outer: Mapping[str, TensorProto]) -> Iterator[tuple[NodeProto, Any]]:
    """All nodes of the graph and of those inside it, with the constants that they see."""
    constants = _constants(graph, outer)
    for node in graph.node:
        yield node, constants
        for inner in subgraphs(node):
            yield from _with_constants(inner, constants)


def _constants(graph: GraphProto, outer: Mapping[str, TensorProto]) -> dict[str, TensorProto]:
    found = {**outer, **{tensor.name: tensor for tensor in graph.initializer}}
    for node in graph.node:
        if node.op_type == "Constant" and len(node.attribute) == 1 and node.attribute[0].name == "value":
            found[node.output[0]] = node.attribute[0].t
    return found


def _may_trap(node: NodeProto, constants: Mapping[str, TensorProto]) -> bool:
    """Whether a node is a division that may be one of integers by -1, as far as constants tell."""
    if not _is_division(node) or node.input[1].startswith(_GUARD):
        return False
    for name in node.input:
        if name in constants and constants[name].data_type not in _TRAPPING:
            return False
    dividend, divisor = (constants.get(name) for name in node.input)
    return (dividend is None or _has(dividend, np.iinfo(helper.tensor_dtype_to_np_dtype(dividend.data_type)).min)) and (
        divisor is None or _has(divisor, -1)
    )


def _has(tensor: TensorProto, value: int) -> bool:
    return bool((numpy_helper.to_array(tensor) == value).any())


def _guard(
    graph: GraphProto, inferred: GraphProto, outer: Mapping[str, TensorProto], outer_types: Mapping[str, int]
) -> None:
    """Guards the divisions of a graph and of those inside it; `inferred` is the same graph with its types."""
    constants = _constants(graph, outer)
    types = {**outer_types, **{name: tensor.data_type for name, tensor in constants.items()}}
    for port in (*inferred.input, *inferred.output, *inferred.value_info):
        types[port.name] = port.type.tensor_type.elem_type
    written: list[NodeProto] = []
    for node, twin in zip(graph.node, inferred.node, strict=True):
        for inner, inner_twin in zip(subgraphs(node), subgraphs(twin), strict=True):
            _guard(inner, inner_twin, constants, types)
        copy = NodeProto()
        copy.CopyFrom(node)
        if _may_trap(node, constants):
            kind = types.get(node.input[1], types.get(node.input[0], types.get(node.output[0], 0)))
            if kind in _TRAPPING:
                written.extend(_operands(copy, kind))
        written.append(copy)
    del graph.node[:]
    graph.node.extend(written)


def _operands(node: NodeProto, kind: int) -> Iterator[NodeProto]:
    """Changes the operands of a division to guarded ones; yields the nodes that compute them."""
    dividend, divisor = node.input
    own = next(iter(node.output))

    def name(what: str) -> str:
        return f"{_GUARD}{what} {own}"

    dtype = helper.tensor_dtype_to_np_dtype(kind)
    for what, value in (("minus", -1), ("one", 1)):
        yield helper.make_node("Constant", [], [name(what)], value=numpy_helper.from_array(np.array(value, dtype)))
    yield helper.make_node("Equal", [divisor, name("minus")], [name("is")])
    yield helper.make_node("Cast", [name("is")], [name("single")], to=kind)
    yield helper.make_node("Add", [name("single"), name("single")], [name("twice")])
    yield helper.make_node("Add", [divisor, name("twice")], [name("of")])
    node.input[1] = name("of")
    if node.op_type == "Div":
        yield helper.make_node("Sub", [name("one"), name("twice")], [name("sign")])
        yield helper.make_node("Mul", [dividend, name("sign")], [name("dividend of")])
        node.input[0] = name("dividend of")
