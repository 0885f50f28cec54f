"""Rules for convolutions, pools, and what else reads a window."""

from __future__ import annotations

import math

import numpy as np

from kintune_lab.fuzz.drawing import Attributes, Drawer, Rule
from kintune_lab.fuzz.values import BYTES, FLOATS, LeafRole

__all__ = ["RULES", "groups", "window"]


def window(d: Drawer, spatial: tuple[int, ...], *, dilated: bool = True) -> tuple[tuple[int, ...], Attributes]:
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


def groups(d: Drawer, channels: int) -> tuple[int, int]:
    """A number of groups, and of output channels."""
    group = int(d.choice([1, 1, 1, channels, *(g for g in (2, 4) if channels % g == 0)]))
    return group, group * int(d.choice((1, 1, 2, 3, 8)))


def _conv(d: Drawer, operator: str) -> None:
    x = _image(d)
    _, channels, *spatial = d.array(x).shape
    kernel, attributes = window(d, tuple(spatial))
    group, features = groups(d, channels)
    inputs = [x, d.tensor((d.dtype(x),), shape=(features, channels // group, *kernel))]
    if d.chance(0.5):
        inputs.append(d.tensor((d.dtype(x),), shape=(features,)))
    if d.chance(0.5):
        attributes["kernel_shape"] = kernel
    d.node(operator, inputs, attributes | {"group": group})


def _conv_transpose(d: Drawer, operator: str) -> None:
    x = _image(d)
    _, channels, *spatial = d.array(x).shape
    kernel, attributes = window(d, tuple(spatial))
    group = int(d.choice([1, 1, *(g for g in (2, 4) if channels % g == 0)]))
    features = int(d.choice((1, 2, 3, 8)))
    inputs = [x, d.leaf(d.dtype(x), (channels, features, *kernel), LeafRole(-2, 2))]  # zeros are multiplied with them
    if d.chance(0.5):
        inputs.append(d.tensor((d.dtype(x),), shape=(features * group,)))
    if d.chance(0.3) and "strides" in attributes:
        attributes["output_padding"] = [d.integer(0, stride - 1) for stride in attributes["strides"]]
    elif d.chance(0.2):
        strides = attributes.get("strides", [1] * len(kernel))
        attributes["output_shape"] = [e * by + d.integer(0, 2) for e, by in zip(spatial, strides, strict=True)]
        attributes.pop("pads", None)
    d.node(operator, inputs, attributes | {"group": group})


def _pool(d: Drawer, operator: str) -> None:
    x = _image(d, (*FLOATS, *BYTES) if operator == "MaxPool" and d.opset >= 12 else FLOATS)
    dilated = d.opset >= {"MaxPool": 10, "AveragePool": 19, "LpPool": 18}[operator]
    kernel, attributes = window(d, d.array(x).shape[2:], dilated=dilated)
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
    x = d.tensor(("float32",), rank=4, where=lambda v: min(v.shape) > 0 and min(v.shape[2:]) > 1)
    kernel = (2, 2)
    pooled = d.node("MaxPool", [x], {"kernel_shape": kernel, "strides": kernel}, 2)
    d.node(operator, pooled, {"kernel_shape": kernel, "strides": kernel})


def _deform_conv(d: Drawer, operator: str) -> None:
    x = d.tensor(("float32", "float64"), rank=4, where=lambda v: 0 < v.size <= 2000)  # the reference is slow
    batch, channels, *spatial = d.array(x).shape
    kernel, attributes = window(d, tuple(spatial))
    attributes.pop("auto_pad", None)
    group, features = groups(d, channels)
    offsets = int(d.choice([1, 1, *(by for by in (2, channels) if channels % by == 0)]))
    attributes |= {"kernel_shape": kernel, "group": group, "offset_group": offsets}
    pads = attributes.get("pads", [0] * 4)
    strides, dilations = (attributes.get(name, [1, 1]) for name in ("strides", "dilations"))
    out = [
        (extent + pads[at] + pads[at + 2] - dilations[at] * (kernel[at] - 1) - 1) // strides[at] + 1
        for at, extent in enumerate(spatial)
    ]
    dtype, taps = (d.dtype(x),), offsets * math.prod(kernel)
    inputs = [x, d.tensor(dtype, shape=(features, channels // group, *kernel))]
    inputs.append(d.tensor(dtype, shape=(batch, 2 * taps, *out)))
    inputs.append(d.tensor(dtype, shape=(features,)) if d.chance(0.4) else "")
    inputs.append(d.tensor(dtype, shape=(batch, taps, *out)) if d.chance(0.4) else "")
    while not inputs[-1]:
        inputs.pop()
    d.node(operator, inputs, attributes)


def _roi(d: Drawer, operator: str) -> None:
    x = d.tensor(("float32", "float64") if operator == "RoiAlign" else ("float32",), rank=4)
    batch = d.array(x).shape[0]
    boxes = d.integer(1, 4)
    rois = d.leaf(d.dtype(x), (boxes, 4), LeafRole(0, 6, sorted_=True))
    if operator == "RoiAlign":
        attributes: Attributes = {"output_height": d.integer(1, 3), "output_width": d.integer(1, 3)}
        attributes |= {"sampling_ratio": d.integer(0, 2), "spatial_scale": d.choice((1.0, 0.5))}
        attributes["mode"] = d.choice(("avg", "max"))
        if d.opset >= 16:
            attributes["coordinate_transformation_mode"] = d.choice(("half_pixel", "output_half_pixel"))
        d.node(operator, [x, rois, d.indices((boxes,), batch, "int64", negative=False)], attributes)
        return
    with_batch = np.concatenate([np.zeros((boxes, 1), np.float32), d.array(rois)], axis=1)
    d.node(
        operator,
        [x, d.constant(with_batch, "float32")],
        {"pooled_shape": [d.integer(1, 3), d.integer(1, 3)], "spatial_scale": d.choice((1.0, 0.5))},
    )


RULES: dict[str, Rule] = {
    "Conv": _conv,
    "ConvTranspose": _conv_transpose,
    **dict.fromkeys(("AveragePool", "MaxPool", "LpPool"), _pool),
    "MaxUnpool": _max_unpool,
    "DeformConv": _deform_conv,
    **dict.fromkeys(("RoiAlign", "MaxRoiPool"), _roi),
}
