"""Which node of the user's graph is the first one that something goes wrong with."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

import tvm
from tvm import relax

if TYPE_CHECKING:
    from kintune.models.model import ImportedModel

__all__ = ["beginning", "first_culprit"]


def first_culprit(
    model: ImportedModel,
    attempt: Callable[[tvm.IRModule], object],
    ends: Collection[str] | None = None,
    kind: type[Exception] = Exception,
) -> str:
    """The first node of `model` with which `attempt` raises an error of this `kind`, as messages name it.

    Empty where it does not raise one for the whole network either, or where no name is known.  It is called with
    beginnings of the network, found by bisection: as often as the logarithm of the network's size says.  With `ends`,
    they end with variables of these names alone.

    Raises:
        Exception: what `attempt` raises of any other kind.
    """
    names = [str(binding.var.name) for binding in _bindings(model.module["main"])]
    counts = [number for number, name in enumerate(names, start=1) if ends is None or name in ends]

    def fails(position: int) -> bool:
        try:
            attempt(beginning(model.module, counts[position]))
        except kind:
            return True
        return False

    fine, bad = -1, len(counts) - 1  # positions of beginnings that go well, and that do not
    if not counts or not fails(bad):
        return ""
    while bad - fine > 1:
        middle = (fine + bad) // 2
        if fails(middle):
            bad = middle
        else:
            fine = middle
    tensor = model.sources.get(names[counts[bad] - 1], "")
    return model.nodes.get(tensor, tensor)


def beginning(module: tvm.IRModule, count: int) -> tvm.IRModule:
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
