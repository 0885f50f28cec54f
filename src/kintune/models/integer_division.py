"""Divisions of the least integer of a type by -1, which end the process that computes them.

The quotient has no place in the type, and the processor raises an exception, in onnxruntime as in compiled code.  Here
it wraps around, as sums and products do.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from kintune.models.node_changes import Constants, Types, change_nodes, with_constants
from kintune.models.onnx_nodes import DEFAULT_DOMAINS, nodes

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
    if any(map(_is_division, nodes(model))) and any(
        _may_trap(node, constants) for node, constants in with_constants(model.graph, {})
    ):
        change_nodes(model, _guarded)


def _is_division(node: NodeProto) -> bool:
    return node.op_type in _DIVISIONS and node.domain in DEFAULT_DOMAINS and len(node.input) == 2


def _may_trap(node: NodeProto, constants: Constants) -> bool:
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


def _guarded(node: NodeProto, constants: Constants, types: Types) -> Iterator[NodeProto]:
    if _may_trap(node, constants):
        kind = types.get(node.input[1], types.get(node.input[0], types.get(node.output[0], 0)))
        if kind in _TRAPPING:
            yield from _operands(node, kind)


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
