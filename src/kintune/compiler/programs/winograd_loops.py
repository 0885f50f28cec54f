"""The transforms of one tile and some channels at once, in loops over the tile's columns and then over its rows.

Unrolled (`winograd_tiles`) the transforms of a tile of 6 x 6 are four hundred vector statements, which take the
compiler half a second.  In loops they take it about half of that and run as fast.  Values that are transformed along
columns lie in a buffer in the first cache, where many of them would be spilled in any case: no CPU has 36 registers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import tirx

from kintune.compiler.kernels.contraction import Contraction
from kintune.compiler.kernels.epilogue import Epilogue
from kintune.compiler.kernels.loops import INDEX, index
from kintune.compiler.programs.winograd_tiles import Axis, Geometry, Lines, Place, place_of_tile
from kintune.compiler.programs.winograd_transforms import input_transform, output_transform

__all__ = ["half_of_tile", "looped_tile_of_data", "looped_tile_of_results"]


def half_of_tile(g: Geometry) -> Any:
    """The buffer for a tile that has been transformed along its columns, which each task allocates."""
    return g.buffer("half", g.side, g.side, g.lanes)


def looped_tile_of_data(
    convolution: Contraction, g: Geometry, p: Any, first: Any, lanes: int, half: Any, target: Any, at: Place
) -> Any:
    """B^T d B of the tile `p` and as many channels as lanes from the `first` on; `half` is a `half_of_tile`."""
    data, left = convolution.data, convolution.columns.before
    _, height, width, _ = (int(extent) for extent in data.shape)
    lines = Lines()
    n, y, x = place_of_tile(p, lines, g)
    offsets = [i - convolution.rows.before for i in range(g.side)]
    down = [Axis.of(y, (each, each), g.high, height, g) for each in offsets]

    def column(j: Any, inner: Lines, lane: Any) -> None:
        across = Axis.of(x, (-left, g.side - 1 - left), g.wide, width, g, j)
        channel = first + lane
        read = [inner.let(across.read(data, n, each, channel)) for each in down]
        for i, value in enumerate(input_transform(g.m, read, inner.let)):
            inner.add(tirx.BufferStore(half, value, [index(i), j, lane]))

    def row(i: Any, inner: Lines, lane: Any) -> None:
        read = [inner.let(half[i, index(j), lane]) for j in range(g.side)]
        for j, value in enumerate(input_transform(g.m, read, inner.let)):
            inner.add(tirx.BufferStore(target, value, at(i * index(g.side) + index(j), first + lane)))

    return lines.followed_by([_loop("column", g.side, lanes, column), _loop("row", g.side, lanes, row)])


def looped_tile_of_results(
    convolution: Contraction,
    g: Geometry,
    p: Any,
    first: Any,
    lanes: int,
    half: Any,
    products: Any,
    at: Place,
    epilogue: Epilogue | None,
) -> Any:
    """A^T p A of the tile `p` and as many filters as lanes from the `first` on, and the epilogue of each."""
    height, width = convolution.rows.results, convolution.columns.results
    lines = Lines()
    n, y, x = place_of_tile(p, lines, g)

    def column(j: Any, inner: Lines, lane: Any) -> None:
        read = [inner.let(products[tuple(at(index(i * g.side) + j, lane))]) for i in range(g.side)]
        for i, value in enumerate(output_transform(g.m, read, inner.let)):
            inner.add(tirx.BufferStore(half, value, [index(i), j, lane]))

    def row(i: Any, inner: Lines, lane: Any) -> None:
        down = Axis.of(y, (0, g.m - 1), g.high, height, g, i)
        read = [inner.let(half[i, index(j), lane]) for j in range(g.side)]
        for j, value in enumerate(output_transform(g.m, read, inner.let)):
            across = Axis.of(x, (j, j), g.wide, width, g)
            place, element = [n, down.place, across.place, first + lane], inner.let(value)
            if epilogue is None:
                store = tirx.BufferStore(convolution.result, element, place)
            else:
                store = epilogue.store(element, place)
            inner.add(store, [*down.inside, *across.inside])

    return lines.followed_by([_loop("column", g.side, lanes, column), _loop("row", g.m, lanes, row)])


def _loop(name: str, extent: int, lanes: int, body: Callable[[Any, Lines, Any], None]) -> Any:
    """A serial loop of vector statements; `body(variable, lines, lane)` adds them to `lines`."""
    variable, lane, lines = tirx.Var(name, INDEX), tirx.Var("lane", INDEX), Lines()
    body(variable, lines, lane)
    return tirx.For(variable, index(0), index(extent), tirx.ForKind.SERIAL, lines.vectorised(lane, lanes))
