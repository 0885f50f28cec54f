"""Operators that read and change shapes, and that slice, pad and concatenate tensors.  All sizes are constants."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from onnx import numpy_helper
from tvm import relax

from kintune.core.dtypes import numpy_dtype
from kintune.models.converters.node import Node, axis_of, empty
from kintune.models.converters.registration import OF_THE_DATA, OnnxOperator
from kintune.models.emitter import Emitter
from kintune.models.expressions import constant_of, dtype_of, is_float, shape_of

__all__ = ["OPERATORS", "padded"]

_CONSTANT = "constant"
_MIRRORING = frozenset({"edge", "reflect", "wrap"})
"""Modes of padding with the tensor's own elements; `numpy.pad`, which has the same names, computes their indices."""


def _known(node: Node, name: str, index: int) -> tuple[int, ...]:
    """Integers of an attribute or operand; raises a `ValueError` when they are missing."""
    given = node.given_integers(name, index)
    if given is None:
        raise ValueError(f"it has no {name}")
    return given


def _shape(node: Node) -> relax.Expr:
    shape = shape_of(node.required(0))
    end = node.attributes.get("end")
    return relax.const(np.array(shape[int(node.attributes.get("start", 0)) : end], np.int64), "int64")


def _size(node: Node) -> relax.Expr:
    return relax.const(np.int64(math.prod(shape_of(node.required(0)))), "int64")


def _reshape(node: Node) -> relax.Expr:
    data = node.required(0)
    shape, wanted = shape_of(data), list(_known(node, "shape", 1))
    if not node.attributes.get("allowzero", 0):
        if any(size == 0 and i >= len(shape) for i, size in enumerate(wanted)):
            raise ValueError(f"shape {wanted} keeps a dimension that a tensor of {len(shape)} does not have")
        wanted = [shape[i] if size == 0 else size for i, size in enumerate(wanted)]
    if wanted.count(-1) == 1:
        rest = -math.prod(wanted)
        wanted[wanted.index(-1)] = math.prod(shape) // rest if rest else 0
    if min(wanted, default=0) < 0 or math.prod(wanted) != math.prod(shape):
        raise ValueError(f"a tensor of shape {list(shape)} cannot have shape {wanted}")
    return data if tuple(wanted) == shape else relax.op.reshape(data, wanted)


def _flatten(node: Node) -> relax.Expr:
    data = node.required(0)
    shape = shape_of(data)
    axis = int(node.attributes.get("axis", 1))
    if not -len(shape) <= axis <= len(shape):
        raise ValueError(f"axis {axis} is out of range for a tensor of {len(shape)} dimensions")
    axis = axis + len(shape) if axis < 0 else axis
    return relax.op.reshape(data, [math.prod(shape[:axis]), math.prod(shape[axis:])])


def _squeeze(node: Node) -> relax.Expr:
    data = node.required(0)
    shape = shape_of(data)
    given = node.given_integers("axes", 1)
    if given:
        axes = sorted({axis_of(axis, len(shape)) for axis in given})
    else:
        axes = [i for i, size in enumerate(shape) if size == 1]
    if any(shape[axis] != 1 for axis in axes):
        raise ValueError(f"axes {axes} of shape {list(shape)} do not all have one element")
    return relax.op.squeeze(data, axes) if axes else data


def _unsqueeze(node: Node) -> relax.Expr:
    data = node.required(0)
    given = _known(node, "axes", 1)
    axes = sorted({axis_of(axis, len(shape_of(data)) + len(given)) for axis in given})
    if len(axes) != len(given):
        raise ValueError(f"axes {list(given)} are not all different")
    return relax.op.expand_dims(data, axes) if axes else data


def _transpose(node: Node) -> relax.Expr:
    data = node.required(0)
    rank = len(shape_of(data))
    order = node.integers("perm", tuple(reversed(range(rank))))
    if sorted(order) != list(range(rank)):
        raise ValueError(f"perm {list(order)} is no order of {rank} dimensions")
    return data if order == tuple(range(rank)) else relax.op.permute_dims(data, list(order))


def _concat(node: Node) -> relax.Expr:
    parts = [part for part in node.operands if part is not None]
    axis = axis_of(int(node.attributes.get("axis", 1 if node.opset < 4 else 0)), len(shape_of(parts[0])))
    filled = [part for part in parts if 0 not in shape_of(part)]
    if not filled:
        shape = list(shape_of(parts[0]))
        shape[axis] = sum(shape_of(part)[axis] for part in parts)
        return empty(shape, dtype_of(parts[0]))
    return filled[0] if len(filled) == 1 else relax.op.concat(filled, axis)


