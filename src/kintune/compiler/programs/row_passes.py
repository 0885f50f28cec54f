"""Reads a function as passes over rows: sums and other reductions of a row, and results for each element of it.

A norm or a softmax, with whatever element-wise operators were fused with it, is a few such passes over the same rows;
an element-wise function is one pass.  Intermediate tensors take no memory: their values are computed where they are
used, once for each element of a pass.  They are bound to variables, so that the expression of a chain of functions does
not grow exponentially when each of them uses its operand several times.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import tvm
import tvm_ffi
from tvm import tirx

from kintune.compiler.kernels.blocks import loads_in
from kintune.compiler.kernels.loops import INDEX, index
from kintune.compiler.programs.nan_tests import FLOATS, if_number, is_nan, keeping_nan
from kintune.compiler.tir import called, is_number, nodes_in

__all__ = ["CHANGING", "Binding", "Pass", "Rows", "read_rows"]

_SPATIAL, _REDUCED = 0, 2  # the compiler's numbers of the kinds of block variables
_LARGEST = 500
"""Nodes of a value that is written out in a branch, at most."""

_DEEPEST = 60
"""Blocks in a chain of which each reads the one before, at most: they are followed by recursion, which Python limits,
and the compiler's time for as many variables grows with the cube of their number: 0.5 s for 100, 4 s for 200.
"""

_LEAST_COLUMNS = 256
"""Columns of a row of an element-wise function, at least, where it has so many."""

CHANGING = ("bfloat16", "float8")
"""How the names of types begin that are computed in another type."""


class Binding(NamedTuple):
    """A variable and the value that it has; bindings of two passes with the same `key` have the same value."""

    variable: Any
    value: Any
    key: Any = None


class Pass(NamedTuple):
    """What is done for a row, or for each of its elements (`columns`).

    A reduction combines `value` into the variable `result`, starting from `initial`; `combine` makes the new value of
    two.  Other passes bind `result` to `value`, or store `value` in a `target` at `indices`, or both.
    """

    bindings: tuple[Binding, ...]
    value: Any
    columns: tuple[Any, ...] = ()
    result: Any = None
    initial: Any = None
    combine: Any = None
    target: Any = None
    indices: tuple[Any, ...] = ()


class Rows(NamedTuple):
    """The passes of a function, one after another, for each row; rows and columns are variables with extents."""

    rows: tuple[Any, ...]
    row_extents: tuple[int, ...]
    columns: tuple[Any, ...]
    column_extents: tuple[int, ...]
    passes: tuple[Pass, ...]


class _Block(NamedTuple):
    """A block that stores one value for each of its variables; `initial` is None but for a reduction."""

    variables: tuple[Any, ...]
    extents: tuple[int, ...]
    kinds: tuple[int, ...]
    target: Any
    indices: tuple[Any, ...]
    value: Any
    initial: Any

    def of(self, kind: int) -> tuple[tuple[Any, ...], tuple[int, ...]]:
        """The variables of a kind, and their extents."""
        chosen = [at for at, each in enumerate(self.kinds) if each == kind]
        return tuple(self.variables[at] for at in chosen), tuple(self.extents[at] for at in chosen)


@tvm_ffi.register_error("kintune.UnreadableRows")
class _Unreadable(Exception):
    """The function is no sequence of passes over rows.

    It is registered since it is raised while expressions are visited: the compiler would make another error of it.
    """


def read_rows(function: tvm.tirx.PrimFunc) -> Rows | None:
    """The passes of an unscheduled function; None where it is not a sequence of passes over rows.

    It is also None where a variable would have a type that LLVM computes in another one, such as bfloat16: there the
    compiler changes the types of values, and not those of variables.
    """
    try:
        blocks = _read_blocks(function)
        rows = _Reader(function, blocks).rows() if blocks else None
    except _Unreadable:
        return None
    return None if rows is None or any(map(_binds_changing_type, rows.passes)) else rows


def _binds_changing_type(each: Pass) -> bool:
    values = [binding.value for binding in each.bindings]
    bound = [*values, *([] if each.result is None else [each.value])]
    return any(str(value.ty).startswith(CHANGING) for value in bound)


def _read_blocks(function: tvm.tirx.PrimFunc) -> list[_Block]:
    root = getattr(function.body, "block", None)
    if root is None or root.name_hint != "root" or root.iter_vars:
        raise _Unreadable
    found = nodes_in(root.body, tvm.s_tir.SBlockRealize)
    if not found or nodes_in(root.body, tirx.IfThenElse, tirx.While, tirx.AttrStmt, tirx.Evaluate, tirx.AllocBuffer):
        raise _Unreadable
    return [_read_block(realize) for realize in found]


def _read_block(realize: Any) -> _Block:
    block = realize.block
    predicate = realize.predicate
    if not isinstance(block.body, tirx.BufferStore) or block.alloc_buffers or block.match_buffers:
        raise _Unreadable
    if not isinstance(predicate, tirx.IntImm) or not int(predicate.value):
        raise _Unreadable
    variables = tuple(each.var for each in block.iter_vars)
    kinds = tuple(int(each.iter_type) for each in block.iter_vars)
    domains = [each.dom for each in block.iter_vars]
    if any(not isinstance(d.extent, tirx.IntImm) or not is_number(d.min, 0) for d in domains):
        raise _Unreadable
    if any(kind not in (_SPATIAL, _REDUCED) for kind in kinds) or any(str(v.ty) != INDEX for v in variables):
        raise _Unreadable
    for value, domain in zip(realize.iter_values, domains, strict=True):
        if not isinstance(value, tirx.Var) and not (is_number(value, 0) and int(domain.extent) == 1):
            raise _Unreadable
    initial = None
    if block.init is not None:
        if not isinstance(block.init, tirx.BufferStore):
            raise _Unreadable
        initial = block.init.value
    extents = tuple(int(d.extent) for d in domains)
    store = block.body
    return _Block(variables, extents, kinds, store.buffer, tuple(store.indices), store.value, initial)


class _Frame:
    """Where the values of other blocks are put: they are bound to variables in a pass, and inlined in a branch.

    A frame with an `outer` one is a branch of a choice, and sees what is bound around it.
    """

    def __init__(self, outer: _Frame | None = None) -> None:
        self.outer = outer
        self.bindings: list[Binding] = []
        self._known: dict[Any, Any] = {}

    def find(self, key: Any) -> Any:
        found = self._known.get(key)
        return found if found is not None or self.outer is None else self.outer.find(key)

    def bind(self, key: Any, name: str, value: Any) -> Any:
        if self.outer is None:
            variable = tirx.Var(name, value.ty)
            self.bindings.append(Binding(variable, value, key))
            value = variable
        elif len(nodes_in(value, tvm.ir.Expr)) > _LARGEST:  # nodes of the expression
            raise _Unreadable
        self._known[key] = value
        return value


class _Reader:
    def __init__(self, function: tvm.tirx.PrimFunc, blocks: Sequence[_Block]) -> None:
        self._blocks = blocks
        self._parameters = list(function.params)
        self._producers = {block.target: block for block in blocks}
        if len(self._producers) != len(blocks):
            raise _Unreadable
        self._analyzer = tvm.sym.Analyzer()
        self._results: dict[Any, Any] = {}  # the buffer of a statistic -> the variable of its value
        self._seen: list[tuple[Any, ...]] | None = None  # indices at which statistics are read; see `_statistics_at`
        self._depth = 0
        self._rows: tuple[Any, ...] = ()
        self._row_extents: tuple[int, ...] = ()
        self._columns: tuple[Any, ...] = ()
        self._column_extents: tuple[int, ...] = ()

    def rows(self) -> Rows:
        reductions = [block for block in self._blocks if _REDUCED in block.kinds]
        if reductions:
            self._choose_rows(reductions)
        else:
            self._divide(self._outputs()[-1])
        passes = [made for block in self._blocks if (made := self._pass(block)) is not None]
        return Rows(self._rows, self._row_extents, self._columns, self._column_extents, tuple(passes))

    def _outputs(self) -> list[_Block]:
        return [block for block in self._blocks if self._is_output(block)]

    def _is_output(self, block: _Block) -> bool:
        return any(block.target.same_as(parameter) for parameter in self._parameters)

    def _choose_rows(self, reductions: Sequence[_Block]) -> None:
        """The rows and columns of the first reduction, which those after it must have too."""
        _, self._row_extents = reductions[0].of(_SPATIAL)
        _, self._column_extents = reductions[0].of(_REDUCED)
        if any(
            (block.of(_SPATIAL)[1], block.of(_REDUCED)[1]) != (self._row_extents, self._column_extents)
            for block in reductions
        ):
            raise _Unreadable
        self._name()

    def _divide(self, block: _Block) -> None:
        """Rows and columns of an element-wise function: as many of the last axes as make a row long enough."""
        extents = block.extents
        if any(other.extents != extents for other in self._outputs()):
            raise _Unreadable
        cut = len(extents) - 1
        while cut > 0 and math.prod(extents[cut:]) < _LEAST_COLUMNS:
            cut -= 1
        self._row_extents, self._column_extents = extents[: max(cut, 0)], extents[max(cut, 0) :]
        self._name()

    def _name(self) -> None:
        self._rows = tuple(tirx.Var(f"row_{at}", INDEX) for at in range(len(self._row_extents)))
        self._columns = tuple(tirx.Var(f"column_{at}", INDEX) for at in range(len(self._column_extents)))
        for variable, extent in zip(
            (*self._rows, *self._columns), (*self._row_extents, *self._column_extents), strict=True
        ):
            self._analyzer.bind(variable, tvm.ir.Range(index(0), index(extent)))

    def _pass(self, block: _Block) -> Pass | None:
        if _REDUCED in block.kinds:
            return self._reduction(block)
        if self._results and _without_ones(block.extents) == _without_ones(self._row_extents):
            return self._of_row(block)
        return self._of_elements(block) if self._is_output(block) else None

    def _reduction(self, block: _Block) -> Pass:
        spatial, _ = block.of(_SPATIAL)
        reduced, _ = block.of(_REDUCED)
        values = dict(zip((*spatial, *reduced), (*self._rows, *self._columns), strict=True))
        element, combine = _separated(block)
        frame = _Frame()
        value = self._translated(element, values, frame)
        if not _reads_each_once(value, frame.bindings, math.prod((*self._row_extents, *self._column_extents))):
            raise _Unreadable
        result = tirx.Var(f"{block.target.name}_value", value.ty)
        if block.initial is None:
            raise _Unreadable
        made = Pass(tuple(frame.bindings), value, self._columns, result, block.initial, combine)
        self._results[block.target] = result
        return self._stored(made, block, values)

    def _of_row(self, block: _Block) -> Pass:
        values = self._placed(block, self._rows, self._row_extents)
        frame = _Frame()
        value = self._translated(block.value, values, frame)
        result = tirx.Var(f"{block.target.name}_value", value.ty)
        self._results[block.target] = result
        return self._stored(Pass(tuple(frame.bindings), value, (), result), block, values)

    def _of_elements(self, block: _Block) -> Pass:
        values = self._spread(block)
        frame = _Frame()
        value = self._translated(block.value, values, frame)
        return self._stored(Pass(tuple(frame.bindings), value, self._columns), block, values)

    def _stored(self, made: Pass, block: _Block, values: dict[Any, Any]) -> Pass:
        if not self._is_output(block):
            return made
        indices = tuple(self._translated(each, values, _Frame()) for each in block.indices)
        return made._replace(target=block.target, indices=indices)

    def _placed(self, block: _Block, places: Sequence[Any], extents: Sequence[int]) -> dict[Any, Any]:
        """The variables of a block that has an element for each place, but for axes of one element."""
        rest = [place for place, extent in zip(places, extents, strict=True) if extent != 1]
        values: dict[Any, Any] = {}
        for variable, extent in zip(block.variables, block.extents, strict=True):
            values[variable] = index(0) if extent == 1 else rest.pop(0)
        return values

    def _spread(self, block: _Block) -> dict[Any, Any]:
        """The variables of a block with an element for each row and column.

        The rows are told by the indices at which it reads statistics; columns are what is left.
        """
        if math.prod(block.extents) != math.prod((*self._row_extents, *self._column_extents)):
            raise _Unreadable
        if not self._results:
            return dict(zip(block.variables, (*self._rows, *self._columns), strict=True))
        values: dict[Any, Any] = {}
        columns = [(v, e) for v, e in zip(self._columns, self._column_extents, strict=True) if e != 1]
        split: dict[Any, tuple[Any, int]] = {}
        for at, row, extent in zip(self._statistics_at(block), self._rows, self._row_extents, strict=True):
            if extent == 1:
                continue
            if isinstance(at, tirx.FloorDiv) and isinstance(at.b, tirx.IntImm) and at.a in block.variables:
                split[at.a] = row, int(at.b.value)
            elif isinstance(at, tirx.Var) and at in block.variables and at not in values:
                values[at] = row
            else:
                raise _Unreadable
        for variable, extent in zip(block.variables, block.extents, strict=True):
            if variable in values:
                continue
            if extent == 1:
                values[variable] = index(0)
                continue
            row, wanted = split.get(variable, (None, extent))
            if not columns or columns[0][1] != wanted:
                raise _Unreadable
            column, _ = columns.pop(0)
            values[variable] = column if row is None else row * index(wanted) + column
        return values

    def _statistics_at(self, block: _Block) -> tuple[Any, ...]:
        """The indices, in terms of the block's variables, at which it reads statistics."""
        self._seen = []
        values = {variable: variable for variable in block.variables}
        self._translated(block.value, values, _Frame())
        seen, self._seen = self._seen, None
        if not seen or any(str(list(other)) != str(list(seen[0])) for other in seen):
            raise _Unreadable
        return seen[0]

    def _translated(self, value: Any, values: dict[Any, Any], frame: _Frame) -> Any:
        """An expression in terms of rows and columns; what it reads of other blocks is bound in the frame."""

        def variable(found: Any, _mutator: Any) -> Any:
            return values.get(found, found)

        def load(found: Any, mutator: Any) -> Any:
            indices = [self._analyzer.simplify(mutator.mutate(each)) for each in found.indices]
            return self._read(found.source, indices, frame)

        def call(found: Any, mutator: Any) -> Any:
            if called(found) != "prim.if_then_else":
                return mutator.default_mutate(found)
            condition, first, second = found.args
            first, second = (self._translated(each, values, _Frame(frame)) for each in (first, second))
            return tirx.if_then_else(mutator.mutate(condition), first, second)

        def select(found: Any, mutator: Any) -> Any:
            tested = found.condition
            if not is_nan(tested) or str(tested.args[0].ty) not in FLOATS:
                return mutator.default_mutate(found)
            number, otherwise = mutator.mutate(found.false_value), mutator.mutate(found.true_value)
            return if_number(mutator.mutate(tested.args[0]), number, otherwise)

        return tvm_ffi.structural_mutate(
            value,
            [(tirx.Var, variable), (tvm.ir.TensorLoad, load), (tvm.ir.Call, call), (tirx.Select, select)],
        )

    def _read(self, buffer: Any, indices: list[Any], frame: _Frame) -> Any:
        block = self._producers.get(buffer)
        if block is None:
            return tirx.BufferLoad(buffer, indices)
        if buffer in self._results:
            return self._statistic(buffer, indices)
        if _REDUCED in block.kinds:
            raise _Unreadable
        key = (buffer, tuple(map(str, indices)))
        known = frame.find(key)
        if known is not None:
            return known
        inner: dict[Any, Any] = {}
        for at, wanted in zip(block.indices, indices, strict=True):
            if isinstance(at, tirx.Var) and at in block.variables and at not in inner:
                inner[at] = wanted
            elif not is_number(at, 0):
                raise _Unreadable
        for variable, extent in zip(block.variables, block.extents, strict=True):
            if variable not in inner and extent != 1:
                raise _Unreadable
            inner.setdefault(variable, index(0))
        if self._depth >= _DEEPEST:
            raise _Unreadable
        self._depth += 1
        value = self._translated(block.value, inner, frame)
        self._depth -= 1
        return frame.bind(key, str(buffer.name), value)

    def _statistic(self, buffer: Any, indices: Sequence[Any]) -> Any:
        block = self._producers[buffer]
        extents = [int(extent) for extent in buffer.shape]
        at = tuple(each for each, extent in zip(indices, extents, strict=True) if extent != 1)
        if self._seen is not None:
            whole = iter(at)
            self._seen.append(tuple(next(whole) if extent != 1 else index(0) for extent in self._row_extents))
            return self._results[buffer]
        rows = [row for row, extent in zip(self._rows, self._row_extents, strict=True) if extent != 1]
        if len(at) != len(rows) or any(str(one) != str(other) for one, other in zip(at, rows, strict=True)):
            raise _Unreadable
        if len(block.indices) != len(indices):
            raise _Unreadable
        return self._results[buffer]


