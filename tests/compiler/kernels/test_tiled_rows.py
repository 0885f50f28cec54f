"""Tiles of rows: each result has the products that lie in the image, each once, and nothing else is read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.interpreter import evaluate

pytestmark = pytest.mark.tvm

FEW = 16  # positions, or fewer, of which tiles may be written out


@st.composite
def reaches(draw: Any, results: int, *, plain: bool = False) -> Any:
    """What a sum reads along an axis with so many results, such that each reads something of the image at most."""
    from kintune.compiler.kernels.contraction import Reach

    kernel = 1 if plain else draw(st.integers(1, 4))
    stride, dilation = draw(st.integers(1, 3)), draw(st.integers(1, 3)) if kernel > 1 else 1
    read = (results - 1) * stride + (kernel - 1) * dilation + 1
    before = 0 if plain else draw(st.integers(0, min(3, read - 1)))
    after = 0 if plain else draw(st.integers(0, min(3, read - 1 - before)))
    slack = draw(st.integers(0, 2))  # of the image, behind what is read
    return Reach(read - before - after + slack * (not after), results, kernel, stride, dilation, before, after)


@st.composite
def contractions(draw: Any) -> Any:
    """Sums of all three walks, whose weight at (i, j, c, f, group) is a number that tells these."""
    from tvm import tirx

    from kintune.compiler.kernels.contraction import DENSE, GROUPED, OF_FLOATS, Contraction, Reach
    from kintune.compiler.kernels.loops import INDEX, buffer

    images, channels, filters = draw(st.integers(1, 2)), draw(st.integers(1, 2)), 3
    form = draw(st.sampled_from(("matrix", "image", "image", "pointwise", "groups")))
    kind, groups = (GROUPED, draw(st.integers(2, 3))) if form == "groups" else (DENSE, 1)
    if form == "matrix":
        images, rows, columns = 1, Reach(), Reach(size := draw(st.integers(1, 17)), size)
    else:
        plain = form == "pointwise"
        rows = draw(reaches(draw(st.integers(1, 4)), plain=plain))
        columns = draw(reaches(draw(st.integers(1, 9)), plain=plain))
    axis = [groups] if kind == GROUPED else []
    lead = [rows.results, columns.results] if form != "matrix" else [columns.results]
    result = buffer("result", [*([images] if form != "matrix" else []), *lead, *axis, filters], "float32")
    data = buffer("data", [images, rows.size, columns.size, *axis, channels], "float32")
    variables = tuple(tirx.Var(name, INDEX) for name in "ijcfg")
    number = variables[0]
    for each in variables[1:]:
        number = number * 16 + each
    return Contraction(
        (), (), kind, OF_FLOATS, data, None, result, (), images, rows, columns, number, variables
    )  # fmt: skip


def executed(statement: Any, run: Callable[[Any, dict[Any, Any]], None], given: dict[Any, Any] | None = None) -> None:
    """Run a statement of loops and conditions; `run` is given each call in it, with the values of the variables.

    Those `given` are not its own.
    """
    import tvm
    from tvm import tirx

    def visit(node: Any, values: dict[Any, Any]) -> None:
        if isinstance(node, tvm.tirx.SeqStmt):
            for each in node.seq:
                visit(each, values)
        elif isinstance(node, tirx.For):
            assert int(evaluate(node.min, values, {})) == 0
            for at in range(int(evaluate(node.extent, values, {}))):
                visit(node.body, {**values, node.loop_var: at})
        elif isinstance(node, tirx.IfThenElse):
            if evaluate(node.condition, values, {}):
                visit(node.then_case, values)
            elif node.else_case is not None:
                visit(node.else_case, values)
        else:
            run(node.value, values)

    visit(statement, given or {})


def call(name: str, *numbers: Any) -> Any:
    """A statement that gives these numbers to a function."""
    from tvm import tirx

    from kintune.compiler.kernels.loops import index

    return tirx.Evaluate(tirx.call_extern("int32", name, *map(index, numbers)))


def products_of(rows: Any, image: int, block: int, group: int) -> list[tuple[tuple[int, ...], list[tuple[int, int]]]]:
    """The positions of a task by their indices, each with its products: numbers of a value of data and of the sum."""
    from kintune.compiler.kernels.loops import index, sequence

    axes = len(rows.found.extents)
    found: list[tuple[tuple[int, ...], list[tuple[int, int]]]] = []

    def computed(tile: Any, _: Any) -> Any:
        def multiply(some: Sequence[int], source: Callable[[int], Any], value: Any, number: int) -> Any:
            flat = [each for row in some for each in (row, source(row))]
            return call("multiply", tile.number, tile.pitch, value, number, *flat)

        places = [call("row", *tile.place(row)) for row in range(tile.number)]
        return sequence([*places, *rows.products(tile, multiply)])

    def run(made: Any, values: dict[Any, Any]) -> None:
        name, *numbers = made.args
        given = [int(evaluate(each, values, {})) for each in numbers]
        if str(name.value) == "row":
            assert len(given) == axes
            found.append((tuple(given), []))
            return
        height, pitch, value, number, *flat = given
        some, sources = flat[::2], flat[1::2]
        for (row, source), following in zip(
            zip(some, sources, strict=True), [*zip(some[1:], sources[1:], strict=True), (-1, 0)], strict=True
        ):
            found[len(found) - height + row][1].extend((source + at, value + at) for at in range(number))
            assert not pitch or following[0] != row + 1 or following[1] == source + pitch

    executed(rows.tiles(index(image), index(block), index(group), computed), run)
    return found


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_each_result_has_its_products_once(data: st.DataObject) -> None:
    from kintune.compiler.kernels.image_tiles import inner_tiles, is_shared
    from kintune.compiler.kernels.loops import index
    from kintune.compiler.kernels.tiled_rows import TiledRows, Walk, live_part, walk_of

    found = data.draw(contractions())
    walk = walk_of(found, data.draw(st.sampled_from((FEW, 1))))
    across = live_part(found.columns).reach
    height = data.draw(st.integers(1, min(6, across.results if walk is Walk.LINES else found.positions)))
    shared = {
        Walk.EVERY: found.positions // height,
        Walk.FEW: 1,
        Walk.LINES: found.rows.results if found.rows.results > 1 else max(1, inner_tiles(across, height)),
    }[walk]
    blocks = data.draw(st.sampled_from([each for each in range(1, 7) if is_shared(shared, each)] or [1]))
    rows = TiledRows(found, walk, height, blocks)
    tasks = [(n, b, g) for n in range(rows.batches) for b in range(blocks) for g in range(found.groups)]
    computed = [each for task in tasks for each in products_of(rows, *task)]
    assert Counter(place for place, _ in computed) == Counter(np.ndindex(found.extents))

    down, across = found.rows, found.columns

    def weight(value: int, f: int = 0, group: int = 0) -> int:
        return int(evaluate(rows.weight(index(value), index(f), index(group)), {}, {}))

    assert (weight(0, f=2) - weight(0), weight(0, group=1) - weight(0)) == (2 << 4, 1)
    numbers = [weight(value) for value in range(rows.depth)]
    names = [(each >> 16, each >> 12 & 15, each >> 8 & 15) for each in numbers]  # i, j, c of the values of a sum
    shape = (found.images, down.size, across.size, found.groups, found.channels)
    for place, products in computed:
        (*lead, group) = place if found.groups > 1 else (*place, 0)
        n, y, x = np.unravel_index(
            int(np.ravel_multi_index(lead, [*found.extents][: len(lead)])), (found.images, down.results, across.results)
        )
        expected = [
            (int(np.ravel_multi_index((n, line, column, group, c), shape)), (i, j, c))
            for i in range(down.kernel)
            for j in range(across.kernel)
            for c in range(found.channels)
            if 0 <= (line := y * down.stride + i * down.dilation - down.before) < down.size
            if 0 <= (column := x * across.stride + j * across.dilation - across.before) < across.size
        ]
        assert sorted((at, names[value]) for at, value in products) == sorted(expected), (place, walk)


def tiles_of(rows: Any, block: int, number: int) -> list[tuple[int, list[int]]]:
    """The tiles of a block where there are so many rows: the number of each in its loop, or -1, and its rows."""
    from kintune.compiler.kernels.loops import index

    def tile(found: Any, counted: Any) -> Any:
        places = [at for row in range(found.number) for at in found.place(row)]
        return call("tile", -1 if counted is None else counted, *places)

    found: list[tuple[int, list[int]]] = []

    def run(made: Any, values: dict[Any, Any]) -> None:
        counted, *places = [int(evaluate(each, values, {})) for each in made.args[1:]]
        found.append((counted, places))

    executed(rows.tiles(index(0), index(block), index(0), tile), run, {rows.number: number})
    return found


@pytest.mark.parametrize("height", [1, 2, 5, 8, 14])
def test_the_same_statements_go_through_any_number_of_rows(height: int) -> None:
    """Each row is in one tile, and blocks have about as many tiles."""
    from kintune.compiler.kernels.contraction import DENSE, OF_FLOATS, Contraction, Reach
    from kintune.compiler.kernels.loops import buffer
    from kintune.compiler.kernels.tiled_rows import TiledRows, Walk

    data, result = buffer("data", [1, 1, 40, 2], "float32"), buffer("result", [40, 3], "float32")
    found = Contraction(
        (), (), DENSE, OF_FLOATS, data, None, result, (), 1, Reach(), Reach(40, 40), None, ()
    )  # fmt: skip
    rows = TiledRows(found, Walk.EVERY, height, 3, 40)
    (begun,) = rows.begun
    assert begun.var.same_as(rows.number)
    assert int(begun.value) == 40
    for number in range(1, 41):
        blocks = [tiles_of(rows, block, number) for block in range(3)]
        assert sorted(row for tiles in blocks for _, places in tiles for row in places) == list(range(number))
        looped = [[places for counted, places in tiles if counted >= 0] for tiles in blocks]
        assert all(len(places) == height for tiles in looped for places in tiles)
        assert all(
            [n for n, _ in tiles if n >= 0] == list(range(len(each)))
            for tiles, each in zip(blocks, looped, strict=True)
        )
        shares = [-(-sum(len(places) for _, places in tiles) // height) for tiles in blocks]
        assert max(shares) - min(shares) <= 1
