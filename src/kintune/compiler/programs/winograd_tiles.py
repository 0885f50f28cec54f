"""The transforms of one tile and some channels at once, unrolled: each value is bound to a variable."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from tvm import tirx

from kintune.compiler.kernels.contraction import Contraction
from kintune.compiler.kernels.loops import INDEX, buffer, index, unravelled
from kintune.compiler.programs.winograd_transforms import KERNEL, WEIGHTS

__all__ = [
    "Axis",
    "Geometry",
    "Lines",
    "Place",
    "place_of_tile",
    "transformed_weight",
]

_TYPE = "float32"

Place = Callable[[Any, Any], list[Any]]
"""The indices at which a buffer has the value of a place within a tile, for a channel."""


class Geometry(NamedTuple):
    """Tiles of `m` x `m` results, `high` by `wide` of them in each of `images`; `lanes` channels are computed at once.

    `channels` are those of the data, `filters` those of the result; by blocks, filters of zeros may be among them, so
    that they are whole vectors.
    """

    m: int
    lanes: int
    images: int
    high: int
    wide: int
    channels: int
    filters: int

    @property
    def side(self) -> int:
        """The height and width of a tile of data."""
        return self.m + KERNEL - 1

    @property
    def places(self) -> int:
        """The values of a tile of data."""
        return self.side**2

    @property
    def tiles(self) -> int:
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


def place_of_tile(p: Any, lines: Lines, g: Geometry) -> list[Any]:
    """The image of a tile, and its place there."""
    places = unravelled(p, (g.images, g.high, g.wide))
    return [each if isinstance(each, tirx.IntImm) else lines.let(each, INDEX) for each in places]


class Axis(NamedTuple):
    """One row or column of a tile: its place in the image, and the conditions under which it is inside."""

    place: Any
    inside: list[Any]

    @classmethod
    def of(cls, tile: Any, offsets: tuple[int, int], count: int, extent: int, g: Geometry, row: Any = None) -> Axis:
        """The row of a tile, one of `count`, at the first of the `offsets`, or `row` behind it; the image has `extent`.

        The last of the offsets is that of the last value of `row`.
        """
        first = index(offsets[0])
        place = tile * index(g.m) + (first if row is None else row + first)
        inside = [place >= index(0)] if offsets[0] < 0 else []
        if offsets[1] + (count - 1) * g.m >= extent:
            inside.append(place < index(extent))
        return cls(place, inside)

    def read(self, data: Any, image: Any, other: Axis, channel: Any) -> Any:
        """The value at this column and the row `other`; zero outside of the image."""
        load, inside = data[image, other.place, self.place, channel], [*other.inside, *self.inside]
        return tirx.if_then_else(tirx.all(*inside), load, tirx.const(0.0, _TYPE)) if inside else load


class Lines:
    """A sequence of statements: bindings of values, and stores."""

    def __init__(self) -> None:
        self._statements: list[Any] = []

    def let(self, value: Any, dtype: str = _TYPE) -> Any:
        """A new variable that is bound to the value."""
        variable = tirx.Var(f"v{len(self._statements)}", dtype)
        self._statements.append(tirx.Bind(variable, value))
        return variable

    def add(self, statement: Any, conditions: Sequence[Any] = ()) -> None:
        """Append a statement, which runs where all conditions hold."""
        self._statements.append(tirx.IfThenElse(tirx.all(*conditions), statement, None) if conditions else statement)

    def vectorised(self, lane: Any, lanes: int) -> Any:
        """The statements for so many lanes at once."""
        return tirx.For(lane, index(0), index(lanes), tirx.ForKind.VECTORIZED, tirx.SeqStmt(self._statements))

    def followed_by(self, statements: Sequence[Any]) -> Any:
        """These statements, and then others."""
        return tirx.SeqStmt([*self._statements, *statements])
