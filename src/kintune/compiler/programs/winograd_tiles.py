"""The transforms of one tile and some channels at once, unrolled: each value is bound to a variable."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from tvm import tirx

from kintune.compiler.kernels.contraction import Contraction
from kintune.compiler.kernels.loops import buffer, index
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
    that they are whole vectors.  Indices are of the type `index_type`.
    """

    m: int
    lanes: int
    images: int
    high: int
    wide: int
    channels: int
    filters: int
    index_type: str

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

    def at(self, value: Any) -> Any:
        """A number as an index; an expression as it is."""
        return index(value, self.index_type)

    def buffer(self, name: str, *shape: int) -> Any:
        """A buffer of this shape."""
        return buffer(name, shape, _TYPE, "global", self.index_type)


def transformed_weight(convolution: Contraction, g: Geometry, t: Any, c: Any, f: Any) -> Any:
    """Element `t` of G g G^T, as one expression: a block that is run when the network is built may not need another."""
    row, column = tirx.floordiv(t, g.at(g.side)), tirx.floormod(t, g.at(g.side))
    total: Any = None
    for i in range(KERNEL):
        inner: Any = None
        for j in range(KERNEL):
            term = convolution.weight(g.at(i), g.at(j), c, f) * _chosen(column, [line[j] for line in WEIGHTS[g.m]], g)
            inner = term if inner is None else inner + term
        term = inner * _chosen(row, [line[i] for line in WEIGHTS[g.m]], g)
        total = term if total is None else total + term
    return total


def _chosen(index: Any, values: Sequence[Any], g: Geometry) -> Any:
    """`values[index]` as a chain of choices."""
    result: Any = tirx.const(float(values[-1]), _TYPE)
    for at in range(len(values) - 2, -1, -1):
        result = tirx.Select(index == g.at(at), tirx.const(float(values[at]), _TYPE), result)
    return result


def place_of_tile(p: Any, lines: Lines, g: Geometry) -> tuple[Any, Any, Any]:
    """The image of a tile, and its place there."""
    row = tirx.floordiv(p, g.at(g.wide))
    across = lines.let(tirx.floormod(p, g.at(g.wide)), g.index_type)
    if g.images == 1:
        return g.at(0), lines.let(row, g.index_type), across
    image = lines.let(tirx.floordiv(p, g.at(g.high * g.wide)), g.index_type)
    return image, lines.let(tirx.floormod(row, g.at(g.high)), g.index_type), across


class Axis(NamedTuple):
    """One row or column of a tile: its index in the image, and the conditions under which it is inside."""

    index: Any
    inside: list[Any]

    @classmethod
    def of(cls, tile: Any, offsets: tuple[int, int], count: int, extent: int, g: Geometry, row: Any = None) -> Axis:
        """The row of a tile, one of `count`, at the first of the `offsets`, or `row` behind it; the image has `extent`.

        The last of the offsets is that of the last value of `row`.
        """
        first = g.at(offsets[0])
        index = tile * g.at(g.m) + (first if row is None else row + first)
        inside = [index >= g.at(0)] if offsets[0] < 0 else []
        if offsets[1] + (count - 1) * g.m >= extent:
            inside.append(index < g.at(extent))
        return cls(index, inside)

    def read(self, data: Any, image: Any, other: Axis, channel: Any) -> Any:
        """The value at this column and the row `other`; zero outside of the image."""
        load, inside = data[image, other.index, self.index, channel], [*other.inside, *self.inside]
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

    def vectorised(self, lane: Any, g: Geometry, lanes: int) -> Any:
        """The statements for so many lanes at once."""
        return tirx.For(lane, g.at(0), g.at(lanes), tirx.ForKind.VECTORIZED, tirx.SeqStmt(self._statements))

    def followed_by(self, statements: Sequence[Any]) -> Any:
        """These statements, and then others."""
        return tirx.SeqStmt([*self._statements, *statements])
