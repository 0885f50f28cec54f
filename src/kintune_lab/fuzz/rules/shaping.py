"""Rules for operators that move elements, or make tensors of a given shape."""

from __future__ import annotations

import math

import numpy as np

from kintune_lab.fuzz.drawing import Attributes, Drawer, NoSuchValue, Rule
from kintune_lab.fuzz.values import ALL, FLOATS, NUMBERS

__all__ = ["RULES"]


def _reshape(d: Drawer, operator: str) -> None:
    x = d.tensor(ALL)
    shape = d.array(x).shape
    extents = _factors(d, math.prod(shape))
    if d.opset >= 14 and d.chance(0.1):
        d.node(operator, [x, d.constant(extents)], {"allowzero": 1})
        return
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
    x = d.tensor(ALL, rank=(0, 1, 2, 3, 4))
    shape = [d.extent(17) if extent == 1 and d.chance(0.6) else extent for extent in d.array(x).shape]
    if d.chance(0.2):
        shape = [d.extent(5), *shape]
    d.node(operator, [x, d.constant(shape)], {})


def _tile(d: Drawer, operator: str) -> None:
    x = d.tensor(ALL, rank=(1, 2, 3, 4))
    d.node(operator, [x, d.constant([d.choice((1, 1, 2, 3)) for _ in d.array(x).shape])], {})


def _transpose(d: Drawer, operator: str) -> None:
    x = d.tensor(ALL, rank=(1, 2, 3, 4, 5))
    d.node(operator, [x], {} if d.chance(0.2) else {"perm": [int(at) for at in d.rng.permutation(d.array(x).ndim)]})


def _squeeze(d: Drawer, operator: str) -> None:
    x = d.tensor(ALL, where=lambda v: 1 in v.shape)
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
    x = d.tensor(ALL, rank=(0, 1, 2, 3))
    rank = d.array(x).ndim + d.integer(1, 2)
    axes = d.axes(rank)[: rank - d.array(x).ndim]
    axes += [at for at in range(rank) if at not in {axis % rank for axis in axes}][: rank - d.array(x).ndim - len(axes)]
    if d.opset >= 13:
        d.node(operator, [x, d.constant(axes)], {})
    else:
        d.node(operator, [x], {"axes": axes})


def _concat(d: Drawer, operator: str) -> None:
    x = d.tensor(ALL, rank=(1, 2, 3, 4))
    value = d.array(x)
    axis = d.axis(value.ndim)
    inputs = [x]
    for _ in range(d.integer(0, 3)):
        shape = list(value.shape)
        shape[axis] = d.extent(17)
        inputs.append(d.tensor((value.dtype.name,), shape=tuple(shape)) if d.chance(0.6) else d.choice(inputs))
    d.node(operator, [str(name) for name in d.rng.permutation(inputs)], {"axis": axis})