def _split(node: Node) -> relax.Expr:
    data = node.required(0)
    shape = shape_of(data)
    axis = axis_of(int(node.attributes.get("axis", 0)), len(shape))
    given = node.given_integers("split", 1)
    if given is None:
        count = int(node.attributes.get("num_outputs", node.outputs))
        most = -(-shape[axis] // count)
        given = tuple(min(most, shape[axis] - most * i) for i in range(count))
    if sum(given) != shape[axis] or min(given) < 0:
        raise ValueError(f"parts of {list(given)} are not the {shape[axis]} elements of axis {axis}")
    ends = np.cumsum(given).tolist()
    if len(given) == 1:
        return relax.Tuple([data])
    if all(given):
        return relax.op.split(data, ends[:-1], axis)
    return relax.Tuple([_cut(data, {axis: range(end - size, end)}) for size, end in zip(given, ends, strict=True)])


def _slice(node: Node) -> relax.Expr:
    data = node.required(0)
    shape = shape_of(data)
    starts, ends = _known(node, "starts", 1), _known(node, "ends", 2)
    axes, steps = node.given_integers("axes", 3), node.given_integers("steps", 4)
    axes = tuple(range(len(starts))) if axes is None else axes
    steps = (1,) * len(starts) if steps is None else steps
    if not len(starts) == len(ends) == len(axes) == len(steps):
        raise ValueError("its starts, ends, axes and steps are not as many as each other")
    if 0 in steps:
        raise ValueError("a step is 0")
    kept = {}
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        axis = axis_of(axis, len(shape))
        kept[axis] = range(*_bounds(start, end, step, shape[axis]), step)
    return _cut(data, kept)


def _bounds(start: int, end: int, step: int, size: int) -> tuple[int, int]:
    """Start and end of a slice as bounds for `range`, clamped to the axis; the end is -1 to include 0 backwards."""
    start, end = (bound + size if bound < 0 else bound for bound in (start, end))
    if step > 0:
        return min(max(start, 0), size), min(max(end, 0), size)
    return min(max(start, 0), size - 1), min(max(end, -1), size - 1)


def _cut(data: relax.Expr, kept: dict[int, range]) -> relax.Expr:
    """The elements of `data` at these positions of some axes."""
    shape = list(shape_of(data))
    if any(len(positions) == 0 for positions in kept.values()):
        return empty([len(kept.get(i, range(size))) for i, size in enumerate(shape)], dtype_of(data))
    kept = {axis: positions for axis, positions in kept.items() if positions != range(shape[axis])}
    if not kept:
        return data
    begins = [positions[0] for positions in kept.values()]
    # To include element 0 backwards, the end must lie before it; -1 would mean the last element.
    ends = [
        positions[-1] + 1 if positions.step > 0 else (positions[-1] - 1 if positions[-1] else -shape[axis] - 1)
        for axis, positions in kept.items()
    ]
    steps = [positions.step for positions in kept.values()]
    return relax.op.strided_slice(data, list(kept), begins, ends, steps, assume_inbound=False)


def _expand(node: Node) -> relax.Expr:
    data = node.required(0)
    shape = np.broadcast_shapes(shape_of(data), _known(node, "shape", 1))
    return data if shape == shape_of(data) else relax.op.broadcast_to(data, list(shape))


def _tile_axis(node: Node) -> relax.Expr:
    count, axis = _known(node, "tiles", 1)[0], _known(node, "axis", 2)[0]
    return _tiled(node.required(0), [count if i == axis else 1 for i in range(len(shape_of(node.required(0))))])


def _tile(node: Node) -> relax.Expr:
    return _tiled(node.required(0), _known(node, "repeats", 1))


def _tiled(data: relax.Expr, repeats: Sequence[int]) -> relax.Expr:
    shape = shape_of(data)
    if len(repeats) != len(shape):
        raise ValueError(f"{len(repeats)} repeats are not one for each of {len(shape)} dimensions")
    if 0 in repeats:
        return empty([size * times for size, times in zip(shape, repeats, strict=True)], dtype_of(data))
    return data if set(repeats) <= {1} else relax.op.tile(data, list(repeats))


def _eye_like(node: Node) -> relax.Expr:
    data = node.required(0)
    dtype = node.element_type("dtype") or dtype_of(data)
    rows, columns = shape_of(data)
    return relax.const(np.eye(rows, columns, int(node.attributes.get("k", 0))).astype(numpy_dtype(dtype)), dtype)


def _trilu(node: Node) -> relax.Expr:
    data = node.required(0)
    given = node.constant(1)
    rows, columns = shape_of(data)[-2:]
    offset = int(given.reshape(-1)[0]) if given is not None else 0
    part = np.triu if node.attributes.get("upper", 1) else np.tril
    mask = relax.const(part(np.ones((rows, columns), np.bool_), offset), "bool")
    return relax.op.where(mask, data, relax.const(np.zeros((), numpy_dtype(dtype_of(data))), dtype_of(data)))


def _range(node: Node) -> relax.Expr:
    start, limit, step = (node.constant(index) for index in range(3))
    if start is None or limit is None or step is None:
        raise ValueError("it has no start, limit and step")
    values = np.arange(start.item(), limit.item(), step.item()).astype(start.dtype)
    return relax.const(values, str(start.dtype))


def _constant_of_shape(node: Node) -> relax.Expr:
    shape = _known(node, "shape", 0)
    value = node.attributes.get("value")
    values = numpy_helper.to_array(value) if value is not None else np.zeros(1, np.float32)
    return relax.const(np.full(shape, values.reshape(-1)[0], values.dtype), str(values.dtype))


def _compress(node: Node) -> relax.Expr:
    data, condition = node.required(0), node.constant(1)
    if condition is None:
        raise ValueError("it has no condition")
    taken = np.flatnonzero(condition).astype(np.int64)
    axis = node.attributes.get("axis")
    if axis is None:
        data = node.emit(relax.op.reshape(data, [-1]))
    axis = axis_of(int(axis or 0), len(shape_of(data)))
    taken = taken[taken < shape_of(data)[axis]]  # a longer condition than the axis is cut
    if not taken.size:
        return empty([0 if i == axis else size for i, size in enumerate(shape_of(data))], dtype_of(data))
    return relax.op.take(data, relax.const(taken, "int64"), axis)


def _identity(node: Node) -> Any:
    return node.required(0)


def _constant(node: Node) -> relax.Expr:
    values = numpy_helper.to_array(node.attributes["value"])
    return relax.const(values, str(values.dtype))


def _depth_to_space(node: Node) -> relax.Expr:
    data = node.required(0)
    batch, channels, height, width = shape_of(data)
    block = int(node.attributes["blocksize"])
    if channels % (block * block):
        raise ValueError(f"{channels} channels are not a multiple of blocks of {block * block}")
    rest = channels // (block * block)
    if node.attributes.get("mode", "DCR") == "DCR":
        split, order = [batch, block, block, rest, height, width], [0, 3, 4, 1, 5, 2]
    else:
        split, order = [batch, rest, block, block, height, width], [0, 1, 4, 2, 5, 3]
    moved = node.emit(relax.op.permute_dims(node.emit(relax.op.reshape(data, split)), order))
    return relax.op.reshape(moved, [batch, rest, height * block, width * block])


def _space_to_depth(node: Node) -> relax.Expr:
    data = node.required(0)
    batch, channels, height, width = shape_of(data)
    block = int(node.attributes["blocksize"])
    if height % block or width % block:
        raise ValueError(f"a picture of {height}x{width} cannot be cut into blocks of {block}")
    split = [batch, channels, height // block, block, width // block, block]
    moved = node.emit(relax.op.permute_dims(node.emit(relax.op.reshape(data, split)), [0, 3, 5, 1, 2, 4]))
    return relax.op.reshape(moved, [batch, channels * block * block, height // block, width // block])


def _where(node: Node) -> relax.Expr:
    condition, taken, other = node.required(0), node.required(1), node.required(2)
    known = constant_of(condition)
    if known is not None and known.size and (known.all() or not known.any()):
        shape = np.broadcast_shapes(*map(shape_of, (condition, taken, other)))
        chosen = taken if known.all() else other
        return chosen if shape_of(chosen) == shape else relax.op.broadcast_to(chosen, list(shape))
    return relax.op.where(condition, taken, other)


def padded(t: Emitter, data: Any, amounts: Sequence[tuple[int, int]], mode: str = _CONSTANT, fill: Any = 0) -> Any:
    """`data` with elements added before and after each axis; negative amounts remove some.

    `fill` is a number, or a tensor of one element.  Modes are those of `numpy.pad`.
    """
    for axis, (before, after) in enumerate(amounts):
        data = t.slice(data, axis, max(-before, 0), shape_of(data)[axis] - max(-after, 0))
    added, dtype = [(max(before, 0), max(after, 0)) for before, after in amounts], dtype_of(data)
    if mode == _CONSTANT and dtype != "bool" and not isinstance(fill, relax.Expr) and math.isfinite(fill):
        widths, number = [amount for pair in added for amount in pair], float if is_float(dtype) else int
        return t.emit(relax.op.nn.pad(data, widths, _CONSTANT, number(fill))) if any(widths) else data
    fill = t.reshape(fill, ()) if isinstance(fill, relax.Expr) else t.const(fill, dtype)
    for axis, pair in enumerate(added):
        shape = shape_of(data)
        if mode == _CONSTANT:
            parts = [t.expand(fill, [*shape[:axis], n, *shape[axis + 1 :]]) if n else None for n in pair]
            data = t.concat([part for part in (parts[0], data, parts[1]) if part is not None], axis)
        elif any(pair):
            data = t.take(data, np.pad(np.arange(shape[axis]), pair, mode=mode), axis)  # type: ignore[call-overload]
    return data


def _pad(node: Node) -> relax.Expr:
    data, fill = node.required(0), node.operand(2)
    mode = str(node.attributes.get("mode", _CONSTANT))
    if mode != _CONSTANT and mode not in _MIRRORING:
        raise ValueError(f"mode {mode!r} is not known")
    known = constant_of(fill)
    number = node.attributes.get("value", 0) if fill is None else fill if known is None else known.reshape(-1)[0]
    return padded(node, data, _amounts(node, len(shape_of(data))), mode, number)


def _center_crop_pad(node: Node) -> relax.Expr:
    """Crops each axis to the elements in its middle, or pads it with zeros on both sides, to the wanted size."""
    data = node.required(0)
    shape, wanted = shape_of(data), _known(node, "shape", 1)
    axes = [axis_of(axis, len(shape)) for axis in node.integers("axes", tuple(range(len(shape))))]
    if len(axes) != len(wanted) or min(wanted, default=0) < 0:
        raise ValueError(f"shape {list(wanted)} has no size for each of {len(axes)} axes")
    amounts = [(0, 0)] * len(shape)
    for axis, size in zip(axes, wanted, strict=True):
        before = int((size - shape[axis]) / 2)
        amounts[axis] = (before, size - shape[axis] - before)
    return padded(node, data, amounts)


def _amounts(node: Node, rank: int) -> list[tuple[int, int]]:
    """How many elements are added before and after each axis; negative numbers of elements are removed."""
    name = "paddings" if "paddings" in node.attributes else "pads"
    given = node.given_integers(name, 1)
    if given is None:
        raise ValueError("it has no pads")
    axes = node.given_integers("axes", 3)
    chosen = range(rank) if axes is None else [axis % rank for axis in axes]
    if len(given) != 2 * len(chosen):
        raise ValueError(f"{len(given)} pads are not two for each of {len(chosen)} axes")
    amounts = [(0, 0)] * rank
    for position, axis in enumerate(chosen):
        amounts[axis] = (int(given[position]), int(given[position + len(chosen)]))
    return amounts


OPERATORS = (
    OnnxOperator("CenterCropPad", _center_crop_pad, constants={1: "shape"}),
    OnnxOperator("Compress", _compress, constants={1: "condition"}),
    OnnxOperator("Concat", _concat),
    OnnxOperator("Constant", _constant),
    OnnxOperator("ConstantOfShape", _constant_of_shape, constants={0: "shape"}),
    OnnxOperator("DepthToSpace", _depth_to_space, copies=True),
    OnnxOperator("Expand", _expand, constants={1: "shape"}, copies=True),
    OnnxOperator("EyeLike", _eye_like),
    OnnxOperator("Flatten", _flatten, copies=True),
    OnnxOperator("Identity", _identity, copies=True),
    OnnxOperator("NonMaxSuppression", OF_THE_DATA),
    OnnxOperator("NonZero", OF_THE_DATA, constants={0: "elements"}),
    OnnxOperator("Pad", _pad, constants={1: "pads", 3: "axes"}),
    OnnxOperator("Range", _range, constants=dict.fromkeys(range(3), "bounds")),
    OnnxOperator("Reshape", _reshape, constants={1: "shape"}, copies=True),
    OnnxOperator("Shape", _shape),
    OnnxOperator("Size", _size),
    OnnxOperator("Slice", _slice, constants={1: "starts", 2: "ends", 3: "axes", 4: "steps"}, copies=True),
    OnnxOperator("SpaceToDepth", _space_to_depth, copies=True),
    OnnxOperator("Split", _split, constants={1: "split"}, copies=True),
    OnnxOperator("Squeeze", _squeeze, constants={1: "axes"}, copies=True),
    OnnxOperator("Tile", _tile_axis, constants={1: "tiles", 2: "axis"}, copies=True),
    OnnxOperator("Tile", _tile, since=6, constants={1: "repeats"}, copies=True),
    OnnxOperator("Transpose", _transpose, copies=True),
    OnnxOperator("Trilu", _trilu, constants={1: "diagonal"}),
    OnnxOperator("Unique", OF_THE_DATA, constants={0: "elements"}),
    OnnxOperator("Unsqueeze", _unsqueeze, constants={1: "axes"}, copies=True),
    OnnxOperator("Where", _where),
)
