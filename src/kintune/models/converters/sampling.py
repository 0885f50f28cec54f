"""Images sampled at points of a grid, and grids of affine maps; half precision is computed in float32."""

from __future__ import annotations

import numpy as np
from tvm import relax

from kintune.models.converters.node import Node
from kintune.models.converters.registration import FLOATS, OnnxOperator
from kintune.models.expressions import dtype_of, shape_of
from kintune.models.interpolation import sampled

__all__ = ["OPERATORS"]

_METHODS = {
    "bicubic": "bicubic",
    "bilinear": "bilinear",
    "cubic": "bicubic",
    "linear": "bilinear",
    "nearest": "nearest",
}
_RANKS = (4, 5)


def _grid_sample(node: Node) -> relax.Expr:
    data, grid = node.wide(node.required(0)), node.wide(node.required(1))
    rank = len(shape_of(data))
    mode = str(node.attributes.get("mode", "bilinear"))
    if rank not in _RANKS or mode not in _METHODS:
        raise ValueError(f"mode {mode!r} over {rank - 2} dimensions is not supported")
    if rank == 5 and _METHODS[mode] == "bicubic":
        raise ValueError("cubic interpolation over 3 dimensions is not supported")
    coordinates = node.emit(relax.op.permute_dims(grid, [0, rank - 1, *range(1, rank - 1)]))
    found = sampled(
        node,
        data,
        node.cast(coordinates, dtype_of(data)),
        _METHODS[mode],
        str(node.attributes.get("padding_mode", "zeros")),
        align_corners=bool(node.attributes.get("align_corners", 0)),
    )
    return node.cast(found, dtype_of(node.required(0)))


def _affine_grid(node: Node) -> relax.Expr:
    """The coordinates of the points of an image after an affine map: [batch, *spatial sizes, coordinates]."""
    theta, size = node.required(0), node.constant(1)
    if size is None or size.size not in _RANKS:
        raise ValueError("its size is not that of images, or of volumes")
    corners = bool(node.attributes.get("align_corners", 0))
    spatial = tuple(int(extent) for extent in size.reshape(-1)[2:])
    if corners and (1 in spatial or dtype_of(theta) == "float64"):  # TVM's step is off by 1e-7
        return _grid_of_points(node, theta, spatial)
    grid = node.emit(relax.op.image.affine_grid(node.wide(theta), spatial, corners))
    return node.cast(node.emit(relax.op.permute_dims(grid, [0, *range(2, size.size), 1])), dtype_of(theta))


def _grid_of_points(node: Node, theta: relax.Expr, spatial: tuple[int, ...]) -> relax.Expr:
    """The grid from a table of all points, whose outermost are corners; an axis of one point has it at 1, as in
    onnxruntime.
    """
    places = [np.linspace(-1, 1, extent) if extent > 1 else np.ones(1) for extent in spatial]
    axes = np.meshgrid(*places, indexing="ij")
    points = np.stack([axis.reshape(-1) for axis in (*reversed(axes), np.ones(spatial))], axis=-1)
    wide = node.wide(theta)
    table = relax.const(points.astype(dtype_of(wide)), dtype_of(wide))
    found = node.emit(relax.op.matmul(table, node.emit(relax.op.permute_dims(wide, [0, 2, 1]))))
    shaped = node.emit(relax.op.reshape(found, [shape_of(theta)[0], *spatial, len(spatial)]))
    return node.cast(shaped, dtype_of(theta))


OPERATORS = (
    OnnxOperator("AffineGrid", _affine_grid, constants={1: "size"}),
    OnnxOperator("GridSample", _grid_sample, types={0: FLOATS}),
)
