"""Rules for operators whose schema does not say which shapes, values or attributes are valid.

A rule draws the operands and attributes of one node and appends it.  Operators without a rule follow their schema.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np
from onnx import TensorProto

from kintune_lab.fuzz.bodies import draw_if, draw_loop, draw_scan
from kintune_lab.fuzz.drawing import Attributes, Drawer, NoSuchValue
from kintune_lab.fuzz.evaluation import MICROSOFT
from kintune_lab.fuzz.recurrent import draw_recurrent
from kintune_lab.fuzz.values import FLOATS, INTEGERS, Role

__all__ = ["ATTRIBUTES", "OTHER_DOMAINS", "RULES", "SHARES"]

Rule: TypeAlias = "Callable[[Drawer, str], object]"

_NUMBERS = (*FLOATS, *INTEGERS)
_ALL = (*_NUMBERS, "bool")
_BYTES = ("int8", "uint8")
_POSITIVE = Role(0.05, 2.0)
_SCALE = Role(0.004, 0.1)


# Attributes whose values the schema does not list; by operator and name, or by name.

_TYPES = [
    *(TensorProto.FLOAT, TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.DOUBLE, TensorProto.INT32),
    *(TensorProto.INT64, TensorProto.UINT8, TensorProto.INT8, TensorProto.BOOL, TensorProto.UINT32),
]
_FLOAT_TYPES = [TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.DOUBLE]

ATTRIBUTES: Mapping[tuple[str, str], Callable[[Drawer, int], Any]] = {
    ("", "axis"): lambda d, rank: d.axis(rank),
    ("", "axes"): lambda d, rank: d.axes(rank),
    ("", "perm"): lambda d, rank: [int(at) for at in d.rng.permutation(rank)],
    ("", "to"): lambda d, rank: d.choice(_TYPES),
    ("", "dtype"): lambda d, rank: d.choice(_TYPES),
    ("", "output_datatype"): lambda d, rank: d.choice(_FLOAT_TYPES),
    ("", "stash_type"): lambda d, rank: TensorProto.FLOAT,
    ("", "p"): lambda d, rank: d.integer(1, 2),
    ("", "start"): lambda d, rank: d.integer(-rank, rank),
    ("", "end"): lambda d, rank: d.integer(-rank, rank),
    ("", "direction"): lambda d, rank: d.choice(("LEFT", "RIGHT")),
    ("", "approximate"): lambda d, rank: d.choice(("none", "tanh")),
    ("", "reduction"): lambda d, rank: d.choice(("none", "sum", "mean")),
    ("", "batch_axis"): lambda d, rank: 0,
    ("", "time_axis"): lambda d, rank: 1,
    ("", "round_mode"): lambda d, rank: "up",
    ("", "k"): lambda d, rank: d.integer(-3, 3),
    ("Transpose", "perm"): lambda d, rank: [int(at) for at in d.rng.permutation(rank)],
    ("Flatten", "axis"): lambda d, rank: d.integer(-rank if d.opset >= 11 else 0, rank),
    ("LRN", "size"): lambda d, rank: d.choice((1, 3, 5)),
    ("Shrink", "lambd"): lambda d, rank: 0.5,
    ("BitCast", "to"): lambda d, rank: d.choice(_TYPES),
}


def _reduce(d: Drawer, operator: str) -> None:
    first = 13 if operator == "ReduceSum" else 18
    dtypes: tuple[str, ...] = (
        ("int32", "int64", *FLOATS) if operator not in ("ReduceLogSumExp", "ReduceLogSum") else FLOATS
    )
    if operator in ("ReduceMax", "ReduceMin"):
        dtypes += (*_BYTES, "bool")
    x = d.tensor(dtypes, rank=(1, 2, 3, 4, 5))
    attributes: Attributes = {} if d.chance(0.4) else {"keepdims": d.integer(0, 1)}
    inputs = [x]
    if d.chance(0.85):
        axes = d.axes(d.array(x).ndim)
        if d.opset >= first:
            inputs.append(d.constant(axes))
        else:
            attributes["axes"] = axes
    elif d.opset >= first and d.chance(0.3):
        attributes["noop_with_empty_axes"] = 1
    d.node(operator, inputs, attributes)


def _arg_extreme(d: Drawer, operator: str) -> None:
    x = d.tensor((*FLOATS, "int32", "int8", "uint8"), rank=(1, 2, 3, 4))
    attributes: Attributes = {"axis": d.axis(d.array(x).ndim), "keepdims": d.integer(0, 1)}
    if d.opset >= 12 and d.chance(0.3):
        attributes["select_last_index"] = 1
    d.node(operator, [x], attributes)


# Windows: convolutions and pools.


def _window(d: Drawer, spatial: tuple[int, ...], *, dilated: bool = True) -> tuple[tuple[int, ...], Attributes]:
    """Extents of a window that fits into these extents, and where it is placed."""
    dilations = [d.choice((1, 1, 1, 2)) if dilated else 1 for _ in spatial]
    kernel = tuple(
        int(d.choice([k for k in (1, 2, 3, 3, 5) if (k - 1) * by < extent] or [1]))
        for extent, by in zip(spatial, dilations, strict=True)
    )
    attributes: Attributes = {}
    if any(by > 1 for by in dilations):
        attributes["dilations"] = dilations
    if d.chance(0.7):
        attributes["strides"] = [d.choice((1, 1, 2, 3)) for _ in spatial]
    if d.chance(0.25):
        attributes["auto_pad"] = d.choice(("SAME_UPPER", "SAME_LOWER", "VALID"))
    elif d.chance(0.6):
        reach = [by * (k - 1) for k, by in zip(kernel, dilations, strict=True)]
        attributes["pads"] = [d.integer(0, least) for least in (*reach, *reach)]
    return kernel, attributes


def _image(d: Drawer, dtypes: tuple[str, ...] = FLOATS) -> str:
    return d.tensor(dtypes, rank=(3, 4, 4, 4, 5), where=lambda v: v.size > 0)


def _groups(d: Drawer, channels: int) -> tuple[int, int]:
    """A number of groups, and of output channels."""
    group = int(d.choice([1, 1, 1, channels, *(g for g in (2, 4) if channels % g == 0)]))
    return group, group * int(d.choice((1, 1, 2, 3, 8)))


def _conv(d: Drawer, operator: str) -> None:
    x = _image(d)
    _, channels, *spatial = d.array(x).shape
    kernel, attributes = _window(d, tuple(spatial))
    group, features = _groups(d, channels)
    inputs = [x, d.tensor((d.dtype(x),), shape=(features, channels // group, *kernel))]
    if d.chance(0.5):
        inputs.append(d.tensor((d.dtype(x),), shape=(features,)))
    if d.chance(0.5):
        attributes["kernel_shape"] = kernel
    d.node(operator, inputs, attributes | {"group": group})


def _conv_transpose(d: Drawer, operator: str) -> None:
    x = _image(d)
    _, channels, *spatial = d.array(x).shape
    kernel, attributes = _window(d, tuple(spatial))
    group = int(d.choice([1, 1, *(g for g in (2, 4) if channels % g == 0)]))
    features = int(d.choice((1, 2, 3, 8)))
    inputs = [x, d.tensor((d.dtype(x),), shape=(channels, features, *kernel))]
    if d.chance(0.5):
        inputs.append(d.tensor((d.dtype(x),), shape=(features * group,)))
    if d.chance(0.3) and "strides" in attributes:
        attributes["output_padding"] = [d.integer(0, stride - 1) for stride in attributes["strides"]]
    d.node(operator, inputs, attributes | {"group": group})


def _pool(d: Drawer, operator: str) -> None:
    x = _image(d, (*FLOATS, *_BYTES) if operator == "MaxPool" and d.opset >= 12 else FLOATS)
    dilated = d.opset >= {"MaxPool": 10, "AveragePool": 19, "LpPool": 18}[operator]
    kernel, attributes = _window(d, d.array(x).shape[2:], dilated=dilated)
    if d.chance(0.3) and d.opset >= {"LpPool": 18}.get(operator, 10):
        attributes["ceil_mode"] = 1
    if operator == "AveragePool" and d.chance(0.5):
        attributes["count_include_pad"] = d.integer(0, 1)
    if operator == "LpPool" and d.chance(0.5):
        attributes["p"] = d.integer(1, 3)
    outputs = 1
    if operator == "MaxPool" and d.opset >= 8 and d.chance(0.2):
        outputs = 2
        attributes["storage_order"] = d.integer(0, 1)
    d.node(operator, [x], attributes | {"kernel_shape": kernel}, outputs)


def _max_unpool(d: Drawer, operator: str) -> None:
    x = d.tensor(("float32",), rank=4)
    kernel = (2, 2)
    pooled = d.node("MaxPool", [x], {"kernel_shape": kernel, "strides": kernel}, 2)
    d.node(operator, pooled, {"kernel_shape": kernel, "strides": kernel})


def _deform_conv(d: Drawer, operator: str) -> None:
    x = d.tensor(("float32", "float64"), rank=4)
    batch, channels, height, width = d.array(x).shape
    kernel = (min(2, height), min(2, width))
    out = (height - kernel[0] + 1, width - kernel[1] + 1)
    dtype = (d.dtype(x),)
    weight = d.tensor(dtype, shape=(2, channels, *kernel))
    offset = d.tensor(dtype, shape=(batch, 2 * math.prod(kernel), *out))
    d.node(operator, [x, weight, offset], {"kernel_shape": kernel})


def _roi(d: Drawer, operator: str) -> None:
    x = d.tensor(("float32", "float64") if operator == "RoiAlign" else ("float32",), rank=4)
    batch = d.array(x).shape[0]
    boxes = d.integer(1, 4)
    rois = d.leaf(d.dtype(x), (boxes, 4), Role(0, 6, sorted_=True))
    if operator == "RoiAlign":
        attributes: Attributes = {"output_height": d.integer(1, 3), "output_width": d.integer(1, 3)}
        attributes |= {"sampling_ratio": d.integer(0, 2), "spatial_scale": d.choice((1.0, 0.5))}
        attributes["mode"] = d.choice(("avg", "max"))
        if d.opset >= 16:
            attributes["coordinate_transformation_mode"] = d.choice(("half_pixel", "output_half_pixel"))
        d.node(operator, [x, rois, d.indices((boxes,), batch, "int64", negative=False)], attributes)
        return
    with_batch = np.concatenate([np.zeros((boxes, 1), np.float32), d.array(rois)], axis=1)
    d.node(operator, [x, d.constant(with_batch, "float32")], {"pooled_shape": [d.integer(1, 3), d.integer(1, 3)]})


# Products.


def _product_shapes(d: Drawer, dtypes: tuple[str, ...], other: tuple[str, ...] = ()) -> tuple[str, str]:
    """Two operands of a matrix product."""
    a = d.tensor(dtypes, rank=(1, 2, 2, 3, 3, 4))
    *batch, depth = d.array(a).shape
    columns = d.extent()
    b_types = other or (d.dtype(a),)
    match d.integer(0, 3) if len(batch) > 1 else d.integer(1, 3):
        case 0:
            b = d.tensor(b_types, shape=(*d.broadcastable(tuple(batch[:-1])), depth, columns))
        case 1:
            b = d.tensor(b_types, rank=(1, 2), where=lambda v: v.shape[0] == depth)
        case _:
            b = d.tensor(b_types, shape=(depth, columns))
    return a, b


def _matmul(d: Drawer, operator: str) -> None:
    d.node(operator, _product_shapes(d, (*FLOATS, "int32", "int64") if d.opset >= 9 else FLOATS), {})


def _gemm(d: Drawer, operator: str) -> None:
    a = d.tensor(("float32", "float32", "float64", "float16"), rank=2)
    attributes: Attributes = {"transA": d.integer(0, 1), "transB": d.integer(0, 1)}
    rows, depth = d.array(a).shape[:: -1 if attributes["transA"] else 1]
    columns = d.extent()
    dtype = (d.dtype(a),)
    b = d.tensor(dtype, shape=(columns, depth) if attributes["transB"] else (depth, columns))
    inputs = [a, b]
    if d.opset < 11 or d.chance(0.6):
        inputs.append(d.tensor(dtype, shape=d.broadcastable((rows, columns))))
    for name in ("alpha", "beta"):
        if d.chance(0.4):
            attributes[name] = d.choice((0.5, 2.0, 0.0, -1.0))
    d.node(operator, inputs, attributes)


def _einsum(d: Drawer, operator: str) -> None:
    a = d.tensor(("float32", "float32", "float64"), rank=(2, 3))
    letters = "abcd"[: d.array(a).ndim]
    extents = dict(zip(letters, d.array(a).shape, strict=True)) | {"e": d.extent(17)}
    other = "".join(str(each) for each in d.rng.permutation(list(letters + "e"))[: d.integer(1, 3)])
    b = d.tensor((d.dtype(a),), shape=tuple(extents[letter] for letter in other))
    free = sorted(set(letters + other))
    kept = "".join(str(each) for each in d.rng.permutation(free)[: d.integer(0, len(free))])
    d.node(operator, [a, b], {"equation": f"{letters},{other}->{kept}"})


# Shapes.


def _reshape(d: Drawer, operator: str) -> None:
    x = d.tensor(_ALL)
    shape = d.array(x).shape
    extents = _factors(d, math.prod(shape))
    if math.prod(shape) and extents and d.chance(0.4):
        extents[d.integer(0, len(extents) - 1)] = -1
    for at, extent in enumerate(shape[: len(extents)]):
        if extent == extents[at] and d.chance(0.5):
            extents[at] = 0
    d.node(operator, [x, d.constant(extents)], {})


def _factors(d: Drawer, size: int) -> list[int]:
    """Extents whose product is `size`."""
    found: list[int] = []
    while size > 1 and len(found) < 4:
        divisors = [by for by in (2, 3, 4, 5, 7, 8, 16, 17, 197) if size % by == 0]
        if not divisors or d.chance(0.2):
            break
        found.append(int(d.choice(divisors)))
        size //= found[-1]
    found += [size] + [1] * d.integer(0, 1)
    return [int(extent) for extent in d.rng.permutation(found)]


def _expand(d: Drawer, operator: str) -> None:
    x = d.tensor(_ALL, rank=(0, 1, 2, 3, 4))
    shape = [d.extent(17) if extent == 1 and d.chance(0.6) else extent for extent in d.array(x).shape]
    if d.chance(0.2):
        shape = [d.extent(5), *shape]
    d.node(operator, [x, d.constant(shape)], {})


def _tile(d: Drawer, operator: str) -> None:
    x = d.tensor(_ALL, rank=(1, 2, 3, 4))
    d.node(operator, [x, d.constant([d.choice((1, 1, 2, 3)) for _ in d.array(x).shape])], {})


def _transpose(d: Drawer, operator: str) -> None:
    x = d.tensor(_ALL, rank=(1, 2, 3, 4, 5))
    d.node(operator, [x], {} if d.chance(0.2) else {"perm": [int(at) for at in d.rng.permutation(d.array(x).ndim)]})


def _squeeze(d: Drawer, operator: str) -> None:
    x = d.tensor(_ALL, where=lambda v: 1 in v.shape)
    shape = d.array(x).shape
    axes = [at for at, extent in enumerate(shape) if extent == 1 and d.chance(0.7)]
    if d.opset >= 11:
        axes = [at - len(shape) if d.chance(0.3) else at for at in axes]
    if not axes:
        d.node(operator, [x], {})
    elif d.opset >= 13:
        d.node(operator, [x, d.constant(axes)], {})
    else:
        d.node(operator, [x], {"axes": axes})


def _unsqueeze(d: Drawer, operator: str) -> None:
    x = d.tensor(_ALL, rank=(0, 1, 2, 3))
    rank = d.array(x).ndim + d.integer(1, 2)
    axes = d.axes(rank)[: rank - d.array(x).ndim]
    axes += [at for at in range(rank) if at not in {axis % rank for axis in axes}][: rank - d.array(x).ndim - len(axes)]
    if d.opset >= 13:
        d.node(operator, [x, d.constant(axes)], {})
    else:
        d.node(operator, [x], {"axes": axes})


def _concat(d: Drawer, operator: str) -> None:
    x = d.tensor(_ALL, rank=(1, 2, 3, 4))
    value = d.array(x)
    axis = d.axis(value.ndim)
    inputs = [x]
    for _ in range(d.integer(0, 3)):
        shape = list(value.shape)
        shape[axis] = d.extent(17)
        inputs.append(d.tensor((value.dtype.name,), shape=tuple(shape)) if d.chance(0.6) else d.choice(inputs))
    d.node(operator, [str(name) for name in d.rng.permutation(inputs)], {"axis": axis})


def _split(d: Drawer, operator: str) -> None:
    x = d.tensor(_ALL, rank=(1, 2, 3, 4), where=lambda v: max(v.shape, default=0) > 1)
    shape = d.array(x).shape
    axis = d.choice([at for at, extent in enumerate(shape) if extent > 1])
    parts = d.integer(2, min(3, shape[axis]))
    cuts = sorted(int(at) for at in d.rng.choice(np.arange(1, shape[axis]), parts - 1, replace=False))
    sizes = np.diff([0, *cuts, shape[axis]]).tolist()
    axis = axis - len(shape) if d.opset >= 11 and d.chance(0.3) else axis
    if shape[axis] % parts == 0 and d.chance(0.4):
        d.node(operator, [x], {"axis": axis} | ({"num_outputs": parts} if d.opset >= 18 else {}), parts)
    elif d.opset >= 13:
        d.node(operator, [x, d.constant(sizes)], {"axis": axis}, parts)
    else:
        d.node(operator, [x], {"axis": axis, "split": sizes}, parts)


def _slice(d: Drawer, operator: str) -> None:
    x = d.tensor(_ALL, rank=(1, 2, 3, 4), where=lambda v: v.size > 0)
    shape = d.array(x).shape
    axes = d.axes(len(shape))
    starts, ends, steps = [], [], []
    for axis in axes:
        extent = shape[axis]
        step = d.choice((1, 1, 2, 3, -1, -2)) if d.opset >= 10 else 1
        start, end = d.integer(-extent, extent), d.choice((extent, d.integer(-extent, extent), 2**31 - 1, -1))
        if step < 0:
            start, end = d.choice((extent - 1, -1, 2**31 - 1)), d.choice((-(2**31), -extent - 1, 0))
        starts.append(start)
        ends.append(end)
        steps.append(step)
    if d.opset < 10:
        d.node(operator, [x], {"starts": starts, "ends": ends, "axes": axes})
        return
    kind = d.choice(("int64", "int32"))
    inputs = [x, *(d.constant(values, kind) for values in (starts, ends, axes))]
    if any(step != 1 for step in steps) or d.chance(0.3):
        inputs.append(d.constant(steps, kind))
    found = d.node(operator, inputs, {})
    if not d.array(found[0]).size and d.chance(0.8):
        raise NoSuchValue


def _pad(d: Drawer, operator: str) -> None:
    x = d.tensor(FLOATS if d.opset < 11 else _NUMBERS if d.opset < 13 else _ALL, rank=(1, 2, 3, 4))
    value = d.array(x)
    mode = d.choice(("constant", "constant", "reflect", "edge", *(("wrap",) if d.opset >= 19 else ())))
    most = [min(3, extent - 1) for extent in value.shape]
    lowest = -1 if d.chance(0.1) else 0
    pads = [d.integer(lowest, max(0, far)) if d.chance(0.6) else 0 for far in (*most, *most)]
    if d.opset < 11:
        d.node(operator, [x], {"pads": pads, "mode": mode, "value": 0.5})
        return
    inputs = [x, d.constant(pads)]
    if mode == "constant" and d.chance(0.5):
        inputs.append(d.leaf(value.dtype.name, ()))
    d.node(operator, inputs, {"mode": mode})


def _resize(d: Drawer, operator: str) -> None:
    x = d.tensor(
        ("float32", "float32", "float16", "uint8", "int8") if d.opset >= 13 else ("float32",), rank=(3, 4, 4, 4)
    )
    value = d.array(x)
    scales = [1.0, 1.0] + [d.choice((1.0, 2.0, 0.5, 1.5, 3.0, 0.7)) for _ in value.shape[2:]]
    modes = ("nearest", "linear", "cubic") if d.opset >= 11 else ("nearest", "linear")
    mode = d.choice(modes)
    attributes: Attributes = {"mode": mode}
    if operator == "Upsample" or d.opset < 10:
        scales = [max(1.0, scale) for scale in scales]
        if d.opset < 9:
            d.node("Upsample", [x], {"mode": mode, "scales": scales})
        else:
            d.node("Upsample" if d.opset < 10 else "Resize", [x, d.constant(scales, "float32")], {"mode": mode})
        return
    if d.opset < 11:
        d.node(operator, [x, d.constant(scales, "float32")], attributes)
        return
    attributes["coordinate_transformation_mode"] = d.choice(
        ("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel")
    )
    if mode == "nearest":
        attributes["nearest_mode"] = d.choice(("round_prefer_floor", "round_prefer_ceil", "floor", "ceil"))
    if mode == "cubic":
        attributes["exclude_outside"] = d.integer(0, 1)
        attributes["cubic_coeff_a"] = d.choice((-0.75, -0.5))
    if d.opset >= 18 and mode != "nearest" and d.chance(0.25):
        attributes["antialias"] = 1
    empty = "" if d.opset >= 13 else d.constant([], "float32")
    if d.chance(0.5):
        d.node(operator, [x, empty, d.constant(scales, "float32")], attributes)
    else:
        sizes = [*value.shape[:2], *(max(1, int(e * s)) for e, s in zip(value.shape[2:], scales[2:], strict=True))]
        d.node(operator, [x, empty, d.constant([], "float32") if d.opset < 13 else "", d.constant(sizes)], attributes)


def _blocks(d: Drawer, operator: str) -> None:
    block = d.choice((2, 2, 3))
    to_depth = operator == "SpaceToDepth"
    x = d.tensor(
        FLOATS,
        rank=4,
        where=lambda v: (
            v.shape[2] % block == 0 and v.shape[3] % block == 0 if to_depth else v.shape[1] % (block * block) == 0
        ),
    )
    attributes: Attributes = {"blocksize": block}
    if not to_depth and d.opset >= 11:
        attributes["mode"] = d.choice(("DCR", "CRD"))
    d.node(operator, [x], attributes)


def _range(d: Drawer, operator: str) -> None:
    dtype = d.choice(("float32", "int32", "int64"))
    start, delta = d.integer(-3, 3), d.choice((1, 2, -1))
    bounds = (start, start + delta * d.integer(1, 17), delta)
    d.node(operator, [d.constant(bound, dtype) for bound in bounds], {})


def _constant_of_shape(d: Drawer, operator: str) -> None:
    from onnx import numpy_helper

    value = numpy_helper.from_array(np.array([d.integer(0, 3)], d.likely(_ALL)))
    d.node(operator, [d.constant(list(d.shape()))], {"value": value} if d.chance(0.7) else {})


def _center_crop_pad(d: Drawer, operator: str) -> None:
    x = d.tensor(_NUMBERS, rank=(1, 2, 3))
    d.node(operator, [x, d.constant([d.extent(17) for _ in d.array(x).shape])], {})


def _col2im(d: Drawer, operator: str) -> None:
    block, image = [d.integer(1, 3) for _ in range(2)], [d.integer(3, 7) for _ in range(2)]
    places = math.prod(extent - k + 1 for extent, k in zip(image, block, strict=True))
    x = d.tensor(("float32",), shape=(d.integer(1, 2), d.integer(1, 3) * math.prod(block), places))
    d.node(operator, [x, d.constant(image), d.constant(block)], {})


# Reading and writing by indices.


def _gather(d: Drawer, operator: str) -> None:
    x = d.tensor(_ALL, rank=(1, 2, 3, 4), where=lambda v: v.size > 0)
    shape = d.array(x).shape
    axis = d.axis(len(shape))
    computed = d.chance(0.2)
    fits = [
        n
        for n in d.visible
        if isinstance(v := d.graph.values[n], np.ndarray)
        and v.dtype.name in ("int32", "int64")
        and 0 < v.size < 300
        and v.min() >= 0
        and v.max() < shape[axis]
    ]
    indices = d.choice(fits) if computed and fits else d.indices(d.shape(d.integer(0, 2)), shape[axis])
    d.node(operator, [x, indices], {"axis": axis})


def _elements(d: Drawer, operator: str) -> None:
    x = d.tensor(_ALL, rank=(1, 2, 3), where=lambda v: v.size > 0)
    value = d.array(x)
    axis = d.axis(value.ndim)
    shape = [d.integer(1, extent) for extent in value.shape]
    if operator == "GatherElements":
        shape[axis] = d.extent(17)
        d.node(operator, [x, d.indices(tuple(shape), value.shape[axis])], {"axis": axis})
        return
    attributes: Attributes = {"axis": axis}
    if operator == "ScatterElements" and d.opset >= 16 and d.chance(0.7):
        attributes["reduction"] = d.choice(("add", "mul", "max", "min")[: 2 if d.opset < 18 else 4])
        indices = d.indices(tuple(shape), value.shape[axis])
    else:
        indices = d.constant(_unique_places(d, shape, axis % value.ndim, value.shape[axis]))
    d.node(operator, [x, indices, d.tensor((value.dtype.name,), shape=tuple(shape))], attributes)


def _unique_places(d: Drawer, shape: list[int], axis: int, size: int) -> Any:
    """Indices along an axis of `size` elements, of which no two in a line are equal."""
    lines = [extent for at, extent in enumerate(shape) if at != axis]
    places = d.rng.permuted(np.broadcast_to(np.arange(size), (*lines, size)), axis=-1)
    return np.moveaxis(places[..., : shape[axis]], -1, axis)


def _gather_nd(d: Drawer, operator: str) -> None:
    x = d.tensor(_ALL, rank=(1, 2, 3, 4), where=lambda v: v.size > 0)
    value = d.array(x)
    batch = d.integer(0, value.ndim - 1) if operator == "GatherND" and d.opset >= 12 and d.chance(0.3) else 0
    depth = d.integer(1, value.ndim - batch)
    outer = (*value.shape[:batch], *(d.extent(17) for _ in range(d.integer(0, 2))))
    sizes = value.shape[batch : batch + depth]
    if operator == "GatherND":
        places = np.stack([d.rng.integers(0, size, outer) for size in sizes], axis=-1)
        indices = d.leaf("int64", places.shape, Role(0, min(sizes) - 1)) if d.chance(0.5) else d.constant(places)
        d.node(operator, [x, indices], {"batch_dims": batch} if batch else {})
        return
    attributes: Attributes = {}
    most = math.prod(sizes)
    number = min(math.prod(outer), most)
    if d.opset >= 16 and d.chance(0.6):
        attributes["reduction"] = d.choice(("add", "mul", "max", "min")[: 2 if d.opset < 18 else 4])
        flat = d.rng.integers(0, most, number)
    else:
        flat = d.rng.choice(most, number, replace=False)
    places = np.stack(np.unravel_index(flat, sizes), axis=-1)
    updates = d.tensor((value.dtype.name,), shape=(number, *value.shape[depth:]))
    d.node(operator, [x, d.constant(places), updates], attributes)


def _one_hot(d: Drawer, operator: str) -> None:
    size = d.extent(17)
    indices = d.indices(d.shape(d.integer(0, 2)), size, "int64")
    values = d.leaf(d.choice(("float32", "int64", "int32")), (2,))
    d.node(operator, [indices, d.constant(size), values], {"axis": -1})


def _top_k(d: Drawer, operator: str) -> None:
    x = d.tensor(FLOATS if d.opset < 11 else (*FLOATS, "int32", "int64"), rank=(1, 2, 3), where=lambda v: v.size > 0)
    shape = d.array(x).shape
    axis = d.axis(len(shape))
    k = d.integer(1, shape[axis])
    attributes: Attributes = {"axis": axis}
    if d.opset >= 11:
        attributes["largest"] = d.integer(0, 1)
    if d.opset < 10:
        d.node(operator, [x], attributes | {"k": k}, 2)
    else:
        d.node(operator, [x, d.constant([k])], attributes, 2)


def _trilu(d: Drawer, operator: str) -> None:
    x = d.tensor(_ALL, rank=(2, 3, 4))
    d.node(operator, [x, *([d.constant(d.integer(-3, 3))] if d.chance(0.5) else [])], {"upper": d.integer(0, 1)})


def _cumulative(d: Drawer, operator: str) -> None:
    x = d.tensor(("float32", "float64", "int32", "int64"), rank=(1, 2, 3))
    axis = d.constant(d.axis(d.array(x).ndim), d.choice(("int32", "int64")))
    d.node(operator, [x, axis], {"exclusive": d.integer(0, 1), "reverse": d.integer(0, 1)})


def _reverse_sequence(d: Drawer, operator: str) -> None:
    x = d.tensor(_ALL, rank=(2, 3), where=lambda v: v.size > 0)
    batch, time = d.choice(((0, 1), (1, 0)))
    shape = d.array(x).shape
    lengths = d.leaf("int64", (shape[batch],), Role(1, shape[time]))
    d.node(operator, [x, lengths], {"batch_axis": batch, "time_axis": time})


def _tensor_scatter(d: Drawer, operator: str) -> None:
    x = d.tensor(FLOATS, rank=(3, 4), where=lambda v: v.size > 0)
    value = d.array(x)
    axis = value.ndim - 2
    steps = d.integer(1, value.shape[axis])
    shape = (*value.shape[:axis], steps, *value.shape[axis + 1 :])
    starts = d.leaf("int64", (value.shape[0],), Role(0, value.shape[axis] - steps))
    d.node(operator, [x, d.tensor((value.dtype.name,), shape=shape), starts], {"axis": -2})


# Normalisation.


def _batch_norm(d: Drawer, operator: str) -> None:
    x = d.tensor(FLOATS, rank=(2, 3, 4, 5))
    channels = d.array(x).shape[1]
    dtype = d.dtype(x)
    vectors = [d.leaf(dtype, (channels,), extreme=0.05) for _ in range(3)]
    variance = d.leaf(dtype, (channels,), _POSITIVE)
    d.node(operator, [x, *vectors, variance], {} if d.chance(0.5) else {"epsilon": 1e-3})


def _instance_norm(d: Drawer, operator: str) -> None:
    x = d.tensor(FLOATS, rank=(3, 4, 5))
    channels = d.array(x).shape[1]
    attributes: Attributes = {} if d.chance(0.5) else {"epsilon": 1e-3}
    if operator == "GroupNormalization":
        attributes["num_groups"] = groups = d.choice([g for g in (1, 2, 4, channels) if channels % g == 0])
        channels = channels if d.opset >= 21 else groups
    d.node(operator, [x, *(d.tensor((d.dtype(x),), shape=(channels,)) for _ in range(2))], attributes)


def _layer_norm(d: Drawer, operator: str) -> None:
    x = d.tensor(FLOATS, rank=(1, 2, 3, 4))
    shape = d.array(x).shape
    axis = d.axis(len(shape))
    inputs = [x, d.tensor((d.dtype(x),), shape=shape[axis % len(shape) :])]
    if operator == "LayerNormalization" and d.chance(0.6):
        inputs.append(d.tensor((d.dtype(x),), shape=shape[axis % len(shape) :]))
    outputs = d.choice((1, 1, 1, 3)) if operator == "LayerNormalization" else 1
    d.node(operator, inputs, {"axis": axis}, outputs)


def _prelu(d: Drawer, operator: str) -> None:
    x = d.tensor(FLOATS, rank=(1, 2, 3, 4))
    shape = d.array(x).shape
    slope = (shape[1], *(1 for _ in shape[2:])) if len(shape) > 1 and d.chance(0.5) else d.broadcastable(shape)
    d.node(operator, [x, d.tensor((d.dtype(x),), shape=slope)], {})


def _clip(d: Drawer, operator: str) -> None:
    if d.opset < 11:
        d.node(operator, [d.tensor(FLOATS)], {"min": -0.5, "max": 0.7})
        return
    x = d.tensor(FLOATS if d.opset < 12 else (*FLOATS, "int8", "uint8", "int32", "int64"))
    ends = [d.leaf(d.dtype(x), (), constant=0.8) if d.chance(0.7) else "" for _ in range(2)]
    while ends and not ends[-1]:
        ends.pop()
    d.node(operator, [x, *ends], {})


def _where(d: Drawer, operator: str) -> None:
    x = d.tensor(_ALL)
    shape = d.array(x).shape
    condition = d.tensor(("bool",), shape=shape if d.chance(0.5) else d.broadcastable(shape))
    d.node(operator, [condition, x, d.tensor((d.dtype(x),), shape=d.broadcastable(shape))], {})


def _divide(d: Drawer, operator: str) -> None:
    x = d.tensor(_NUMBERS if operator == "Div" or d.opset >= 10 else FLOATS)
    value = d.array(x)
    shape = d.broadcastable(value.shape)
    attributes: Attributes = {}
    if operator == "Mod" and (value.dtype.kind == "f" or d.chance(0.3)):
        attributes["fmod"] = 1
    if value.dtype.kind == "f":
        d.node(operator, [x, d.tensor((value.dtype.name,), shape=shape)], attributes)
        return
    divisor = d.leaf(value.dtype.name, shape, Role(1, 9))
    if value.dtype.kind == "i" and d.chance(0.4):
        divisor = d.constant(-(d.array(divisor) + 1), value.dtype.name)
    d.node(operator, [x, divisor], attributes)


def _power(d: Drawer, operator: str) -> None:
    x = d.tensor(FLOATS if d.opset < 12 else (*FLOATS, "int32", "int64"))
    value = d.array(x)
    if d.chance(0.5):
        exponent = d.constant(d.choice((2, 3, 0, 1)), value.dtype.name)
    else:
        exponent = d.leaf(value.dtype.name, d.broadcastable(value.shape), Role(0, 3))
    d.node(operator, [x, exponent], {})


def _bit_shift(d: Drawer, operator: str) -> None:
    x = d.tensor(("uint8", "uint16", "uint32", "uint64"))
    shift = d.leaf(d.dtype(x), d.broadcastable(d.array(x).shape), Role(0, 7))
    d.node(operator, [x, shift], {"direction": d.choice(("LEFT", "RIGHT"))})


def _dropout(d: Drawer, operator: str) -> None:
    d.node(operator, [d.tensor(FLOATS)], {}, d.choice((1, 2)))


def _losses(d: Drawer, operator: str) -> None:
    x = d.tensor(("float32", "float64"), rank=(2, 3, 4), where=lambda v: v.size > 0)
    batch, classes, *more = d.array(x).shape
    inputs = [x, d.indices((batch, *more), classes, negative=False)]
    if d.chance(0.4):
        inputs.append(d.leaf(d.dtype(x), (classes,), _POSITIVE))
    attributes: Attributes = {"reduction": d.choice(("none", "sum", "mean"))}
    if d.chance(0.3):
        attributes["ignore_index"] = d.integer(0, classes - 1)
    d.node(operator, inputs, attributes)


# Quantised numbers.


def _scale_of(d: Drawer, shape: tuple[int, ...] = ()) -> str:
    return d.leaf("float32", shape, _SCALE, constant=0.85, extreme=0.05)


def _zero_of(d: Drawer, dtype: str, shape: tuple[int, ...] = ()) -> str:
    return d.leaf(dtype, shape, constant=0.85, extreme=0.1)


def _quantize(d: Drawer, operator: str) -> None:
    quantise = operator == "QuantizeLinear"
    x = d.tensor(("float32",) if quantise else (*_BYTES, "int32"), rank=(1, 2, 3, 4))
    value = d.array(x)
    dtype = d.choice(_BYTES) if quantise else value.dtype.name
    attributes: Attributes = {}
    shape: tuple[int, ...] = ()
    if d.opset >= 13 and d.chance(0.4):
        attributes["axis"] = axis = d.axis(value.ndim)
        shape = (value.shape[axis],)
    inputs = [x, _scale_of(d, shape)]
    if quantise or (dtype in _BYTES and d.chance(0.7)):
        inputs.append(_zero_of(d, dtype, shape))
    d.node(operator, inputs, attributes)


def _matmul_integer(d: Drawer, operator: str) -> None:
    a, b = _product_shapes(d, _BYTES, _BYTES)
    inputs = [a, b]
    if d.chance(0.7):
        inputs.append(_zero_of(d, d.dtype(a)))
        if d.chance(0.6):
            columns = d.array(b).shape[-1]
            shape = (columns,) if d.array(b).ndim == 2 and d.chance(0.4) else ()
            inputs.append(_zero_of(d, d.dtype(b), shape))
    d.node(operator, inputs, {})


def _qlinear_matmul(d: Drawer, operator: str) -> None:
    a, b = _product_shapes(d, _BYTES, _BYTES)
    operands: list[str] = []
    for name in (a, b):
        operands += [name, _scale_of(d), _zero_of(d, d.dtype(name))]
    d.node(operator, [*operands, _scale_of(d), _zero_of(d, d.dtype(a))], {})


def _conv_integer(d: Drawer, operator: str) -> None:
    x = d.tensor(_BYTES, rank=4)
    _, channels, *spatial = d.array(x).shape
    kernel, attributes = _window(d, tuple(spatial))
    group, features = _groups(d, channels)
    w = d.tensor(_BYTES, shape=(features, channels // group, *kernel))
    attributes["group"] = group
    x_zero, w_zero = _zero_of(d, d.dtype(x)), _zero_of(d, d.dtype(w))
    if operator == "ConvInteger":
        d.node(operator, [x, w, *([x_zero, w_zero][: d.integer(0, 2)])], attributes)
        return
    scales = _scale_of(d, (features,) if d.chance(0.4) else ())
    if d.array(scales).shape:
        w_zero = d.constant(np.full((features,), d.array(w_zero)), d.dtype(w))
    inputs = [x, _scale_of(d), x_zero, w, scales, w_zero, _scale_of(d), _zero_of(d, d.dtype(x))]
    if d.chance(0.5):
        inputs.append(d.leaf("int32", (features,), Role(-2000, 2000)))
    d.node(operator, inputs, attributes)


def _dynamic_quantize(d: Drawer, operator: str) -> None:
    d.node(operator, [d.tensor(("float32",), where=lambda v: v.size > 0)], {}, 3)


def _qlinear_pair(d: Drawer, operator: str) -> None:
    a = d.tensor(_BYTES)
    b = d.tensor((d.dtype(a),), shape=d.broadcastable(d.array(a).shape))
    dtype = d.dtype(a)
    quantised = [part for name in (a, b) for part in (name, _scale_of(d), _zero_of(d, dtype))]
    d.node(operator, [*quantised, _scale_of(d), _zero_of(d, dtype)], {}, domain=MICROSOFT)


def _qlinear_activation(d: Drawer, operator: str) -> None:
    x = d.tensor(_BYTES)
    dtype = d.dtype(x)
    attributes: Attributes = {"alpha": 0.1} if operator == "QLinearLeakyRelu" else {}
    inputs = [x, *(make for _ in range(2) for make in (_scale_of(d), _zero_of(d, dtype)))]
    d.node(operator, inputs, attributes, domain=MICROSOFT)


def _qlinear_pool(d: Drawer, operator: str) -> None:
    x = d.tensor(_BYTES, rank=4)
    dtype = d.dtype(x)
    attributes: Attributes = {}
    if operator == "QLinearAveragePool":
        kernel, attributes = _window(d, d.array(x).shape[2:], dilated=False)
        attributes |= {"kernel_shape": kernel, "count_include_pad": d.integer(0, 1)}
    inputs = [x, *(make for _ in range(2) for make in (_scale_of(d), _zero_of(d, dtype)))]
    d.node(operator, inputs, attributes, domain=MICROSOFT)


def _qlinear_concat(d: Drawer, operator: str) -> None:
    x = d.tensor(_BYTES, rank=(1, 2, 3, 4))
    value = d.array(x)
    axis = d.integer(0, value.ndim - 1)
    inputs = [_scale_of(d), _zero_of(d, value.dtype.name)]
    for name in [x, *(d.tensor((value.dtype.name,), shape=value.shape) for _ in range(d.integer(1, 2)))]:
        inputs += [name, _scale_of(d), _zero_of(d, value.dtype.name)]
    d.node(operator, inputs, {"axis": axis}, domain=MICROSOFT)


# Others.


def _attention(d: Drawer, operator: str) -> None:
    dtype = d.choice(("float32", "float32", "float16"))
    batch, heads, size = d.integer(1, 2), d.choice((1, 2, 4)), d.choice((1, 4, 8, 17))
    groups = d.choice([1, 1, *([2] if heads % 2 == 0 else [])])
    queries, keys, value_size = d.extent(17), d.extent(17), size if d.chance(0.7) else d.choice((3, 8))
    attributes: Attributes = {"is_causal": d.integer(0, 1)}
    if d.chance(0.3):
        attributes["softcap"] = 2.0
    if d.chance(0.3):
        attributes["scale"] = 0.3
    kv = heads // groups
    if d.chance(0.5):
        shapes: list[tuple[int, ...]] = [
            (batch, heads, queries, size),
            (batch, kv, keys, size),
            (batch, kv, keys, value_size),
        ]
    else:
        shapes = [(batch, queries, heads * size), (batch, keys, kv * size), (batch, keys, kv * value_size)]
        attributes |= {"q_num_heads": heads, "kv_num_heads": kv}
    inputs = [d.tensor((dtype,), shape=shape) for shape in shapes]
    past = d.integer(1, 5) if d.chance(0.25) else 0
    if d.chance(0.5):
        mask = (batch, heads, queries, keys + past) if d.chance(0.3) else (queries, keys + past)
        inputs.append(d.tensor((d.choice(("bool", dtype)),), shape=mask))
    elif past:
        inputs.append("")
    if past:
        inputs += [d.tensor((dtype,), shape=(batch, kv, past, extent)) for extent in (size, value_size)]
    d.node(operator, inputs, attributes, 3 if past else 1)


def _rotary(d: Drawer, operator: str) -> None:
    batch, heads, steps, size = d.integer(1, 2), d.integer(1, 4), d.extent(17), d.choice((4, 8, 16))
    x = d.tensor(("float32", "float16"), shape=(batch, heads, steps, size))
    if d.chance(0.5):
        positions = d.indices((batch, steps), 20, "int64", negative=False)
        caches = [d.tensor((d.dtype(x),), shape=(20, size // 2)) for _ in range(2)]
        d.node(operator, [x, *caches, positions], {"interleaved": d.integer(0, 1)})
    else:
        caches = [d.tensor((d.dtype(x),), shape=(batch, steps, size // 2)) for _ in range(2)]
        d.node(operator, [x, *caches], {"interleaved": d.integer(0, 1)})


def _grid_sample(d: Drawer, operator: str) -> None:
    x = d.tensor(("float32", "float64"), rank=4)
    grid = d.leaf(d.dtype(x), (d.array(x).shape[0], d.extent(8), d.extent(8), 2), Role(-1.2, 1.2))
    modes = ("bilinear", "nearest", "bicubic") if d.opset < 20 else ("linear", "nearest", "cubic")
    attributes: Attributes = {"mode": d.choice(modes), "align_corners": d.integer(0, 1)}
    attributes["padding_mode"] = d.choice(("zeros", "border", "reflection"))
    d.node(operator, [x, grid], attributes)


def _affine_grid(d: Drawer, operator: str) -> None:
    batch = d.integer(1, 3)
    theta = d.tensor(("float32", "float64"), shape=(batch, 2, 3))
    size = d.constant([batch, d.integer(1, 3), d.extent(8), d.extent(8)])
    d.node(operator, [theta, size], {"align_corners": d.integer(0, 1)})


def _dft(d: Drawer, operator: str) -> None:
    x = d.tensor(("float32", "float64"), shape=(d.integer(1, 2), d.extent(17), d.extent(17), d.choice((1, 2))))
    attributes: Attributes = {"inverse": d.integer(0, 1)}
    if d.array(x).shape[-1] == 1 and not attributes["inverse"]:
        attributes["onesided"] = d.integer(0, 1)
    if d.opset < 20:
        d.node(operator, [x], attributes | {"axis": d.integer(1, 2)})
    else:
        d.node(operator, [x, "", d.constant(d.integer(1, 2))], attributes)


def _stft(d: Drawer, operator: str) -> None:
    length, frame = d.choice((32, 64)), d.choice((8, 16))
    x = d.tensor(("float32", "float64"), shape=(d.integer(1, 2), length, 1))
    window = d.tensor((d.dtype(x),), shape=(frame,))
    d.node(operator, [x, d.constant(frame // 2), window], {"onesided": d.integer(0, 1)})


def _window_function(d: Drawer, operator: str) -> None:
    d.node(operator, [d.constant(d.extent(17))], {"periodic": d.integer(0, 1)})


def _mel(d: Drawer, operator: str) -> None:
    d.node(
        operator,
        [d.constant(8), d.constant(32), d.constant(8000), d.constant(0.0, "float32"), d.constant(4000.0, "float32")],
        {},
    )


def _det(d: Drawer, operator: str) -> None:
    size = d.integer(1, 5)
    d.node(operator, [d.tensor(("float32", "float64"), shape=(*d.shape(d.integer(0, 1)), size, size))], {})


def _eye_like(d: Drawer, operator: str) -> None:
    d.node(operator, [d.tensor(("float32", "int32", "int64"), rank=2)], {"k": d.integer(-2, 2)})


def _sequence(d: Drawer, operator: str) -> None:
    x = d.tensor(("float32", "int64"), rank=(1, 2, 3))
    more = [d.tensor((d.dtype(x),), shape=d.array(x).shape) for _ in range(d.integer(0, 2))]
    d.node(operator, [x, *more], {})


def _sequence_item(d: Drawer, operator: str) -> None:
    found = [name for name in d.visible if isinstance(v := d.graph.values[name], list) and v]
    if not found:
        raise NoSuchValue
    name = str(d.choice(found))
    sequence = d.graph.values[name]
    if operator == "SequenceInsert":
        inputs = [name, d.tensor((sequence[0].dtype.name,), shape=sequence[0].shape)]
    else:
        inputs = [name]
    if operator == "SequenceAt" or d.chance(0.5):
        inputs.append(d.constant(d.integer(-len(sequence), len(sequence) - 1)))
    d.node(operator, inputs, {})


def _concat_from_sequence(d: Drawer, operator: str) -> None:
    found = [name for name in d.visible if isinstance(v := d.graph.values[name], list) and v]
    if not found:
        raise NoSuchValue
    d.node(operator, [str(d.choice(found))], {"axis": 0, "new_axis": d.integer(0, 1)})


def _split_to_sequence(d: Drawer, operator: str) -> None:
    x = d.tensor(("float32", "int64"), rank=(1, 2, 3), where=lambda v: v.size > 0)
    shape = d.array(x).shape
    axis = d.axis(len(shape))
    inputs = [x, d.constant(d.choice([by for by in (1, 2, 3) if by <= shape[axis]]))] if d.chance(0.7) else [x]
    d.node(operator, inputs, {"axis": axis, "keepdims": d.integer(0, 1)})


RULES: dict[str, Rule] = {
    **{
        f"Reduce{kind}": _reduce
        for kind in ["L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare"]
    },
    **dict.fromkeys(("ArgMax", "ArgMin"), _arg_extreme),
    "Conv": _conv,
    "ConvTranspose": _conv_transpose,
    **dict.fromkeys(("AveragePool", "MaxPool", "LpPool"), _pool),
    "MaxUnpool": _max_unpool,
    "DeformConv": _deform_conv,
    **dict.fromkeys(("RoiAlign", "MaxRoiPool"), _roi),
    "MatMul": _matmul,
    "Gemm": _gemm,
    "Einsum": _einsum,
    "Reshape": _reshape,
    "Expand": _expand,
    "Tile": _tile,
    "Transpose": _transpose,
    "Squeeze": _squeeze,
    "Unsqueeze": _unsqueeze,
    "Concat": _concat,
    "Split": _split,
    "Slice": _slice,
    "Pad": _pad,
    **dict.fromkeys(("Resize", "Upsample"), _resize),
    **dict.fromkeys(("DepthToSpace", "SpaceToDepth"), _blocks),
    "Range": _range,
    "ConstantOfShape": _constant_of_shape,
    "CenterCropPad": _center_crop_pad,
    "Col2Im": _col2im,
    "Gather": _gather,
    **dict.fromkeys(("GatherElements", "ScatterElements", "Scatter"), _elements),
    **dict.fromkeys(("GatherND", "ScatterND"), _gather_nd),
    "OneHot": _one_hot,
    "TopK": _top_k,
    "Trilu": _trilu,
    **dict.fromkeys(("CumSum", "CumProd"), _cumulative),
    "ReverseSequence": _reverse_sequence,
    "TensorScatter": _tensor_scatter,
    "BatchNormalization": _batch_norm,
    **dict.fromkeys(("InstanceNormalization", "GroupNormalization"), _instance_norm),
    **dict.fromkeys(("LayerNormalization", "RMSNormalization"), _layer_norm),
    "PRelu": _prelu,
    "Clip": _clip,
    "Where": _where,
    **dict.fromkeys(("Div", "Mod"), _divide),
    "Pow": _power,
    "BitShift": _bit_shift,
    "Dropout": _dropout,
    **dict.fromkeys(("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss"), _losses),
    **dict.fromkeys(("QuantizeLinear", "DequantizeLinear"), _quantize),
    "MatMulInteger": _matmul_integer,
    "QLinearMatMul": _qlinear_matmul,
    **dict.fromkeys(("ConvInteger", "QLinearConv"), _conv_integer),
    "DynamicQuantizeLinear": _dynamic_quantize,
    **dict.fromkeys(("QLinearAdd", "QLinearMul"), _qlinear_pair),
    **dict.fromkeys(("QLinearSigmoid", "QLinearLeakyRelu"), _qlinear_activation),
    **dict.fromkeys(("QLinearAveragePool", "QLinearGlobalAveragePool"), _qlinear_pool),
    "QLinearConcat": _qlinear_concat,
    **dict.fromkeys(("LSTM", "GRU", "RNN"), draw_recurrent),
    "Attention": _attention,
    "RotaryEmbedding": _rotary,
    "GridSample": _grid_sample,
    "AffineGrid": _affine_grid,
    "DFT": _dft,
    "STFT": _stft,
    **dict.fromkeys(("BlackmanWindow", "HammingWindow", "HannWindow"), _window_function),
    "MelWeightMatrix": _mel,
    "Det": _det,
    "EyeLike": _eye_like,
    "SequenceConstruct": _sequence,
    **dict.fromkeys(("SequenceAt", "SequenceErase", "SequenceInsert"), _sequence_item),
    "ConcatFromSequence": _concat_from_sequence,
    "SplitToSequence": _split_to_sequence,
    "If": draw_if,
    "Loop": draw_loop,
    "Scan": draw_scan,
}

OTHER_DOMAINS = tuple(
    name for name, rule in RULES.items() if name.startswith("QLinear") and name not in ("QLinearConv", "QLinearMatMul")
)
"""Operators of onnxruntime's own set that have a rule."""

SHARES = {
    **dict.fromkeys(("Conv", "MatMul", "Gemm"), 3.0),
    **dict.fromkeys(("Add", "Mul", "Sub", "Div", "Reshape", "Transpose", "Concat", "Slice", "Gather", "Softmax"), 2.0),
    **dict.fromkeys(("QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear", "MatMulInteger"), 1.5),
    **dict.fromkeys(("BlackmanWindow", "HammingWindow", "HannWindow", "MelWeightMatrix", "EyeLike", "Range"), 0.3),
    **dict.fromkeys(("Shape", "Size", "ConstantOfShape", "Dropout", "Identity", "SequenceLength"), 0.5),
}
"""How often operators are drawn, relative to 1."""
