"""From a network back to the nodes of the user's graph: which one fails first, and which ones a subgraph computes."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

import tvm
from tvm import relax

if TYPE_CHECKING:
    from kintune.models.model import ImportedModel
import math
import re
from collections.abc import Sequence

from kintune.compiler.graph.rewriting import CALL_KERNEL, operator_of, static_shape
from kintune.compiler.graph.workload import StandaloneWorkload

__all__ = ["first_bindings", "first_failing_node", "nodes_of"]


def first_failing_node(
    model: ImportedModel,
    attempt: Callable[[tvm.IRModule], object],
    ends: Collection[str] | None = None,
    kind: type[Exception] = Exception,
) -> str:
    """The first node of `model` with which `attempt` raises an error of this `kind`, as messages name it.

    Returns "" where it does not raise one for the whole network either, or where no name is known.  `attempt` is called
    with the first bindings of the network, their number found by bisection.  With `ends`, the last of them is always a
    variable of one of these names.

    Raises:
        Exception: what `attempt` raises of any other kind.
    """
    names = [str(binding.var.name) for binding in _bindings(model.module["main"])]
    counts = [number for number, name in enumerate(names, start=1) if ends is None or name in ends]

    def fails(position: int) -> bool:
        try:
            attempt(first_bindings(model.module, counts[position]))
        except kind:
            return True
        return False

    fine, bad = -1, len(counts) - 1  # positions in `counts` that do not fail, and that do
    if not counts or not fails(bad):
        return ""
    while bad - fine > 1:
        middle = (fine + bad) // 2
        if fails(middle):
            bad = middle
        else:
            fine = middle
    tensor = next((model.sources[name] for name in names[counts[bad] - 1 :] if name in model.sources), "")
    return model.nodes.get(tensor, tensor)


def first_bindings(module: tvm.IRModule, count: int) -> tvm.IRModule:
    """The module with the first `count` bindings of `main` alone, at least one; it returns what none of these uses."""
    main = module["main"]
    kept = _bindings(main)[:count]
    used = {variable for binding in kept for variable in relax.analysis.free_vars(binding.value)}
    returned = [binding.var for binding in kept if binding.var not in used]
    builder = relax.BlockBuilder(tvm.IRModule({v: f for v, f in module.functions_items() if v.name_hint != "main"}))
    with builder.function("main", list(main.params)):
        with builder.dataflow():
            for binding in kept:
                builder.emit_normalized(binding)
            outputs = builder.emit_output(returned[0] if len(returned) == 1 else relax.Tuple(returned))
        builder.emit_func_output(outputs)
    cut = builder.get()
    cut["main"] = cut["main"].with_attr("num_input", len(main.params))
    return cut


def _bindings(main: relax.Function) -> list[relax.Binding]:
    return [binding for block in main.body.blocks for binding in block.bindings]


def nodes_of(model: ImportedModel, workloads: Sequence[StandaloneWorkload]) -> dict[str, tuple[str, ...]]:
    """Workload digest -> the nodes that it may belong to, as messages name them, in the order of the network.

    The compiler's passes forget where a subgraph comes from.  So those nodes are taken that hold its first operator and
    yield as many values; where none does, those that hold the operator.
    """
    by_operator: dict[str, list[tuple[int, str]]] = {}
    for block in model.module["main"].body.blocks:
        for binding in block.bindings:
            tensor = model.sources.get(str(binding.var.name))
            if tensor is not None and (node := model.nodes.get(tensor)):
                by_operator.setdefault(_operator(binding.value), []).append((_elements(binding.var), node))
    found: dict[str, tuple[str, ...]] = {}
    for workload in workloads:
        held = by_operator.get(workload.signature.partition("-")[0], [])
        size = math.prod(int(extent) for extent in workload.module["main"].params[-1].shape)
        alike = [node for own, node in held if own == size] or [node for _, node in held]
        found[workload.digest] = tuple(dict.fromkeys(alike))
    return found


def _elements(variable: relax.Var) -> int:
    """The number of elements of the variable's tensor; -1 where it is no tensor or its shape is not known."""
    shape = static_shape(variable)
    return -1 if shape is None else math.prod(shape)


def _operator(value: relax.Expr) -> str:
    """The operator that a binding calls, as signatures spell it."""
    name = operator_of(value)
    if name == CALL_KERNEL:
        name = str(value.args[0].name_hint)
    return re.sub(r"\d+$", "", name.rpartition(".")[2]).partition("_")[0]
