"""Products of unsigned by signed bytes, made exact in onnxruntime.

On x86 processors without VNNI, onnxruntime adds two such products in 16 bits, which saturate.  It adds products of
unsigned bytes in 32 bits.  A signed operand becomes an unsigned one if 128 is added to it and to its zero point, and
the results stay as they are.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from kintune.models.node_changes import Constants, Types, change_nodes
from kintune.models.onnx_nodes import nodes

__all__ = ["NAMES", "with_exact_products"]


class _Operand(NamedTuple):
    """The places of an operand and of its zero point among the inputs."""

    place: int
    zero_point: int


_PAIRS = {
    "MatMulInteger": (_Operand(0, 2), _Operand(1, 3)),
    "ConvInteger": (_Operand(0, 2), _Operand(1, 3)),
    "QLinearMatMul": (_Operand(0, 2), _Operand(3, 5)),
    "QLinearConv": (_Operand(0, 2), _Operand(3, 5)),
    "MatMulIntegerToFloat": (_Operand(0, 4), _Operand(1, 5)),
    "QAttention": (_Operand(0, 6), _Operand(1, 7)),
    "QGemm": (_Operand(0, 2), _Operand(3, 5)),
}
"""Operators that multiply two operands."""

_BY_BYTES = {
    "DynamicQuantizeMatMul": (_Operand(1, 3),),
    "DynamicQuantizeLSTM": (_Operand(1, 9), _Operand(2, 11)),
}
"""Operators that multiply operands by unsigned bytes, which they make themselves."""

NAMES = frozenset(_PAIRS) | frozenset(_BY_BYTES)
"""The operators of such products."""

_OFFSET = 128
_NAME = "kintune unsigned "  # how the names of operands begin


def with_exact_products(model: ModelProto) -> ModelProto:
    """A model of the same results in which no unsigned bytes are multiplied by signed ones, as far as types are known.

    It is the model itself if there are no products of bytes.
    """
    if all(node.op_type not in NAMES for node in nodes(model)):
        return model
    changed = ModelProto()
    changed.CopyFrom(model)
    change_nodes(changed, _changed)
    return changed


def _changed(node: NodeProto, constants: Constants, types: Types) -> Iterator[NodeProto]:
    operands = _PAIRS.get(node.op_type, _BY_BYTES.get(node.op_type, ()))
    places = [each.place for each in operands]
    if not places or max(places) >= len(node.input):
        return
    kinds = [types.get(node.input[place]) for place in places]
    if node.op_type in _PAIRS and set(kinds) != {TensorProto.INT8, TensorProto.UINT8}:
        return
    for operand, kind in zip(operands, kinds, strict=True):
        if kind == TensorProto.INT8:
            yield from _moved(node, operand.place, constants)
            yield from _moved(node, operand.zero_point, constants)


def _moved(node: NodeProto, place: int, constants: Constants) -> Iterator[NodeProto]:
    """Adds the offset to an input; one that is left out is zero."""
    node.input.extend([""] * (place + 1 - len(node.input)))
    name = node.input[place]
    moved = f"{_NAME}{place} {next(filter(None, node.output))}"
    if not name or (name in constants and constants[name].data_location != TensorProto.EXTERNAL):
        value = numpy_helper.to_array(constants[name]).astype(np.int32) if name else np.zeros((), np.int32)
        yield _constant(moved, (value + _OFFSET).astype(np.uint8))
    else:
        yield helper.make_node("Cast", [name], [f"{moved} wide"], to=TensorProto.INT32)
        yield _constant(f"{moved} offset", np.array(_OFFSET, np.int32))
        yield helper.make_node("Add", [f"{moved} wide", f"{moved} offset"], [f"{moved} sum"])
        yield helper.make_node("Cast", [f"{moved} sum"], [moved], to=TensorProto.UINT8)
    node.input[place] = moved


def _constant(name: str, value: np.ndarray[Any, Any]) -> NodeProto:
    return helper.make_node("Constant", [], [name], value=numpy_helper.from_array(value))
