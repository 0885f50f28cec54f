"""One ONNX node as its converter sees it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
from numpy.typing import NDArray
from tvm import relax

__all__ = ["Converter", "Node", "dtype_of", "shape_of"]


@dataclass(frozen=True)
class Node:
    """A node: its operands as Relax expressions (None where left out), its attributes, and where to emit to.

    `attributes` hold numbers, tuples of numbers and text; `opset` is the version of the default operator set; `outputs`
    the number of outputs the node names, left-out ones before the last included.
    """

    builder: relax.BlockBuilder
    operands: tuple[relax.Expr | None, ...]
    attributes: Mapping[str, Any]
    opset: int
    outputs: int

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
        raise ValueError(f"the {what} depend on the network's inputs; fix them in the file, or with --constant")

    def integers(self, name: str, default: tuple[int, ...]) -> tuple[int, ...]:
        """An attribute that is a list of integers."""
        return tuple(int(value) for value in self.attributes.get(name, default))

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
            outputs = attributes.get("tvm_custom", {}).get("num_outputs", 1)
            return self._convert(Node(builder, tuple(operands), given, opset, outputs))

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
