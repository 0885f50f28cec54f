"""Rules for reductions."""

from __future__ import annotations

from kintune_lab.fuzz.drawing import Attributes, Drawer, Rule
from kintune_lab.fuzz.values import BYTES, FLOATS

__all__ = ["RULES"]


def _reduce(d: Drawer, operator: str) -> None:
    first = 13 if operator == "ReduceSum" else 18
    dtypes: tuple[str, ...] = (
        ("int32", "int64", *FLOATS) if operator not in ("ReduceLogSumExp", "ReduceLogSum") else FLOATS
    )
    if operator in ("ReduceMax", "ReduceMin"):
        dtypes += (*BYTES, "bool")
    x = d.tensor(dtypes, rank=(1, 2, 3, 4, 5))
    attributes: Attributes = {} if d.chance(0.4) else {"keepdims": d.integer(0, 1)}
    inputs = [x]
    if d.chance(0.85):
        axes = d.axes(d.array(x).ndim)
        if d.opset >= first:
            inputs.append(d.constant(axes))
        else:
            attributes["axes"] = axes
    elif d.opset >= first and d.chance(0.3):
        attributes["noop_with_empty_axes"] = 1
    d.node(operator, inputs, attributes)


def _arg_extreme(d: Drawer, operator: str) -> None:
    x = d.tensor((*FLOATS, "int32", "int8", "uint8"), rank=(1, 2, 3, 4))
    attributes: Attributes = {"axis": d.axis(d.array(x).ndim), "keepdims": d.integer(0, 1)}
    if d.opset >= 12 and d.chance(0.3):
        attributes["select_last_index"] = 1
    d.node(operator, [x], attributes)


RULES: dict[str, Rule] = {
    **{
        f"Reduce{kind}": _reduce
        for kind in ["L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare"]
    },
    **dict.fromkeys(("ArgMax", "ArgMin"), _arg_extreme),
}
