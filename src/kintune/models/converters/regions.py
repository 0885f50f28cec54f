"""Regions of images, pooled to one size."""

from __future__ import annotations

from tvm import relax

from kintune.models.converters.node import Node, empty
from kintune.models.converters.registration import OnnxOperator
from kintune.models.expressions import dtype_of, shape_of
from kintune.models.formulas import Real, choose

__all__ = ["OPERATORS"]

_MOST_POINTS = 1 << 30  # along an axis, which the kernel counts in 32 bits


def _roi_align(node: Node) -> relax.Expr:
    """Means over sampling points in each part of each region; values between pixels are interpolated.

    For half precision, coordinates and means are computed in float32.
    """
    data, regions, images = node.required(0), node.required(1), node.required(2)
    own, shape = dtype_of(data), shape_of(data)
    count, sizes = shape_of(regions)[0], [int(node.attributes.get(f"output_{side}", 1)) for side in ("height", "width")]
    mode = str(node.attributes.get("mode", "avg"))
    if mode != "avg":  # onnxruntime's maximum differs: it is over the weighted neighbours of each point
        raise ValueError(f"mode {mode!r} is not supported")
    default = "half_pixel" if node.opset >= 16 else "output_half_pixel"
    coordinates = str(node.attributes.get("coordinate_transformation_mode", default))
    if coordinates not in ("half_pixel", "output_half_pixel"):
        raise ValueError(f"coordinate_transformation_mode {coordinates!r} is not supported")
    if count == 0:
        return empty([0, shape[1], *sizes], own)
    if 0 in shape:  # the kernel would read a pixel, as onnxruntime does
        raise ValueError("an image without pixels is not supported")
    corners = node.wide(regions)
    shifted = coordinates == "half_pixel"
    x = Real(node, corners) * float(node.attributes.get("spatial_scale", 1.0))
    corners = (x - 0.5 if shifted else x).value
    points = int(node.attributes.get("sampling_ratio", 0))
    covered = None
    if points <= 0:
        covered = _covered(node, corners, may_be_empty=shifted)
        corners = node.emit(relax.op.where(covered, corners, relax.const([0.0, 0.0, 1.0, 1.0], dtype_of(corners))))
    pooled = node.emit(
        relax.op.vision.roi_align(
            node.wide(data),
            _with_images(node, images, corners),
            pooled_size=tuple(sizes),
            spatial_scale=1.0,
            sample_ratio=points,
            aligned=shifted,
            layout="NCHW",
            mode=mode,
        )
    )
    if covered is not None:
        pooled = choose(Real(node, node.reshape(covered, [count, 1, 1, 1])), Real(node, pooled), 0).value
    return node.cast(pooled, own)


def _covered(node: Node, corners: relax.Expr, may_be_empty: bool) -> relax.Expr:
    """Whether each region has at least one sampling point and not too many to count; the kernel needs both.

    This is for a number of points that depends on the size of the region (a `sampling_ratio` of 0).
    """
    starts, ends = (Real(node, node.slice(corners, 1, begin, begin + 2)) for begin in (0, 2))
    extents = ends - starts
    fits = (extents < _MOST_POINTS) & (extents > 0) if may_be_empty else extents < _MOST_POINTS
    across, down = (Real(node, node.slice(fits.value, 1, axis, axis + 1)) for axis in (0, 1))
    return (across & down).value


def _max_roi_pool(node: Node) -> relax.Expr:
    """Maxima of the pixels in the parts of each region, which is [image number, four corner coordinates]."""
    data, regions = node.required(0), node.required(1)
    sizes, shape, count = node.integers("pooled_shape", ()), shape_of(data), shape_of(regions)[0]
    if count == 0:
        return empty([0, shape[1], *sizes], dtype_of(data))
    if 0 in shape:  # the kernel would read a pixel
        return relax.op.zeros([count, shape[1], *sizes], dtype_of(data))
    wide = node.wide(regions)
    images, corners = (node.slice(wide, 1, *ends) for ends in ((0, 1), (1, 5)))
    scale = float(node.attributes.get("spatial_scale", 1.0))
    numbers = node.cast(node.reshape(images, [count]), "int64")
    return relax.op.vision.roi_pool(
        data, node.cast(_with_images(node, numbers, corners), dtype_of(data)), tuple(sizes), scale, layout="NCHW"
    )


def _with_images(node: Node, images: relax.Expr, corners: relax.Expr) -> relax.Expr:
    """Regions as the kernels take them: the number of the image, marked as an index, and then the corners."""
    size = shape_of(node.required(0))[0]
    image = node.index(images, [size], 0, negative=False)
    column = node.cast(node.emit(relax.op.expand_dims(image, [1])), dtype_of(corners))
    return node.emit(relax.op.concat([column, corners], 1))


OPERATORS = (
    OnnxOperator("MaxRoiPool", _max_roi_pool),
    OnnxOperator("RoiAlign", _roi_align),
)
