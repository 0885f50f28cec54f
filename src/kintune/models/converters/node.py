"""One ONNX node as its converter sees it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
from numpy.typing import NDArray
from onnx import AttributeProto, TensorProto, helper
from tvm import relax

__all__ = [
    "Converter",
    "Node",
    "attribute_value",
    "constant_of",
    "dtype_of",
    "is_float",
    "is_integer",
    "numpy_type",
    "shape_of",
]


@dataclass(frozen=True)
class Node:
    """A node: its operands as Relax expressions (None where left out), its attributes, and where to emit to.

    `attributes` hold numbers, tuples of numbers and text; `opset` is the version of the default operator set; `outputs`
    the number of outputs the node names, left-out ones before the last included; `names` the ONNX names of operands.
    An operand that is a sequence is a list of expressions.  A `conditional` node is in a branch of an If; all
    branches are computed.
    """

    builder: relax.BlockBuilder
    operands: tuple[relax.Expr | None, ...]
    attributes: Mapping[str, Any]
    opset: int
    outputs: int
    names: tuple[str, ...] = ()
    conditional: bool = False

    def operand(self, index: int) -> relax.Expr | None:
        """The operand, None where it is left out."""
        return self.operands[index] if index < len(self.operands) else None

    def required(self, index: int) -> relax.Expr:
        """The operand.

        Raises:
            ValueError: when it is left out.
        """
        found = self.operand(index)
        if found is None:
            raise ValueError(f"input {index} is missing")
        return found

    def constant(self, index: int, what: str) -> NDArray[Any] | None:
        """The value of an operand that must be known while the file is read, None where it is left out.

        Raises:
            ValueError: when the operand is not a constant; `what` names it in the message.
        """
        found = self.operand(index)
        if found is None:
            return None
        if isinstance(found, tvm.ir.GenericConst):
            return np.asarray(found.value.numpy())
        if isinstance(found, relax.ShapeExpr):
            return np.array([int(value) for value in found.values], np.int64)
        name = self.names[index] if index < len(self.names) else "NAME"
        raise ValueError(f"the {what} depend on the network's inputs; fix them in the file, or --constant {name}=VALUE")

    def integers(self, name: str, default: tuple[int, ...]) -> tuple[int, ...]:
        """An attribute that is a list of integers."""
        return tuple(int(value) for value in self.attributes.get(name, default))

    def given_integers(self, name: str, index: int) -> tuple[int, ...] | None:
        """Integers that older operator sets give as attribute `name`, newer ones as an operand; None where left out.

        Raises:
            ValueError: when the operand is not a constant.
        """
        if name in self.attributes:
            given = self.attributes[name]
            return tuple(int(value) for value in (given if isinstance(given, list | tuple) else [given]))
        value = self.constant(index, name)
        return None if value is None else tuple(int(entry) for entry in value.reshape(-1))

    def element_type(self, name: str) -> str:
        """The element type that an attribute names, "" where it is left out or 0.

        Raises:
            ValueError: when tensors of that type are not supported.
        """
        given = int(self.attributes.get(name, TensorProto.UNDEFINED))
        if given == TensorProto.UNDEFINED:
            return ""
        if given in (TensorProto.STRING, TensorProto.COMPLEX64, TensorProto.COMPLEX128):
            raise ValueError(f"element type {TensorProto.DataType.Name(given).lower()} is not supported")
        return str(helper.tensor_dtype_to_np_dtype(given))

    def emit(self, expression: relax.Expr) -> relax.Expr:
        """The expression with its type worked out."""
        return self.builder.normalize(expression)


class Converter:
    """What the importer asks for a function that converts a node, of whatever version of the operator set."""

    def __init__(self, convert: Callable[[Node], relax.Expr]) -> None:
        self._convert = convert

    def get_converter(self, opset: int) -> Callable[..., relax.Expr]:
        """A function of a block builder, operands, attributes and the importer's tables."""

        def convert(builder: Any, operands: Any, attributes: Any, _tables: Any) -> relax.Expr:
            given = {name: _text(value) for name, value in attributes.items() if name != "tvm_custom"}
            custom = attributes.get("tvm_custom", {})
            outputs, names = custom.get("num_outputs", 1), tuple(custom.get("inputs", ()))
            conditional = bool(custom.get("conditional", False))
            return self._convert(Node(builder, tuple(operands), given, opset, outputs, names, conditional))

        return convert


def _text(value: Any) -> Any:
    return value.decode() if isinstance(value, bytes) else value


def shape_of(expression: relax.Expr) -> tuple[int, ...]:
    """The tensor's shape.

    Raises:
        ValueError: when it is not known while the file is read.
    """
    shape = expression.ty.shape
    if shape is None or not all(isinstance(size, tvm.tirx.IntImm) for size in shape):
        raise ValueError("the shape of an input depends on data")
    return tuple(int(size) for size in shape)


def dtype_of(expression: relax.Expr) -> str:
    """The tensor's element type."""
    return str(expression.ty.dtype)


def constant_of(expression: Any) -> NDArray[Any] | None:
    """The value of a constant, None of anything else."""
    return np.asarray(expression.value.numpy()) if isinstance(expression, tvm.ir.GenericConst) else None


def numpy_type(name: str) -> Any:
    """The numpy type of an element type's name."""
    return helper.tensor_dtype_to_np_dtype(TensorProto.BFLOAT16) if name == "bfloat16" else np.dtype(name)


def is_float(dtype: str) -> bool:
    """Whether an element type is a floating-point one."""
    return dtype.startswith(("float", "bfloat"))


def is_integer(dtype: str) -> bool:
    """Whether an element type is an integer, signed or not."""
    return dtype.startswith(("int", "uint"))


def attribute_value(attribute: AttributeProto) -> Any:
    """The value of a node's attribute; lists, empty ones too, as tuples."""
    value = helper.get_attribute_value(attribute)
    listed = (AttributeProto.INTS, AttributeProto.FLOATS, AttributeProto.STRINGS)
    return tuple(value) if attribute.type in listed else value