def _without_ones(extents: Iterable[int]) -> list[int]:
    return [extent for extent in extents if extent != 1]


def _separated(block: _Block) -> tuple[Any, Any]:
    """What a reduction combines, and how: a function of two values."""

    def is_own(value: Any) -> bool:
        return isinstance(value, tvm.ir.TensorLoad) and bool(value.source.same_as(block.target))

    value = block.value
    for kind in (tirx.Add, tirx.Max, tirx.Min):
        if isinstance(value, kind):
            first, second = (value.a, value.b) if is_own(value.a) else (value.b, value.a)
            if is_own(first) and not loads_in(second, block.target):
                return second, kind
    if isinstance(value, tirx.Select) and is_own(value.true_value):  # an extreme that keeps NaN
        inner = value.false_value
        for kind in (tirx.Max, tirx.Min):
            found = isinstance(inner, kind) and is_own(inner.a) and not loads_in(inner.b, block.target)
            if found and is_nan(value.condition) and loads_in(value.condition, block.target):
                return inner.b, keeping_nan(kind)
    raise _Unreadable


def _reads_each_once(value: Any, bindings: Sequence[Binding], count: int) -> bool:
    """Whether a reduction of `count` steps reads a tensor of as many elements; a product has only smaller operands.

    Tensors with open extents, of which known ones are read, do not count.
    """
    read = [load.source.shape for each in (value, *(binding.value for binding in bindings)) for load in loads_in(each)]
    known = [shape for shape in read if all(isinstance(extent, tirx.IntImm) for extent in shape)]
    return max((math.prod(int(extent) for extent in shape) for shape in known), default=0) >= count
