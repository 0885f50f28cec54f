"""Writes statements of programs of our own: loops, sequences and buffers."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import tvm
import tvm_ffi
from tvm import tirx

__all__ = [
    "INDEX",
    "as_root",
    "buffer",
    "index",
    "loop",
    "nested",
    "over",
    "over_rows",
    "pieces",
    "replaced",
    "sequence",
    "unravelled",
]

INDEX = "int64"
"""The type of loop variables, which is that of the functions that come from a network."""

_TASKS = 256
"""Parts into which rows are divided, at most."""


def index(value: Any) -> Any:
    """A number as an index; an expression as it is."""
    return tirx.IntImm(INDEX, value) if isinstance(value, int) else value


def buffer(name: str, shape: Sequence[Any], dtype: str, scope: str = "local") -> Any:
    """A new buffer; a statement `AllocBuffer` or a block must allocate it."""
    return tirx.decl_buffer([index(extent) for extent in shape], dtype, name, scope=scope)


def loop(name: str, extent: Any, body: Callable[[Any], Any], kind: Any = tirx.ForKind.SERIAL) -> Any:
    """A loop over a new variable from 0 to `extent`; no loop where that is 1, for the sake of shorter programs."""
    if isinstance(extent, int) and extent == 1:
        return body(index(0))
    variable = tirx.Var(name, INDEX)
    return tirx.For(variable, index(0), index(extent), kind, body(variable))


def over(names: str, extents: Sequence[Any], body: Callable[..., Any]) -> Any:
    """Serial loops over new variables, whose names are letters."""
    if not names:
        return body()
    return loop(names[0], extents[0], lambda at: over(names[1:], extents[1:], partial(body, at)))


def nested(variables: Sequence[Any], extents: Sequence[int], body: Any, kind: Any = tirx.ForKind.SERIAL) -> Any:
    """Loops around a statement that uses the variables, which become new ones; the outermost loop is of a `kind`."""
    for place in reversed(range(len(variables))):
        variable, inner = variables[place], body
        how = tirx.ForKind.SERIAL if place else kind
        body = loop(
            str(variable.name),
            extents[place],
            lambda at, variable=variable, inner=inner: replaced(inner, {variable: at}),  # type: ignore[misc]
            how,
        )
    return body


def over_rows(
    variables: Sequence[Any], extents: Sequence[int], body: Any, *, numbered: bool, is_open: bool = False
) -> Any:
    """Parallel loops over all rows, each of which `body` computes.

    One loop over the numbers of the rows, where they are `numbered` or only one variable has several values; else one
    loop for each variable, the first of these in parallel.  The latter is for short bodies: LLVM 22 vectorises loops
    with a number modulo a power of two wrongly.

    Consecutive rows are one task, so that memory is allocated for a task and not for each row.  If it `is_open` how
    many rows there are, the statements are the same for each number.
    """
    if not numbered and sum(extent > 1 for extent in extents) > 1:
        order = sorted(range(len(variables)), key=lambda place: extents[place] == 1)
        ordered = [variables[place] for place in order], [extents[place] for place in order]
        return nested(*ordered, body, tirx.ForKind.PARALLEL)

    def at(number: Any) -> Any:
        return replaced(body, dict(zip(variables, unravelled(number, extents), strict=True)))

    rows = math.prod(extents)
    if is_open:
        known = tirx.Var("rows", INDEX)

        def some(number: Any) -> Any:
            first, end = (tirx.floordiv((number + k) * known, index(_TASKS)) for k in (0, 1))
            return sequence([tirx.Bind(known, index(rows)), loop("row", end - first, lambda row: at(first + row))])

        return loop("task", _TASKS, some, tirx.ForKind.PARALLEL)
    each = -(-rows // _TASKS)

    def task(number: Any) -> Any:
        first = number * index(each)
        count = index(each) if rows % each == 0 else tirx.min(index(each), index(rows) - first)
        row = tirx.Var("row", INDEX)
        return tirx.For(row, index(0), count, tirx.ForKind.SERIAL, at(first + row))

    if each == 1:
        return loop("row", rows, at, tirx.ForKind.PARALLEL)
    return loop("task", -(-rows // each), task, tirx.ForKind.PARALLEL)


def replaced(part: Any, values: dict[Any, Any]) -> Any:
    """A statement or expression with values in place of variables."""
    return tvm_ffi.structural_map(part, [(tirx.Var, lambda found: values.get(found, found))])


def sequence(statements: Sequence[Any]) -> Any:
    """The statements one after another."""
    flat: list[Any] = []
    for statement in statements:
        flat += list(statement.seq) if isinstance(statement, tirx.SeqStmt) else [statement]
    return flat[0] if len(flat) == 1 else tirx.SeqStmt(flat)


def as_root(body: Any, buffers: Sequence[Any] = ()) -> Any:
    """The statement as the root block of a function, which allocates the buffers."""
    block = tvm.s_tir.SBlock([], [], [], "root", body, alloc_buffers=list(buffers))
    return tvm.s_tir.SBlockRealize([], True, block)


def unravelled(row: Any, extents: Sequence[Any]) -> list[Any]:
    """The indices of a row, by the extents of its axes."""
    found, rest = [], row
    for place in reversed(range(len(extents))):
        extent = extents[place]
        is_one = isinstance(extent, int) and extent == 1
        outermost = all(isinstance(each, int) and each == 1 for each in extents[:place])
        size = index(extent)
        found.append(index(0) if is_one else rest if outermost else tirx.floormod(rest, size))
        rest = rest if is_one or outermost else tirx.floordiv(rest, size)
    return found[::-1]


def pieces(extent: int, lanes: int) -> list[tuple[int, int]]:
    """Vectors (start, lanes) that cover an extent: as many whole ones as fit, then halves, quarters and so on."""
    found, start = [], 0
    while start < extent:
        while start + lanes > extent:
            lanes //= 2
        found.append((start, lanes))
        start += lanes
    return found
