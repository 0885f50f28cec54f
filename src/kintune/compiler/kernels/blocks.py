"""Reading the blocks of a function that no schedule has changed: one store in a nest of loops each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import tvm

from kintune.compiler.tir import is_number, nodes_in

__all__ = ["Loops", "constant_shape", "is_offset_of", "loads_in", "nests_of"]

_ROOT = "root"


class Loops(NamedTuple):
    """One block and the loops around it: the statement of the outermost loop, and the block."""

    statement: Any
    block: Any

    @property
    def extents(self) -> tuple[int, ...]:
        """The extents of the block's variables."""
        return tuple(int(variable.dom.extent) for variable in self.block.iter_vars)

    def variables(self, *, reducing: bool) -> list[Any]:
        """The variables of the block that reduce, or those that do not."""
        kind = tvm.tirx.IterVar.CommReduce if reducing else tvm.tirx.IterVar.DataPar
        return [variable.var for variable in self.block.iter_vars if int(variable.iter_type) == kind]


def nests_of(function: Any) -> list[Loops] | None:
    """The blocks under the root of a function, in order; None where it is anything else than such blocks.

    Each block is in serial loops from zero, one a variable and in their order, has constant extents, no condition, and
    no blocks or buffers within it.
    """
    root = getattr(function.body, "block", None)
    if root is None or root.name_hint != _ROOT or root.match_buffers or root.init is not None or root.iter_vars:
        return None
    statements = list(root.body.seq) if isinstance(root.body, tvm.tirx.SeqStmt) else [root.body]
    found = [_nest(statement) for statement in statements]
    nests = [nest for nest in found if nest is not None]
    return nests if len(nests) == len(found) else None


def _nest(statement: Any) -> Loops | None:
    loops, inner = [], statement
    while isinstance(inner, tvm.tirx.For):
        plain = int(inner.kind) == tvm.tirx.ForKind.SERIAL and not inner.annotations and inner.thread_binding is None
        if not plain or not is_number(inner.min, 0) or not isinstance(inner.extent, tvm.tirx.IntImm):
            return None
        loops.append(inner)
        inner = inner.body
    if not isinstance(inner, tvm.s_tir.SBlockRealize) or not is_number(inner.predicate, 1):
        return None
    block = inner.block
    if block.alloc_buffers or block.match_buffers or len(block.iter_vars) != len(loops):
        return None
    for loop, variable, value in zip(loops, block.iter_vars, inner.iter_values, strict=True):
        domain = variable.dom
        same = isinstance(domain.extent, tvm.tirx.IntImm) and int(domain.extent) == int(loop.extent)
        if not same or not is_number(domain.min, 0) or not loop.loop_var.same_as(value):
            return None
    return Loops(statement, block)


def loads_in(node: Any, buffer: Any = None) -> list[Any]:
    """The loads in a statement or expression, from one buffer or from all, once for each place."""
    found = nodes_in(node, tvm.ir.TensorLoad)
    return [load for load in found if buffer is None or load.source.same_as(buffer)]


def constant_shape(buffer: Any) -> tuple[int, ...] | None:
    """The shape of a buffer; None where it is only known when the program runs."""
    try:
        return tuple(int(extent) for extent in buffer.shape)
    except TypeError:
        return None


def is_offset_of(index: Any, variables: Sequence[Any]) -> int | None:
    """The constant c of an index that is the sum of these variables, each once, and c; None for any other index."""
    rest = index
    for variable in variables:
        rest = rest - variable
    simplified = tvm.sym.Analyzer().simplify(rest)
    return int(simplified) if isinstance(simplified, tvm.tirx.IntImm) else None
