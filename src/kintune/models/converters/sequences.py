"""Sequences, which are lists of expressions during import; none are left in the imported module."""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import relax

from kintune.models.converters.node import Node, empty
from kintune.models.converters.registration import OnnxOperator
from kintune.models.expressions import dtype_of, shape_of

__all__ = ["OPERATORS"]


def _sequence(node: Node) -> list[Any]:
    given: Any = node.required(0)
    if not isinstance(given, list):
        raise ValueError("its sequence is not known while the file is read")
    return given


def _position(node: Node, index: int, default: int, most: int) -> int:
    """A position in a sequence, counted from its start."""
    given = node.constant(index)
    position = default if given is None else int(given.reshape(-1)[0])
    position = position + most if position < 0 else position
    if not 0 <= position <= most:
        raise ValueError(f"position {position} is outside of the sequence")
    return position


class _Nothing:
    """An optional without a value."""


def _optional(node: Node) -> Any:
    given = node.operand(0)
    return _Nothing() if given is None else given


def _has_element(node: Node) -> Any:
    given: Any = node.operand(0)
    return relax.const(given is not None and not isinstance(given, _Nothing), "bool")


def _element(node: Node) -> Any:
    given: Any = node.required(0)
    if isinstance(given, _Nothing):
        raise ValueError("its optional has no value")
    return given


def _construct(node: Node) -> Any:
    return list(node.operands)


def _insert(node: Node) -> Any:
    sequence = list(_sequence(node))
    sequence.insert(_position(node, 2, len(sequence), len(sequence)), node.required(1))
    return sequence


def _erase(node: Node) -> Any:
    sequence = list(_sequence(node))
    del sequence[_position(node, 1, len(sequence) - 1, len(sequence))]
    return sequence


def _at(node: Node) -> Any:
    sequence = _sequence(node)
    return sequence[_position(node, 1, 0, len(sequence))]


def _length(node: Node) -> Any:
    return relax.const(np.int64(len(_sequence(node))), "int64")


def _concat(node: Node) -> Any:
    parts = _sequence(node)
    axis = int(node.attributes["axis"])
    if node.attributes.get("new_axis", 0):
        parts = [node.emit(relax.op.expand_dims(part, axis)) for part in parts]
    return parts[0] if len(parts) == 1 else relax.op.concat(parts, axis % len(shape_of(parts[0])))


def _split(node: Node) -> Any:
    data = node.required(0)
    shape = shape_of(data)
    axis = int(node.attributes.get("axis", 0)) % len(shape)
    given = node.constant(1)
    if given is not None and given.ndim:
        sizes = [int(size) for size in given]
    else:
        most = 1 if given is None else int(given)
        sizes = [min(most, shape[axis] - start) for start in range(0, shape[axis], most)]
    if sum(sizes) != shape[axis] or min(sizes, default=0) < 0:
        raise ValueError(f"parts of {sizes} are not the {shape[axis]} elements of axis {axis}")
    ends = np.cumsum(sizes).tolist()
    parts = [_part(node, data, axis, end - size, end) for size, end in zip(sizes, ends, strict=True)]
    if given is None and not node.attributes.get("keepdims", 1):
        parts = [node.emit(relax.op.squeeze(part, [axis])) for part in parts]
    return parts


def _part(node: Node, data: Any, axis: int, start: int, end: int) -> Any:
    """The elements of an axis from `start` to before `end`; a constant where there are none."""
    if start < end:
        return node.slice(data, axis, start, end)
    return empty([0 if i == axis else size for i, size in enumerate(shape_of(data))], dtype_of(data))


OPERATORS = (
    OnnxOperator("ConcatFromSequence", _concat),
    OnnxOperator("Optional", _optional),
    OnnxOperator("OptionalGetElement", _element),
    OnnxOperator("OptionalHasElement", _has_element),
    OnnxOperator("SequenceAt", _at, constants={1: "position"}),
    OnnxOperator("SequenceConstruct", _construct),
    OnnxOperator("SequenceEmpty", _construct),
    OnnxOperator("SequenceErase", _erase, constants={1: "position"}),
    OnnxOperator("SequenceInsert", _insert, constants={2: "position"}),
    OnnxOperator("SequenceLength", _length),
    OnnxOperator("SplitToSequence", _split, constants={1: "sizes of parts"}),
)
