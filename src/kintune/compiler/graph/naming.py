"""Which of the user's nodes a subgraph computes, as far as can be told."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tvm import relax

from kintune.compiler.graph.rewriting import operator_of
from kintune.compiler.graph.workload import StandaloneWorkload

if TYPE_CHECKING:
    from kintune.models.model import ImportedModel

__all__ = ["nodes_of"]

_CALL_KERNEL = "relax.call_tir"


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
                by_operator.setdefault(_operator(binding.value), []).append((_size(binding.var.ty), node))
    found: dict[str, tuple[str, ...]] = {}
    for workload in workloads:
        held = by_operator.get(workload.signature.partition("-")[0], [])
        output = workload.module["main"].params[-1]
        size = math.prod(int(extent) for extent in output.shape)
        alike = [node for own, node in held if own == size] or [node for _, node in held]
        found[workload.digest] = tuple(dict.fromkeys(alike))
    return found


def _operator(value: relax.Expr) -> str:
    """The operator that a binding calls, as signatures spell it."""
    name = operator_of(value)
    if name == _CALL_KERNEL:
        name = str(value.args[0].name_hint)
    return re.sub(r"\d+$", "", name.rpartition(".")[2]).partition("_")[0]


def _size(kind: relax.Type) -> int:
    if not isinstance(kind, relax.TensorType) or not isinstance(kind.shape, relax.ShapeExpr):
        return -1
    return math.prod(int(extent) for extent in kind.shape)
