"""Guards indices, so that no kernel reads or writes outside of a tensor.

An index that an input holds is checked before a run (`kintune.models.input_kinds`).  One that the network computes is
clamped, and returned by `main` after the outputs, for `runtime.index_checks` to check after a run.  One that range
analysis proves to be inside needs neither.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tvm
from tvm import relax
from tvm.relax.expr_functor import PyExprMutator, mutator

from kintune.core.model import IndexCheck, Tensor
from kintune.models.index_marks import Mark, read_mark
from kintune.models.index_range import Ranges
from kintune.models.input_kinds import bounded_lookups

__all__ = ["GuardedModule", "guard_indices"]


_OPERANDS = {
    "relax.take": 1,
    "relax.gather_elements": 1,
    "relax.gather_nd": 1,
    "relax.scatter_elements": 1,
    "relax.scatter_nd": 1,
}
"""Operators that read or write by an index, and the position of the index among their arguments."""


class GuardedModule(NamedTuple):
    """A module whose `main` returns the indices to check after its outputs; `sources` has its new variables too."""

    module: tvm.IRModule
    checks: tuple[IndexCheck, ...]
    sources: dict[str, str]


class _Plan(NamedTuple):
    """What to do with an index: `wrap` negative values to count from the start, `clamp` values outside."""

    mark: Mark
    wrap: bool
    clamp: bool


def guard_indices(
    module: tvm.IRModule, inputs: Sequence[Tensor], sources: Mapping[str, str], nodes: Mapping[str, str]
) -> GuardedModule:
    """Replace all marks of `main`, and guard lookups that have none.

    `inputs` are the parameters of `main`, with the bounds of their values.  `sources` and `nodes` lead from variables
    to the user's nodes, as in `ImportedModel`.
    """
    main = module["main"]
    if not isinstance(main.body, relax.SeqExpr):
        return GuardedModule(module, (), dict(sources))
    bounded = bounded_lookups(module, inputs)
    ranges = Ranges()
    plans: dict[Any, _Plan] = {}
    marked: dict[Any, Mark] = {}
    for block in main.body.blocks:
        for binding in block.bindings:
            value = getattr(binding, "value", None)
            if (mark := read_mark(value)) is not None:
                marked[binding.var] = mark
            elif (found := _unmarked(value)) is not None:
                known = marked.get(found.index)
                mark = None if known is not None and known.sizes == found.sizes else found
            if mark is not None:
                plan = _plan(mark, ranges, binding.var in bounded)
                if read_mark(value) is not None or plan.clamp:
                    plans[binding.var] = plan
            ranges.note(binding.var, value)
    if not plans:
        return GuardedModule(module, (), dict(sources))
    return _rewritten(module, plans, sources, nodes)


def _unmarked(value: Any) -> Mark | None:
    """A mark for the index by which an operator reads or writes; None for any other expression, or a constant index."""
    name = str(getattr(getattr(value, "op", None), "name", ""))
    if name not in _OPERANDS or str(getattr(value.attrs, "mode", "fast")) not in ("fast", ""):
        return None
    index, data = value.args[_OPERANDS[name]], value.args[0]
    if isinstance(index, tvm.ir.GenericConst):
        return None
    shape = [int(size) for size in data.ty.shape.values]
    if name in ("relax.gather_nd", "relax.scatter_nd"):
        first = int(value.attrs.batch_dims) if name == "relax.gather_nd" else 0
        return Mark(index, tuple(shape[first : first + int(index.ty.shape.values[-1])]), first, False, False)
    axis = value.attrs.axis
    if axis is None:
        return Mark(index, (int(np.prod(shape)),), 0, False, False)
    at = int(axis) % len(shape)
    return Mark(index, (shape[at],), at, name == "relax.scatter_elements", False)


def _plan(mark: Mark, ranges: Ranges, bounded: bool) -> _Plan:
    interval = ranges.of(mark.index)
    inside = interval is not None and interval[0] >= max(mark.least) and interval[1] < min(mark.sizes)
    wrap = mark.negative and not str(mark.index.ty.dtype).startswith("uint")
    if inside and interval is not None and interval[0] >= 0:
        wrap = False
    return _Plan(mark, wrap, not inside and not bounded)


def _rewritten(
    module: tvm.IRModule, plans: Mapping[Any, _Plan], sources: Mapping[str, str], nodes: Mapping[str, str]
) -> GuardedModule:
    main = module["main"]
    rewriter = _Rewriter(module, plans, main.body.body)
    body = rewriter.visit_expr(main.body)
    function = relax.Function(list(main.params), body, body.ty, main.is_pure, main.attrs)
    rewriter.builder_.update_func(module.get_global_var("main"), function)
    named = dict(sources)
    for name, origin in rewriter.made.items():
        if origin in sources:
            named[name] = sources[origin]
    checks = []
    for variable, result in rewriter.results.items():
        mark = plans[variable].mark
        tensor = sources.get(str(variable.name), "")
        checks.append(IndexCheck(nodes.get(tensor, tensor), result, mark.sizes, mark.axis, mark.negative))
    guarded = rewriter.builder_.get()
    bound = Counter(str(binding.var.name) for block in guarded["main"].body.blocks for binding in block.bindings)
    known = {name: tensor for name, tensor in named.items() if bound[name] <= 1}  # a new variable may have an old name
    return GuardedModule(guarded, tuple(checks), known)


@mutator
class _Rewriter(PyExprMutator):  # type: ignore[misc]
    """Applies the plans of `main`.

    `results` maps a planned variable to the number of its index among the indices that `main` returns.  `made` maps the
    name of a new variable to that of the variable it was made for.
    """

    def __init__(self, module: tvm.IRModule, plans: Mapping[Any, _Plan], result: Any) -> None:
        super().__init__(module)
        self.plans = plans
        self.result = result
        self.results: dict[Any, int] = {}
        self.made: dict[str, str] = {}
        self._hidden: list[Any] = []

    def visit_var_binding_(self, binding: relax.VarBinding) -> None:
        plan = self.plans.get(binding.var)
        if binding.var.same_as(self.result) and self._hidden:
            value = self.visit_expr(binding.value)
            outputs = list(value.fields) if isinstance(value, relax.Tuple) else [value]
            self.set_var_remap(binding.var, self.builder_.emit_output(relax.Tuple([*outputs, *self._hidden])))
        elif plan is None:
            super().visit_var_binding_(binding)
        elif read_mark(binding.value) is not None:
            settled = self._settled(binding.var, plan)
            if isinstance(settled, tvm.ir.GenericConst):  # folded since it was marked
                settled = self._made(binding.var, settled)
            self.set_var_remap(binding.var, settled)
        else:
            index = self._settled(binding.var, plan)
            call = binding.value
            operands = [self.visit_expr(argument) for argument in call.args]
            operands[_OPERANDS[str(call.op.name)]] = index
            rewritten = relax.Call(call.op, operands, call.attrs, call.ty_args)
            self.set_var_remap(binding.var, self.builder_.emit(rewritten, str(binding.var.name)))

    def _settled(self, variable: Any, plan: _Plan) -> Any:
        mark = plan.mark
        index = self.visit_expr(mark.index)
        dtype = str(index.ty.dtype)
        if plan.clamp and mark.checked:
            self._return(variable, index)
        sizes = np.asarray(mark.sizes if len(mark.sizes) > 1 else mark.sizes[0])
        if plan.wrap:
            from_end = relax.op.add(index, _constant(sizes, dtype))
            index = self._made(variable, relax.op.where(relax.op.less(index, _constant(0, dtype)), from_end, index))
        if plan.clamp:
            index = self._made(variable, relax.op.maximum(index, _constant(0, dtype)))
            last = np.minimum(sizes - 1, min(np.iinfo(dtype).max, np.iinfo(np.int64).max))
            index = self._made(variable, relax.op.minimum(index, _constant(last, dtype)))
        return index

    def _return(self, variable: Any, index: Any) -> None:
        for number, known in enumerate(self._hidden):
            if known.same_as(index):
                self.results[variable] = number
                return
        self.results[variable] = len(self._hidden)
        self._hidden.append(index)

    def _made(self, variable: Any, expression: Any) -> Any:
        made = self.builder_.emit(expression)
        self.made[str(made.name)] = str(variable.name)
        return made


def _constant(value: Any, dtype: str) -> Any:
    return relax.const(np.asarray(value).astype(dtype), dtype)
