"""An ONNX node with its operands as Relax expressions, which is what converters get."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tvm
from numpy.typing import NDArray
from onnx import AttributeProto, TensorProto, helper
from tvm import relax

from kintune.core.dtypes import numpy_dtype
from kintune.models.emitter import Emitter
from kintune.models.expressions import dtype_of
from kintune.models.index_marks import mark_index

__all__ = ["Node", "attribute_value", "axis_of", "empty", "like"]


@dataclass(frozen=True)
class Node(Emitter):
    """A node: its operands as Relax expressions (None where left out), its attributes, and where to emit to.

    `attributes` hold numbers, tuples of numbers and text.  `opset` is the version of the default operator set.
    `outputs` is the number of outputs up to the last one that is named.  `names` are the ONNX names of the operands.
    An operand that is a sequence is a list of expressions.  A `conditional` node is in a branch of an If whose
    condition is not constant; both branches are computed.  `constants` names the operands that must be constants, by
    their numbers: those that the operator declares.
    """

    builder: relax.BlockBuilder
    operands: tuple[relax.Expr | None, ...]
    attributes: Mapping[str, Any]
    opset: int
    outputs: int
    names: tuple[str, ...] = ()
    conditional: bool = False
    constants: Mapping[int, str] = field(default_factory=dict)

    def operand(self, index: int) -> relax.Expr | None:
        """The operand; None where it is left out."""
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

    def constant(self, index: int) -> NDArray[Any] | None:
        """The value of an operand that the operator declares to be constant; None where it is left out.

        Raises:
            ValueError: when the operand is not a constant.
            KeyError: when the operator does not declare it.
        """
        what, found = self.constants[index], self.operand(index)
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
        value = self.constant(index)
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
        """The expression in normal form, with its type inferred."""
        return self.builder.normalize(expression)

    def index(self, index: Any, sizes: Sequence[int], axis: int, *, negative: bool = True) -> Any:
        """Indices of axes of these sizes from `axis` on, marked by `mark_index`."""
        return mark_index(self.builder, index, sizes, axis, negative=negative, checked=not self.conditional)


def like(value: float, tensor: relax.Expr) -> relax.Expr:
    """A scalar of the tensor's element type."""
    return relax.const(np.array(value).astype(numpy_dtype(dtype_of(tensor))), dtype_of(tensor))


def empty(shape: Sequence[int], dtype: str) -> relax.Expr:
    """A constant of zeros, of any shape."""
    return relax.const(np.zeros(shape, numpy_dtype(dtype)), dtype)


def axis_of(axis: int, rank: int) -> int:
    """An axis that may count from the end, counted from the start.

    Raises:
        ValueError: when a tensor of `rank` dimensions has no such axis.
    """
    if not -rank <= axis < rank:
        raise ValueError(f"axis {axis} is out of range for a tensor of {rank} dimensions")
    return axis % rank


def attribute_value(attribute: AttributeProto) -> Any:
    """The value of a node's attribute; lists, empty ones too, as tuples, and text as such."""
    value = helper.get_attribute_value(attribute)
    if attribute.type == AttributeProto.STRING:
        return value.decode()
    listed = (AttributeProto.INTS, AttributeProto.FLOATS, AttributeProto.STRINGS)
    return tuple(value) if attribute.type in listed else value
