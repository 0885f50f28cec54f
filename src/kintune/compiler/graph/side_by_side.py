"""Makes a network that computes each subgraph by two programs from the same inputs, and returns both results.

Where rounding errors dominate a network's outputs, a comparison of these says little about a single program.  So each
subgraph with a chosen program is computed by that program and, from the same inputs, by the untuned one.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

import tvm
from tvm import relax
from tvm.relax.expr_functor import PyExprMutator, mutator

from kintune.compiler.graph.lower import Lowered
from kintune.compiler.graph.rewriting import CALL_KERNEL, operator_of
from kintune.core.model import Tensor
from kintune.core.stage_requests import output_name

__all__ = ["MOST_FLOPS", "ComparisonNetwork", "choose_alone", "side_by_side"]

MOST_FLOPS = 5e9
"""The most floating-point operations of all compared subgraphs: the untuned programs take some seconds for them."""


class ComparisonNetwork(NamedTuple):
    """The changed network `lowered`, and descriptions of its `outputs`.

    For each workload, the outputs of the chosen program come first, then those of the untuned one.
    """

    lowered: Lowered
    outputs: tuple[Tensor, ...]


def choose_alone(lowered: Lowered, chosen: Collection[str]) -> tuple[frozenset[str], frozenset[str]]:
    """The workloads with a `chosen` program that are compared, and those that are left out.

    Workloads with the fewest operations are compared first, as long as all together have at most `MOST_FLOPS`.
    """
    compared, flops = set(), 0.0
    for workload in sorted(lowered.workloads, key=lambda one: one.flops):
        if workload.digest in chosen and flops + workload.flops <= MOST_FLOPS:
            compared.add(workload.digest)
            flops += workload.flops
    return frozenset(compared), frozenset(chosen) - compared


def side_by_side(lowered: Lowered, workloads: Collection[str]) -> ComparisonNetwork:
    """The network in which the first occurrence of each of these `workloads` is computed a second time.

    The functions of the second computation have names that `lowered.functions` does not have, so they stay untuned.
    """
    module = tvm.IRModule(dict(lowered.module.functions_items()), attrs=lowered.module.attrs)
    copies: dict[str, tvm.ir.GlobalVar] = {}
    for name, digest in lowered.functions.items():
        if digest in workloads and digest not in copies:
            copies[digest] = tvm.ir.GlobalVar(f"{name}_untuned")
            relax.expr._update_type(copies[digest], lowered.module.get_global_var(name).ty)
            module.update_func(copies[digest], lowered.module[name].without_attr("global_symbol"))
    rewriter = _Twice(module, {name: copies[d] for name, d in lowered.functions.items() if d in copies})
    main = module["main"]
    body = rewriter.visit_expr(main.body)
    leaves = [leaf for pair in rewriter.pairs.values() for leaf in pair]
    outputs = tuple(
        Tensor(output_name(lowered.functions[name], number), tuple(int(n) for n in leaf.ty.shape), str(leaf.ty.dtype))
        for name, pair in rewriter.pairs.items()
        for number, leaf in enumerate(pair)
    )
    body = relax.SeqExpr(body.blocks, relax.Tuple(leaves))
    kind = relax.TupleType([leaf.ty for leaf in leaves])
    function = relax.Function(main.params, body, kind, main.is_pure, main.attrs)
    rewriter.builder_.update_func(module.get_global_var("main"), function)
    return ComparisonNetwork(lowered._replace(module=rewriter.builder_.get()), outputs)


@mutator
class _Twice(PyExprMutator):  # type: ignore[misc]
    """Computes the first call of each function in `copies` also by its copy; `pairs` has the outputs of both."""

    def __init__(self, module: tvm.IRModule, copies: Mapping[str, tvm.ir.GlobalVar]) -> None:
        super().__init__(module)
        self.pairs: dict[str, list[Any]] = {}
        self._copies = copies
        self._here: list[tuple[str, Any, Any]] = []
        self._seen: set[tvm.ir.GlobalVar] = set()

    def visit_dataflow_block_(self, block: relax.DataflowBlock) -> relax.BindingBlock:
        self.builder_._begin_dataflow_block()
        self._here = []
        for binding in block.bindings:
            self.visit_binding(binding)
        for name, one, other in self._here:
            self.pairs[name] = [self.builder_.emit_output(leaf) for whole in (one, other) for leaf in _leaves(whole)]
        return self.builder_._end_block()

    def visit_var_binding_(self, binding: relax.VarBinding) -> None:
        super().visit_var_binding_(binding)
        call = binding.value
        if operator_of(call) != CALL_KERNEL:
            return
        name = str(call.args[0].name_hint)
        copy = self._copies.get(name)
        if copy is None or copy in self._seen:
            return
        self._seen.add(copy)
        one = self.visit_expr(binding.var)
        arguments = self.visit_expr(call.args[1])
        other = self.builder_.emit(relax.Call(call.op, [copy, arguments, *call.args[2:]], call.attrs, call.ty_args))
        self._here.append((name, one, other))


def _leaves(value: Any) -> list[Any]:
    """The tensors of a variable that is a tensor or a tuple of tensors."""
    kind = value.ty
    if isinstance(kind, relax.TupleType):
        return [relax.TupleGetItem(value, at) for at in range(len(kind.fields))]
    return [value]
