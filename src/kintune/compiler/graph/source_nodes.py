"""Finds nodes of the user's graph for a network: the first one that fails, and those that a subgraph may compute."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING

import tvm
from tvm import relax

from kintune.compiler.graph.rewriting import CALL_KERNEL, bindings_of, operator_of, static_shape
from kintune.compiler.graph.workload import StandaloneWorkload

if TYPE_CHECKING:
    from kintune.models.model import ImportedModel

__all__ = ["first_bindings", "first_failing_node", "nodes_of"]


def first_failing_node(
    model: ImportedModel,
    attempt: Callable[[tvm.IRModule], object],
    ends: Collection[str] | None = None,
    kind: type[Exception] = Exception,
) -> str:
    """The first node of `model` for which `attempt` raises an error of this `kind`, as messages name it.

    Returns "" if `attempt` succeeds on the whole network, or if the name of the node is not known.  `attempt` is called
    with the first bindings of the network; bisection finds the smallest number with which it fails.  With `ends`, the
    last of these bindings is always one of a variable with one of these names.

    Raises:
        Exception: an error of another kind that `attempt` raises.
    """
    names = [str(binding.var.name) for binding in bindings_of(model.module["main"])]
    counts = [number for number, name in enumerate(names, start=1) if ends is None or name in ends]

    def fails(position: int) -> bool:
        try:
            attempt(first_bindings(model.module, counts[position]))
        except kind:
            return True
        return False

    fine, bad = -1, len(counts) - 1  # the last position in `counts` known to succeed, and the first known to fail
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
    """The module with only the first `count` bindings of `main`, at least one; it returns those that no other reads."""
    main = module["main"]
    kept = bindings_of(main)[:count]
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


def nodes_of(model: ImportedModel, workloads: Sequence[StandaloneWorkload]) -> dict[str, tuple[str, ...]]:
    """Maps workload digests to the nodes that they may belong to, as messages name them, in the order of the network.

    TVM's passes do not keep the origin of a subgraph.  So the nodes are those that contain its first operator and have
    a result of as many elements; if there is none, all that contain the operator.
    """
    by_operator: dict[str, list[tuple[int, str]]] = {}
    for binding in bindings_of(model.module["main"]):
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
    """The name of the operator that a binding calls, as in `StandaloneWorkload.signature`."""
    name = operator_of(value)
    if name == CALL_KERNEL:
        name = str(value.args[0].name_hint)
    return re.sub(r"\d+$", "", name.rpartition(".")[2]).partition("_")[0]
