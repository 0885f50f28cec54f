"""Writes statements one after another, in loops that are contexts; and kernels of one parallel loop over tasks.

A function here that makes a statement puts it behind those of the innermost loop that is open.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import tvm
from tvm import tirx

from kintune.compiler.kernels import loops
from kintune.compiler.kernels.statements import block_over, ceildiv

__all__ = [
    "add", "alloc", "bind", "conditional", "importing", "load", "repeat", "store", "store_vector", "tasks", "tiles",
    "transposed", "vector", "written",
]  # fmt: skip


class _Open(threading.local):
    """The statements of each loop that is open in this thread, and the buffers of its task."""

    def __init__(self) -> None:
        self.loops: list[list[Any]] = []
        self.buffers: list[Any] = []
        self.are_whole = False


_OPEN = _Open()


@contextmanager
def _collected() -> Iterator[list[Any]]:
    """A list of the statements that are made within the context."""
    _OPEN.loops.append([])
    try:
        yield _OPEN.loops[-1]
    finally:
        _OPEN.loops.pop()


def written(body: Callable[[], None]) -> Any:
    """The statements that `body` makes, as one."""
    with _collected() as statements:
        body()
    return loops.sequence(statements)


def add(statement: Any) -> None:
    """Put a statement behind the others."""
    _OPEN.loops[-1].append(statement)


def tasks(
    function: tirx.PrimFunc,
    number: int,
    name: str,
    body: Callable[[Sequence[Any], Any], None],
    *,
    result: int,
    is_open: bool = False,
) -> tvm.IRModule:
    """A module whose `main` has the parameters of `function` and a parallel loop over `body(buffers, task)`.

    `number` is that of the tasks, `name` that of the block.  It writes the parameter `result`, and reads the others.
    If it `is_open` what a task needs of its buffers, they keep their sizes.
    """
    buffers = [loops.buffer(str(p.name), [*map(int, p.shape)], str(p.dtype), "global") for p in function.params]

    def task(at: Any) -> Any:
        return written(lambda: body(buffers, at))

    reads = [buffer for buffer in buffers if buffer is not buffers[result]]
    _OPEN.buffers, _OPEN.are_whole = (allocated := list[Any]()), is_open
    block = block_over(name, [("task", number)], task, reads, [buffers[result]], buffers=allocated)
    made = tirx.PrimFunc(buffers, loops.as_root(block)).with_attrs(
        {**dict(function.attrs or {}), "global_symbol": "main", "s_tir": True, "tirx.noalias": True}
    )
    return tvm.IRModule({"main": made})


def alloc(name: str, *shape: int) -> Any:
    """A buffer of float32 that each task has for itself."""
    made = loops.buffer(name, shape, "float32", "global")
    _OPEN.buffers.append(made)
    if _OPEN.are_whole:  # the compiler makes no buffer smaller whose address is used
        add(tirx.Evaluate(made.data))
    return made


def store(buffer: Any, value: Any, *indices: Any) -> None:
    """Store one element, or in a vector loop a vector."""
    add(tirx.BufferStore(buffer, value, [loops.index(each) for each in indices]))


@contextmanager
def _loop(name: str, extent: Any, kind: int) -> Iterator[Any]:
    """A loop; none, and index 0, where the extent is the number 1."""
    if isinstance(extent, int) and extent == 1:
        yield loops.index(0)
        return
    with _collected() as statements:
        variable = tirx.Var(name, loops.INDEX)
        yield variable
    if statements:
        zero = loops.index(0)
        add(tirx.For(variable, zero, loops.index(extent), kind, loops.sequence(statements)))


def repeat(extent: Any, name: str) -> Any:
    """A serial loop; none where the extent is the number 1."""
    return _loop(name, extent, tirx.ForKind.SERIAL)


def vector(lanes: int) -> Any:
    """A loop that is one vector instruction; none for one lane."""
    return _loop("lane", lanes, tirx.ForKind.VECTORIZED)


@contextmanager
def conditional(*conditions: Any) -> Iterator[None]:
    """What is done only where all conditions hold."""
    with _collected() as statements:
        yield
    inner = loops.sequence(statements)
    add(tirx.IfThenElse(tirx.all(*conditions), inner, None) if conditions else inner)


@contextmanager
def importing(attribute: str, text: str) -> Iterator[None]:
    """What needs functions in LLVM's text, which the attribute imports."""
    with _collected() as statements:
        yield
    add(tirx.AttrStmt("inner", attribute, tvm.ir.StringImm(text), loops.sequence(statements)))


def bind(value: Any) -> Any:
    """A new variable that has the value."""
    variable = tirx.Var("v", value.ty)
    add(tirx.Bind(variable, value))
    return variable


def load(buffer: Any, indices: Sequence[Any], lanes: int) -> Any:
    """A vector of neighbours along the last axis, from these indices on."""
    *outer, last = indices
    place = (*outer, tirx.Ramp(loops.index(last), loops.index(1), lanes))
    return bind(buffer[place])


def store_vector(buffer: Any, value: Any, indices: Sequence[Any]) -> None:
    """Store a vector along the last axis, from these indices on."""
    *outer, last = indices
    store(buffer, value, *outer, tirx.Ramp(loops.index(last), loops.index(1), int(value.ty.dtype.lanes)))


def transposed(rows: Sequence[Any]) -> list[Any]:
    """The transpose of n vectors of n lanes each, n a power of two: halves are exchanged first, then quarters, etc."""
    found, lanes = list(rows), len(rows)
    width = lanes // 2
    while width:
        lower = [lane if not lane & width else lanes + lane - width for lane in range(lanes)]
        upper = [lane + width if not lane & width else lanes + lane for lane in range(lanes)]
        for i in range(lanes):
            if not i & width:
                pair = [found[i], found[i + width]]
                found[i], found[i + width] = (
                    bind(tirx.Shuffle(pair, [tirx.const(lane, "int32") for lane in order])) for order in (lower, upper)
                )
        width //= 2
    return found


def tiles(extent: Any, size: int, *, beyond: bool = False) -> Iterator[tuple[Callable[[], Any], int]]:
    """The loops that cover `extent`: one over the whole tiles of `size`, then one of what is left.

    Of an expression single ones are left.  With `beyond` all tiles are whole, and the last one may end behind it.
    Yields for each a function, which gives a context manager of the start of a tile, and the size of its tiles.
    """

    @contextmanager
    def starts(begin: Any, number: Any, step: int) -> Iterator[Any]:
        with repeat(number, "tile") as tile:
            yield begin if isinstance(number, int) and number == 1 else tile * step + begin

    whole, rest = (ceildiv(extent, size), 0) if beyond else (extent // size, extent % size)
    if not isinstance(whole, int) or whole:
        yield (lambda: starts(0, whole, size)), size
    if not isinstance(rest, int):
        yield (lambda: starts(whole * size, rest, 1)), 1
    elif rest:
        yield (lambda: starts(whole * size, 1, rest)), rest
