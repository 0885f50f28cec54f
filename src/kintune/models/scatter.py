"""Writing elements by an index along one axis: ONNX's `ScatterElements`, PyTorch's `scatter`."""

from __future__ import annotations

from collections.abc import Callable

from tvm import relax

__all__ = ["scatter_elements"]


def scatter_elements(
    emit: Callable[[relax.Expr], relax.Expr],
    data: relax.Expr,
    index: relax.Expr,
    updates: relax.Expr,
    axis: int,
    reduction: str,
) -> relax.Expr:
    """`data` with `updates` written where `index` says along `axis` (not negative), by the compiler's `reduction`.

    `index` and `updates` have one shape; along other axes than `axis` it may be smaller than that of `data`.  The
    compiler's kernel writes at wrong places when two axes lie on one side of `axis` and the inner one is smaller.  So
    it is given the part of `data` that can be written, and the rest is put around it.  `emit` binds an expression to a
    variable.
    """
    sizes = [int(size) for size in data.ty.shape]
    wanted = [int(size) for size in index.ty.shape]
    smaller = [at for at, size in enumerate(sizes) if at != axis and wanted[at] < size]
    part = data
    for at in smaller:
        part = emit(relax.op.strided_slice(part, [at], [0], [wanted[at]]))
    written = emit(relax.op.scatter_elements(part, index, updates, axis, reduction))
    for place in reversed(range(len(smaller))):
        at = smaller[place]
        rest = emit(relax.op.strided_slice(data, [at], [wanted[at]], [sizes[at]]))
        for before in smaller[:place]:
            rest = emit(relax.op.strided_slice(rest, [before], [0], [wanted[before]]))
        written = emit(relax.op.concat([written, rest], at))
    return written
