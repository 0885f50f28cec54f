"""Earlier versions of programs: what their decisions mean today.

Until November 2026 a decision of a program that is written as a whole was a place in a list.  The lists of that time
are written down here, so that records of then can be read: some depend on the workload.  They never change, whatever is
offered today.

A program whose new version computes the same by the same names has a row in `EARLIER` for its earlier one.  Records of
versions without a row have no meaning today.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

import tvm

from kintune.compiler.kernels.contraction import DENSE, DEPTHWISE, GROUPED, OF_BLOCKWISE
from kintune.compiler.kernels.image_tiles import edges, even_widths, has_written_edges, tiles_of
from kintune.compiler.kernels.reading import require
from kintune.compiler.programs.attention_pattern import require_attention
from kintune.core.candidate import Axis, Choice, Decision, NamedChoice
from kintune.errors import BuildError

__all__ = ["EARLIER", "Earlier", "named_axes"]

Rows: TypeAlias = Sequence[Decision]
_Lists: TypeAlias = Callable[[tvm.IRModule, str], Mapping[str, Rows]]


class Earlier(NamedTuple):
    """An earlier version of a program: the name of the program that computes the same today, and its open decisions.

    `names` has the names of each axis, with spaces between, as they are called today.  The values of an axis are those
    of `lists` (of the workload and the variant), or the first ones of the list in `tables`, or else those that its
    sketch has.  `implied` has the values of names that today's program has and this one did not.
    """

    now: str
    names: tuple[str, ...] = ()
    tables: Mapping[str, Sequence[int]] = {}
    lists: _Lists = lambda _module, _variant: {}
    implied: Mapping[str, int] = {}


def named_axes(name: str, module: tvm.IRModule, axes: Sequence[Axis]) -> tuple[NamedChoice, ...]:
    """The axes of a sketch of the program and variant `name`, such as "tiled.1:16x32", with names.

    The value at a place of an axis is that which a decision with this place meant.

    Raises:
        BuildError: that cannot be known.
    """
    known, _, variant = name.partition(":")
    earlier = EARLIER.get(f"{known}:{variant.partition('-')[0]}", EARLIER.get(known))
    if earlier is None:
        raise BuildError(f"nothing is known of program {known}")
    named = tuple(axis for axis in axes if isinstance(axis, NamedChoice))
    if len(named) == len(axes):
        return named
    lists = earlier.lists(module, variant)
    found = []
    for names, axis in itertools.zip_longest(earlier.names[: len(axes)], axes):
        if names is None or not isinstance(axis, Choice):
            raise BuildError(f"the axes are not those of program {known}")
        values = earlier.tables.get(names, axis.values)[: len(axis.values)]
        rows = tuple(lists.get(names, _numbers(*values)))
        if len(rows) != len(axis.values):
            raise BuildError(f"{known} has {len(rows)} choices of {names} for this workload, not {len(axis.values)}")
        found.append(NamedChoice(tuple(names.split()), rows))
    return tuple(found)


def _numbers(*numbers: int) -> Rows:
    return [(number,) for number in numbers]


def _registers(variant: str) -> tuple[int, int]:
    lanes, _, registers = variant.removesuffix("deep").partition("x")
    return int(lanes), int(registers)


_PARTS = (1, 2, 3, 4, 6, 8, 12, 16)
_BLOCKS = (*_PARTS, 24, 32, 48, 64)
_TILED = {
    32: ((6, 4), (7, 4), (14, 2), (12, 2), (9, 3), (8, 3), (5, 4), (4, 4), (8, 2), (16, 1), (8, 1), (5, 5)),
    16: ((6, 2), (4, 3), (5, 2), (4, 2), (3, 4), (12, 1), (8, 1)),
}


def _tiled(module: tvm.IRModule, variant: str) -> Mapping[str, Rows]:
    found, (lanes, registers) = require(module, kinds=(DENSE,)).found, _registers(variant)
    vectors = -(-found.filters // lanes)
    known = [tile for tile in _TILED[registers] if tile[0] <= found.positions]
    dividing = [tile for tile in known if vectors % tile[1] == 0]
    filled = [tile for tile in known if vectors % tile[1] and vectors >= 0.9 * -(-vectors // tile[1]) * tile[1]]
    panels = [vectors, *sorted({-(-vectors // width) for _, width in (*dividing, *filled)})]
    parts = dict.fromkeys(parts for number in panels for parts in _PARTS if number % parts == 0)
    depths = (n for n in (2, 3, 4, 6, 8) if found.channels % n == 0 and found.channels // n >= 256)
    return {"rows vectors": (*dividing, *filled), "parts": _numbers(*parts), "depths": _numbers(*depths)}


def _direct(module: tvm.IRModule, variant: str) -> Mapping[str, Rows]:
    found, (lanes, registers) = require(module, kinds=(DENSE, GROUPED)).found, _registers(variant)
    columns = found.columns
    panels = {vectors: found.groups * -(-found.filters // (vectors * lanes)) for vectors in (1, 2, 3, 4)}
    use = {vectors: found.groups * found.filters / (number * vectors * lanes) for vectors, number in panels.items()}
    tiles = [
        (width, vectors)
        for vectors in panels
        if use[vectors] >= 0.9 * use[1]
        for width in even_widths(columns.results, (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 14, 16))
        if width * vectors + vectors + 1 <= registers and width * vectors >= min(4, columns.results)
        if has_written_edges(columns, width) or sum(edges(columns, width)) < len(tiles_of(columns, width))
    ]
    numbers = {panels[vectors] for _, vectors in tiles}
    parts = (parts for parts in _PARTS if any(number % parts == 0 for number in numbers))
    return {"rows vectors": tiles, "parts": _numbers(*parts)}


def _depthwise(module: tvm.IRModule, variant: str) -> Mapping[str, Rows]:
    found, (lanes, registers) = require(module, kinds=(DEPTHWISE,)).found, _registers(variant)
    across, kernel = found.columns, found.columns.kernel
    tiles = [
        (width, vectors)
        for vectors in (1, 2, 3, 4)
        if vectors <= -(-found.channels // lanes)
        for width in even_widths(across.results, (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16))
        if width * vectors + min(kernel, 4) + 1 <= registers and width * vectors * kernel <= 320
        if sum(edges(across, width)) < len(tiles_of(across, width)) or has_written_edges(across, width)
    ]
    return {"columns vectors": tiles}


def _streamed(module: tvm.IRModule, variant: str) -> Mapping[str, Rows]:
    found, (lanes, registers) = require(module, kinds=(DENSE,)).found, _registers(variant)
    heights = sorted({-(-found.positions // groups) for groups in range(1, found.positions + 1)}, reverse=True)
    tiles = [
        (rows, vectors)
        for rows, vectors in itertools.product(heights, (1, 2, 3, 4, 6, 8))
        if rows <= 24 and found.filters >= 0.6 * -(-found.filters // (vectors * lanes)) * vectors * lanes
        if rows * vectors + (vectors if rows > 1 else 1) <= registers
    ]
    return {"rows vectors": tiles}


_BLOCKWISE = {
    "permute": (
        *((1, 4, 0), (1, 8, 0), (1, 2, 0), (2, 4, 0), (3, 4, 0), (4, 2, 0), (6, 2, 0)),
        *((6, 4, 1), (5, 4, 1), (4, 4, 1)),
    ),
    "convert": ((1, 4, 0), (1, 2, 0), (2, 2, 0), (4, 1, 0), (6, 2, 1), (5, 2, 1), (4, 2, 1), (4, 3, 1)),
}


def _blockwise(module: tvm.IRModule, variant: str) -> Mapping[str, Rows]:
    way = variant.rstrip("0123456789")
    product = require(module, OF_BLOCKWISE).found
    found: list[Decision] = []
    for rows, vectors, unpacks in _BLOCKWISE[way]:
        if rows <= product.positions:
            panels = -(-product.filters // (vectors * int(variant.removeprefix(way))))
            parts = {-(-panels // -(-panels // each)) for each in (*_BLOCKS, 96, 128) if each <= panels}
            blocks = [each for each in _BLOCKS if each <= -(-product.positions // rows)]
            tasks = itertools.product(blocks, sorted(parts))
            found += [(rows, vectors, unpacks, *each) for each in tasks if each[0] * each[1] <= 192]
    return {"rows vectors unpacks blocks parts": found}


def _attention(module: tvm.IRModule, variant: str) -> Mapping[str, Rows]:
    lanes, registers = map(int, variant.split("-")[1:])
    pattern = require_attention(module)

    def best(most: int, number: int) -> list[tuple[int, int]]:
        tiles = [(min((registers - each - 1) // each, 14), each) for each in (4, 3, 2, 1) if each <= most]
        return sorted((t for t in tiles if t[0] > 1), key=lambda t: (t[0] + t[1]) / (t[0] * t[1]))[:number]

    scores = best(4, 3)
    mixes = best(-(-pattern.width // lanes), 2) if pattern.width >= lanes else []
    return {
        "score_rows score_vectors": scores,
        "mix_rows mix_vectors across": [*((*tile, 0) for tile in mixes), *((*tile, 1) for tile in scores)],
    }


_TILE, _SUM = ("rows", "vectors", "blocks", "parts"), ("rows vectors", "blocks", "parts")
_NAMED = ("narrow.5", "blockwise.2", "bytes.2", "byte_tiles.2", "recurrent.3", "depthwise.2")
"""Those whose decisions had the names of today: since then their loops are those of the nest or of the micro-kernel."""
EARLIER: Mapping[str, Earlier] = {
    "attention.1": Earlier(
        "attention", ("queries", "keys", "score_rows score_vectors", "mix_rows mix_vectors across"), lists=_attention
    ),
    "attention.1:rows": Earlier("attention", ("keys", "vectors")),
    "narrow_attention.2": Earlier("narrow_attention", ("blocks",)),
    "recurrent.2": Earlier("recurrent", ("units", "rows", "unroll")),
    "streamed.1": Earlier(
        "vectors",
        ("rows vectors", "ways", "parts", "ahead"),
        {"ways": (1, 2, 4), "parts": _PARTS, "ahead": (0, 2048, 8192)},
        _streamed,
        {"blocks": 1, "depths": 1},
    ),
    "depthwise.1": Earlier(
        "depthwise",
        ("columns vectors", "blocks", "parts", "tall"),
        {"blocks": (1, 2, 4, 7, 8, 14, 16, 28, 32), "parts": _PARTS, "tall": (0, 1)},
        _depthwise,
    ),
    "winograd_narrow.1": Earlier("winograd_narrow", _TILE),
    "winograd_blocked.3": Earlier("winograd_blocked", _TILE),
    "narrow.4": Earlier("narrow", ("units", "parts", "depth")),
    "tiled.1": Earlier("vectors", (*_SUM, "depths"), {"blocks": _BLOCKS}, _tiled, {"depths": 1, "ways": 1, "ahead": 0}),
    "blockwise.1": Earlier("blockwise", ("rows vectors unpacks blocks parts",), lists=_blockwise),
    "bytes.1": Earlier("bytes", ("rows", "vectors", "unroll", "blocks", "parts", "panels_first")),
    "byte_tiles.1": Earlier("byte_tiles", ("height", "tiles", "vectors", "blocks", "parts", "panels_first", "copies")),
    "direct.1": Earlier(
        "vectors",
        _SUM,
        {"blocks": (1, 2, 4, 7, 8, 14, 16, 28, 32, 56, 64)},
        _direct,
        {"depths": 1, "ways": 1, "ahead": 0},
    ),
    **{each: Earlier(each.partition(".")[0]) for each in _NAMED},
}
"""The earlier versions that have a meaning today, by name and version."""
