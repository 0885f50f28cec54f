"""The transforms of one tile and some channels at once, in loops over the tile's columns and then over its rows.

Written out, the transforms of a tile of 6 x 6 are four hundred vector statements, which take the compiler half a
second.  In loops they take it about half of that and run as fast.  Values that are transformed along columns lie in a
buffer in the first cache, where many of them would be spilled in any case: no CPU has 36 registers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from tvm import tirx

from kintune.compiler.kernels.contraction import Contraction
from kintune.compiler.kernels.epilogue import Epilogue
from kintune.compiler.kernels.loops import buffer, index, unravelled
from kintune.compiler.programs.kernel_writer import add, bind, conditional, repeat, store, vector, written
from kintune.compiler.programs.winograd_transforms import KERNEL, WEIGHTS, input_transform, output_transform

__all__ = ["Geometry", "Place", "half_of_tile", "tile_of_data", "tile_of_results", "transformed_weight"]

_TYPE = "float32"

Place = Callable[[Any, Any], list[Any]]
"""The indices at which a buffer has the value of a place within a tile, for a channel."""


class Geometry(NamedTuple):
    """Tiles of `m` x `m` results, `high` by `wide` of them in each of `images`; `lanes` channels are computed at once.

    Numbers of tiles may be expressions where a program is written for any of them; tiles are then of one `image`.

    `channels` are those of the data, `filters` those of the result; by blocks, filters of zeros may be among them, so
    that they are whole vectors.
    """

    m: int
    lanes: int
    images: int
    high: Any
    wide: Any
    channels: int
    filters: int
    image: Any = None

    @property
    def side(self) -> int:
        """The height and width of a tile of data."""
        return self.m + KERNEL - 1

    @property
    def places(self) -> int:
        """The values of a tile of data."""
        return self.side**2

    @property
    def tiles(self) -> Any:
        """The tiles of all images."""
        return self.images * self.high * self.wide

    def buffer(self, name: str, *shape: int) -> Any:
        """A buffer of this shape."""
        return buffer(name, shape, _TYPE, "global")


def transformed_weight(convolution: Contraction, g: Geometry, t: Any, c: Any, f: Any) -> Any:
    """Element `t` of G g G^T, as one expression: a block that is run when the network is built may not need another."""
    row, column = tirx.floordiv(t, index(g.side)), tirx.floormod(t, index(g.side))
    total: Any = None
    for i in range(KERNEL):
        inner: Any = None
        for j in range(KERNEL):
            term = convolution.weight(index(i), index(j), c, f) * _chosen(column, [line[j] for line in WEIGHTS[g.m]])
            inner = term if inner is None else inner + term
        term = inner * _chosen(row, [line[i] for line in WEIGHTS[g.m]])
        total = term if total is None else total + term
    return total


def _chosen(place: Any, values: Sequence[Any]) -> Any:
    """`values[place]` as a chain of choices."""
    result: Any = tirx.const(float(values[-1]), _TYPE)
    for at in range(len(values) - 2, -1, -1):
        result = tirx.Select(place == index(at), tirx.const(float(values[at]), _TYPE), result)
    return result


def _place_of_tile(p: Any, g: Geometry) -> list[Any]:
    """The image of a tile, and its place there."""
    if g.image is not None:
        return [g.image, *(bind(each) for each in unravelled(p, (g.high, g.wide)))]
    places = unravelled(p, (g.images, g.high, g.wide))
    return [each if isinstance(each, tirx.IntImm) else bind(each) for each in places]


class _Axis(NamedTuple):
    """One row or column of a tile: its place in the image, and the conditions under which it is inside."""

    place: Any
    inside: list[Any]

    @classmethod
    def of(cls, tile: Any, offsets: tuple[int, int], count: Any, extent: Any, g: Geometry, row: Any = None) -> _Axis:
        """The row of a tile, one of `count`, at the first of the `offsets`, or `row` behind it; the image has `extent`.

        The last of the offsets is that of the last value of `row`.
        """
        first = index(offsets[0])
        place = tile * index(g.m) + (first if row is None else row + first)
        inside = [place >= index(0)] if offsets[0] < 0 else []
        if not isinstance(extent, int) or offsets[1] + (count - 1) * g.m >= extent:
            inside.append(place < index(extent))
        return cls(place, inside)

    def read(self, data: Any, image: Any, other: _Axis, channel: Any) -> Any:
        """The value at this column and the row `other`; zero outside of the image."""
        load, inside = data[image, other.place, self.place, channel], [*other.inside, *self.inside]
        return tirx.if_then_else(tirx.all(*inside), load, tirx.const(0.0, _TYPE)) if inside else load


def half_of_tile(g: Geometry) -> Any:
    """The buffer for a tile that has been transformed along its columns, which each task allocates."""
    return g.buffer("half", g.side, g.side, g.lanes)


def tile_of_data(
    convolution: Contraction, g: Geometry, p: Any, first: Any, lanes: int, half: Any, target: Any, at: Place
) -> Any:
    """B^T d B of the tile `p` and as many channels as lanes from the `first` on; `half` is a `half_of_tile`."""
    data, left = convolution.data, convolution.columns.before
    height, width = convolution.rows.size, convolution.columns.size

    def statements() -> None:
        n, y, x = _place_of_tile(p, g)
        offsets = [i - convolution.rows.before for i in range(g.side)]
        down = [_Axis.of(y, (each, each), g.high, height, g) for each in offsets]
        with repeat(g.side, "column") as j, vector(lanes) as lane:
            across = _Axis.of(x, (-left, g.side - 1 - left), g.wide, width, g, j)
            read = [bind(across.read(data, n, each, first + lane)) for each in down]
            for i, value in enumerate(input_transform(g.m, read, bind)):
                store(half, value, i, j, lane)
        with repeat(g.side, "row") as i, vector(lanes) as lane:
            read = [bind(half[i, index(j), index(lane)]) for j in range(g.side)]
            for j, value in enumerate(input_transform(g.m, read, bind)):
                store(target, value, *at(i * index(g.side) + index(j), first + lane))

    return written(statements)


def tile_of_results(
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

    def result(value: Any, place: Sequence[Any]) -> None:
        if epilogue is None:
            store(convolution.result, value, *place)
        else:
            add(epilogue.store(value, place))

    def statements() -> None:
        n, y, x = _place_of_tile(p, g)
        with repeat(g.side, "column") as j, vector(lanes) as lane:
            read = [bind(products[tuple(at(index(i * g.side) + j, lane))]) for i in range(g.side)]
            for i, value in enumerate(output_transform(g.m, read, bind)):
                store(half, value, i, j, lane)
        with repeat(g.m, "row") as i, vector(lanes) as lane:
            down = _Axis.of(y, (0, g.m - 1), g.high, height, g, i)
            read = [bind(half[i, index(j), index(lane)]) for j in range(g.side)]
            for j, value in enumerate(output_transform(g.m, read, bind)):
                across = _Axis.of(x, (j, j), g.wide, width, g)
                element = bind(value)
                with conditional(*down.inside, *across.inside):
                    result(element, [n, down.place, across.place, first + lane])

    return written(statements)