def _split(d: Drawer, operator: str) -> None:
    x = d.tensor(ALL, rank=(1, 2, 3, 4), where=lambda v: max(v.shape, default=0) > 1)
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
    x = d.tensor(ALL, rank=(1, 2, 3, 4), where=lambda v: v.size > 0)
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
    x = d.tensor(FLOATS if d.opset < 11 else NUMBERS if d.opset < 13 else ALL, rank=(1, 2, 3, 4))
    value = d.array(x)
    mode = d.choice(("constant", "constant", "reflect", "edge", *(("wrap",) if d.opset >= 19 else ())))
    most = [min(3, extent - 1) for extent in value.shape]
    lowest = -1 if d.chance(0.1) else 0
    pads = [d.integer(lowest, max(0, far)) if d.chance(0.6) else 0 for far in (*most, *most)]
    if d.opset < 11:
        d.node(operator, [x], {"pads": pads, "mode": mode, "value": 0.5})
        return
    inputs = [x, d.constant(pads), d.leaf(value.dtype.name, ()) if mode == "constant" and d.chance(0.5) else ""]
    if d.opset >= 18 and d.chance(0.3):
        axes = d.axes(value.ndim)
        inputs[1] = d.constant([pads[side * value.ndim + axis % value.ndim] for side in (0, 1) for axis in axes])
        inputs.append(d.constant(axes))
    d.node(operator, inputs if any(inputs[2:]) else inputs[:2], {"mode": mode})


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
        (
            "half_pixel",
            "asymmetric",
            "align_corners",
            "pytorch_half_pixel",
            *(["half_pixel_symmetric"] * (d.opset >= 19)),
        )
    )
    if mode == "nearest":
        attributes["nearest_mode"] = d.choice(("round_prefer_floor", "round_prefer_ceil", "floor", "ceil"))
    if mode == "cubic":
        attributes["exclude_outside"] = d.integer(0, 1)
        attributes["cubic_coeff_a"] = d.choice((-0.75, -0.5))
    if d.opset >= 18 and mode != "nearest" and d.chance(0.25):
        attributes["antialias"] = 1
    roi = "" if d.opset >= 13 else d.constant([], "float32")
    sizes = [*value.shape[:2], *(max(1, int(e * s)) for e, s in zip(value.shape[2:], scales[2:], strict=True))]
    axes = list(range(value.ndim))
    if d.opset >= 18 and d.chance(0.3):
        attributes["axes"] = axes = [int(axis) for axis in d.rng.permutation(np.arange(2, value.ndim))]
    if d.opset >= 13 and d.chance(0.1):
        attributes |= {"coordinate_transformation_mode": "tf_crop_and_resize", "extrapolation_value": 0.5}
        roi = d.constant(
            [*(0.13 if axis > 1 else 0.0 for axis in axes), *(1.17 if axis > 1 else 1.0 for axis in axes)], "float32"
        )
    if d.chance(0.5):
        d.node(operator, [x, roi, d.constant([scales[axis] for axis in axes], "float32")], attributes)
        return
    if d.opset >= 18 and d.chance(0.3):
        attributes["keep_aspect_ratio_policy"] = d.choice(("stretch", "not_larger", "not_smaller"))
    inputs = [x, roi, d.constant([], "float32") if d.opset < 13 else "", d.constant([sizes[axis] for axis in axes])]
    d.node(operator, inputs, attributes)


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
    start, delta = d.integer(-3, 3), d.choice((1, 2, -1, *((0.5, -0.25) if dtype == "float32" else ())))
    bounds = (start, start + delta * d.integer(1, 17), delta)
    d.node(operator, [d.constant(bound, dtype) for bound in bounds], {})


def _constant_of_shape(d: Drawer, operator: str) -> None:
    from onnx import numpy_helper

    value = numpy_helper.from_array(np.array([d.integer(0, 3)], d.likely(ALL)))
    d.node(operator, [d.constant(list(d.shape()))], {"value": value} if d.chance(0.7) else {})


def _center_crop_pad(d: Drawer, operator: str) -> None:
    x = d.tensor(NUMBERS, rank=(1, 2, 3))
    axes = d.axes(d.array(x).ndim) if d.chance(0.4) else None
    extents = [d.extent(17) for _ in (axes or d.array(x).shape)]
    d.node(operator, [x, d.constant(extents)], {"axes": axes} if axes else {})


def _col2im(d: Drawer, operator: str) -> None:
    block, image = [d.integer(1, 3) for _ in range(2)], [d.integer(3, 7) for _ in range(2)]
    strides, dilations = ([d.integer(1, 2) for _ in range(2)] if d.chance(0.4) else [1, 1] for _ in range(2))
    pads = [d.integer(0, 1) for _ in range(4)] if d.chance(0.4) else [0] * 4
    reach = [(k - 1) * by + 1 for k, by in zip(block, dilations, strict=True)]
    places = math.prod((image[at] + pads[at] + pads[at + 2] - reach[at]) // strides[at] + 1 for at in range(2))
    x = d.tensor(("float32",), shape=(d.integer(1, 2), d.integer(1, 3) * math.prod(block), places))
    attributes: Attributes = {"strides": strides, "dilations": dilations, "pads": pads}
    d.node(operator, [x, d.constant(image), d.constant(block)], attributes)


RULES: dict[str, Rule] = {
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
}
