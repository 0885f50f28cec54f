"""Removes the mark `layout_free_buffers` from the weights whose layout no schedule may choose.

A packed weight is written once in another order, and its reads are rewritten from the index expression of one read.
That is correct where the index runs forward through all elements, each once.  It is wrong where elements are left out,
read backwards or by several iterations, also if blocks between copy the weight, since inlining may move the index.  And
it is wrong where an index depends on data: for the table of a lookup, and for every tensor from which an index is
computed, also through other blocks.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import tvm
import tvm_ffi

from kintune.compiler.graph.rewriting import kernels_pass
from kintune.compiler.space.replay import LAYOUT_FREE, weight_positions
from kintune.compiler.tir import nodes_in
from kintune.models.blockwise import ANNOTATION as BLOCKWISE

__all__ = ["CheckLayoutMarks", "fixed_layouts"]

_SUMMED = 2  # in TVM's kinds of variables of a block
_UPDATES_STATE = 3  # in TVM's order of call effects; calls with this effect or a stronger one may read any buffer


def CheckLayoutMarks() -> tvm.transform.Pass:  # noqa: N802 - named like the compiler's own passes
    """A pass that keeps the mark only on the weights whose layout a schedule may choose."""

    def check(_name: str, function: tvm.tirx.PrimFunc) -> tvm.tirx.PrimFunc | None:
        marked = weight_positions(function)
        fixed = marked & fixed_layouts(function) if marked else frozenset()
        return function.with_attr(LAYOUT_FREE, sorted(marked - fixed)) if fixed else None

    return kernels_pass("CheckLayoutMarks", check)


def fixed_layouts(function: tvm.tirx.PrimFunc) -> frozenset[int]:
    """The positions of the parameters of a PrimFunc that must keep their layout.

    These are parameters that

    - are read or written at an index that depends on data;
    - such an index is computed from, through any number of blocks;
    - a block reads without declaring it;
    - one block reads at several indices, since the new layout would follow one of them;
    - a block reads otherwise than forward through all elements, each once, or reads such a copy of them.

    If the function branches on data, or calls code that may read any buffer, these are all parameters.
    """
    reading = _Reading(function.body)
    if reading.opaque:
        return frozenset(range(len(function.params)))
    fixed = reading.fixed()
    return frozenset(i for i, parameter in enumerate(function.params) if parameter in fixed)


class _Reading:
    """Which buffers the statements of a function read, at which indices, and what they compute from them."""

    def __init__(self, body: Any) -> None:
        self.opaque = False
        self._sources: defaultdict[Any, set[Any]] = defaultdict(set)  # buffer or variable -> what it is computed from
        self._accesses: list[tuple[Any, set[Any]]] = []  # buffer, what its index is computed from
        self._fixed: set[Any] = set()
        self._copied: defaultdict[Any, set[Any]] = defaultdict(set)  # buffer -> what it copies, without sums
        tvm_ffi.structural_walk(
            body,
            [
                (tvm.s_tir.SBlockRealize, self._visit_block),
                (tvm.ir.TensorLoad, lambda load: self._access(load.source, load.indices)),
                (tvm.tirx.BufferStore, self._visit_store),
                (tvm.tirx.For, lambda loop: self._define(loop.loop_var, (loop.min, loop.extent))),
                ((tvm.tirx.Bind, tvm.tirx.Let), lambda bound: self._define(bound.var, (bound.value,))),
                ((tvm.tirx.IfThenElse, tvm.tirx.While), self._visit_branch),
                (tvm.ir.Call, self._visit_call),
            ],
        )

    def fixed(self) -> set[Any]:
        """The buffers whose layout must stay."""
        data = self._data()
        found = _reached(self._fixed, self._copied)
        pending = list[Any]()
        for buffer, index in self._accesses:
            if index & data:
                found.add(buffer)
                pending += index
        return found | _reached(pending, self._sources)

    def _data(self) -> set[Any]:
        """The buffers, and the variables that are computed from them: all that is not arithmetic on loop variables."""
        data = {buffer for buffer, _ in self._accesses}
        size = -1
        while size < len(data):
            size = len(data)
            data |= {name for name, sources in self._sources.items() if sources & data}
        return data

    def _access(self, buffer: Any, indices: Iterable[Any]) -> None:
        self._accesses.append((buffer, _names_in(indices)))

    def _define(self, name: Any, values: Iterable[Any]) -> None:
        self._sources[name] |= _names_in(values)

    def _visit_store(self, store: Any) -> None:
        self._access(store.buffer, store.indices)
        self._define(store.buffer, (store.value, *store.indices))

    def _visit_block(self, realize: Any) -> None:
        block = realize.block
        for variable, value in zip(block.iter_vars, realize.iter_values, strict=True):
            self._define(variable.var, (value,))
        declared = {region.source for region in block.reads}
        loaded = _loaded_directly(block)
        self._fixed |= loaded.keys() - declared
        self._fixed |= {buffer for buffer, places in loaded.items() if len(places) > 1}
        domains = {variable.var: variable.dom for variable in block.iter_vars}
        blockwise = BLOCKWISE in (block.annotations or {})  # no sketch of MetaSchedule computes these sums
        for buffer, places in loaded.items():
            if not blockwise and not all(_is_forward(buffer.shape, indices, domains) for indices in places.values()):
                self._fixed.add(buffer)
        if all(variable.iter_type != _SUMMED for variable in block.iter_vars):
            for region in block.writes:
                self._copied[region.source] |= loaded.keys()

    def _visit_branch(self, branch: Any) -> None:
        self.opaque |= bool(_names_in([branch.condition]) & {buffer for buffer, _ in self._accesses})

    def _visit_call(self, call: Any) -> None:
        effect = call.op.get_attr("TCallEffectKind") if isinstance(call.op, tvm.ir.Op) else None
        self.opaque |= effect is None or int(effect) >= _UPDATES_STATE


def _names_in(expressions: Iterable[Any]) -> set[Any]:
    """The buffers that the expressions load from, and the variables in them."""
    return {name for expression in expressions for name in nodes_in(expression, tvm.tirx.Var)}


def _reached(first: Iterable[Any], sources: Mapping[Any, set[Any]]) -> set[Any]:
    """What is among the first, or is a source of what is reached."""
    found: set[Any] = set()
    pending = list(first)
    while pending:
        name = pending.pop()
        if name not in found:
            found.add(name)
            pending += sources.get(name, ())
    return found


def _is_forward(shape: Sequence[Any], indices: Sequence[Any], domains: Mapping[Any, Any]) -> bool:
    """Whether the variables of indices run through all elements of a shape, each once and none backwards."""
    used = {name: domains[name] for name in _names_in(indices) if name in domains}
    extents = [domain.extent for domain in used.values()]
    if not all(isinstance(each, tvm.tirx.IntImm) for each in (*extents, *shape)):
        return False
    if math.prod(map(int, extents)) != math.prod(map(int, shape)):
        return False
    found = tvm.sym.detect_iter_map(list(indices), used, True, tvm.sym.iter_affine_map.IterMapLevel.Bijective).indices
    return len(found) > 0 and all(
        _constant(index.base) == 0 and all(_constant(part.scale) > 0 for part in index.args) for index in found
    )


def _constant(value: Any) -> int:
    """The value of a constant; -1 for others."""
    return int(value.value) if isinstance(value, tvm.tirx.IntImm) else -1


def _loaded_directly(block: Any) -> dict[Any, dict[str, Sequence[Any]]]:
    """The buffers from which a block loads, and the indices at which it does, without those of blocks inside it."""
    found: dict[Any, dict[str, Sequence[Any]]] = {}

    def load(node: Any) -> None:
        found.setdefault(node.source, {})[str(list(node.indices))] = node.indices

    def skip(_node: Any) -> Any:
        return tvm_ffi.WalkResult.SKIP

    for part in (block.init, block.body):
        if part is not None:
            tvm_ffi.structural_walk(
                part, [(tvm.ir.TensorLoad, load), (tvm.s_tir.SBlockRealize, skip)], order=tvm_ffi.WalkOrder.PREORDER
            )
    return found
