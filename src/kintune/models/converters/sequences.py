"""Sequences, which are lists of expressions during import; none are left in the imported module."""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import relax

from kintune.models.converters.node import Convert, Node, empty
from kintune.models.expressions import dtype_of, shape_of

__all__ = ["CONVERTERS"]


def _sequence(node: Node) -> list[Any]:
    given: Any = node.required(0)
    if not isinstance(given, list):
        raise ValueError("its sequence is not known while the file is read")
    return given


def _position(node: Node, index: int, default: int, most: int) -> int:
    """A position in a sequence, counted from its start."""
    given = node.constant(index, "position")
    position = default if given is None else int(given.reshape(-1)[0])
    position = position + most if position < 0 else position
    if not 0 <= position <= most:
        raise ValueError(f"position {position} is outside of the sequence")
    return position


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
    given = node.constant(1, "sizes of parts")
    if given is not None and given.ndim:
        sizes = [int(size) for size in given]
    else:
        most = 1 if given is None else int(given)
        sizes = [min(most, shape[axis] - start) for start in range(0, shape[axis], most)]
    if sum(sizes) != shape[axis] or min(sizes, default=0) < 0:
        raise ValueError(f"parts of {sizes} are not the {shape[axis]} elements of axis {axis}")
    ends = np.cumsum(sizes).tolist()
    if len(sizes) == 1:
        parts = [data]
    elif 0 in sizes:
        parts = [_part(node, data, axis, end - size, end) for size, end in zip(sizes, ends, strict=True)]
    else:
        whole = node.builder.emit(relax.op.split(data, ends[:-1], axis))
        parts = [node.emit(relax.TupleGetItem(whole, i)) for i in range(len(sizes))]
    if given is None and not node.attributes.get("keepdims", 1):
        parts = [node.emit(relax.op.squeeze(part, [axis])) for part in parts]
    return parts


def _part(node: Node, data: Any, axis: int, start: int, end: int) -> Any:
    """The elements of an axis from `start` to before `end`; a constant where there are none."""
    if start < end:
        return node.emit(relax.op.strided_slice(data, [axis], [start], [end], [1]))
    shape = [0 if i == axis else size for i, size in enumerate(shape_of(data))]
    return empty(shape, dtype_of(data))


CONVERTERS: dict[str, Convert] = {
    "ConcatFromSequence": _concat,
    "SequenceAt": _at,
    "SequenceConstruct": _construct,
    "SequenceEmpty": _construct,
    "SequenceErase": _erase,
    "SequenceInsert": _insert,
    "SequenceLength": _length,
    "SplitToSequence": _split,
}
"""Operator -> what converts it."""
