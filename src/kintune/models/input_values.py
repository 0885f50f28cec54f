"""Finds the values that a graph demands of its inputs: numbers with which it compares them, or positive ones.

Graphs of any kind are read as steps, in an order in which values are computed before they are read.  An input that is
compared with constants decides what the graph computes: a sampling rate, the id of a task, a flag.  One from which a
root or a logarithm is taken must be positive, or all that follows is no number.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
from onnx import ModelProto, NodeProto, helper, numpy_helper

from kintune.models.onnx_nodes import DEFAULT_DOMAINS, subgraphs

__all__ = ["MOST_CHOICES", "InputDemand", "InputStep", "find_demands", "onnx_demands"]

Key: TypeAlias = Hashable
"""A tensor of the graph: a name, or a variable."""

Number: TypeAlias = int | float

MOST_CHOICES = 8
"""The most values from which an input is drawn."""

_MOST_ELEMENTS = 4  # of an input that decides
_MOVES = frozenset({"astype", "reshape", "expand_dims", "squeeze", "broadcast_to", "flatten", "identity"})
_AFFINE = frozenset({"add", "subtract", "multiply", "divide", "negative"})
_POSITIVE = frozenset({"sqrt", "rsqrt", "log", "log2", "asin", "acos", "atanh"})
_EQUAL = frozenset({"equal", "not_equal"})
_ORDERED = frozenset({"less", "less_equal", "greater", "greater_equal"})
_LOGICAL = frozenset({"logical_and", "logical_or", "logical_not"})
_OF_ONNX = {
    "Cast": "astype", "CastLike": "astype", "Reshape": "reshape", "Unsqueeze": "expand_dims", "Squeeze": "squeeze",
    "Expand": "broadcast_to", "Flatten": "flatten", "Identity": "identity", "Add": "add", "Sub": "subtract",
    "Mul": "multiply", "Div": "divide", "Neg": "negative", "Pow": "power", "Sqrt": "sqrt", "Log": "log",
    "Asin": "asin", "Acos": "acos", "Atanh": "atanh", "Equal": "equal", "Less": "less", "LessOrEqual": "less_equal",
    "Greater": "greater", "GreaterOrEqual": "greater_equal", "And": "logical_and", "Or": "logical_or",
    "Not": "logical_not", "Where": "where", "If": "if",
}  # fmt: skip
"""The operators of ONNX by the names of Relax."""


class InputStep(NamedTuple):
    """One operation, named as in Relax without its prefix ("if": a branch on the first input)."""

    operator: str
    inputs: tuple[Key, ...]
    outputs: tuple[Key, ...]


class InputDemand(NamedTuple):
    """What a graph demands of an input: one of the `choices`, if there are any; or a number above 0 and below 1."""

    choices: tuple[Number, ...] = ()
    positive: bool = False


class _Trace(NamedTuple):
    """A value computed from an input; `exact`: it has the input's own values."""

    source: Key
    exact: bool


def find_demands(
    inputs: Mapping[Key, tuple[str, int]],
    steps: Iterable[InputStep],
    constant: Callable[[Key], npt.NDArray[Any] | None],
) -> dict[Key, InputDemand]:
    """Returns what the graph demands of inputs, for those of which it demands anything.

    `inputs` have the type and the number of their elements.  `constant` gives the value of a tensor that is constant.
    """
    traces = {key: _Trace(key, exact=True) for key in inputs}
    found: dict[Key, dict[Number, None]] = {}
    positive: set[Key] = set()
    ordered: dict[Key, tuple[Key, tuple[Number, ...]]] = {}  # results of comparisons by order: input, values around

    def decides(source: Key, values: Iterable[Number]) -> None:
        if inputs[source][1] <= _MOST_ELEMENTS:
            found.setdefault(source, {}).update(dict.fromkeys(values))

    for step in steps:
        known = [traces.get(key) for key in step.inputs]
        first = known[0] if known else None
        if step.operator in _MOVES and first is not None:
            traces.update(dict.fromkeys(step.outputs[:1], first))
        elif step.operator in _AFFINE and (trace := _only(known, step, constant)) is not None:
            traces.update(dict.fromkeys(step.outputs[:1], trace._replace(exact=False)))
        elif first is not None and (step.operator in _POSITIVE or _takes_root(step, constant)):
            positive.add(first.source)
        elif step.operator in _EQUAL | _ORDERED:
            for trace, other in zip(known, reversed(step.inputs[:2]), strict=False):
                values = constant(other)
                if trace is None or not trace.exact or values is None or not 0 < values.size <= MOST_CHOICES:
                    continue
                numbers = [number.item() for number in values.reshape(-1)]
                if step.operator in _EQUAL:
                    decides(trace.source, numbers)
                elif inputs[trace.source][0].startswith(("int", "uint")) and values.dtype.kind in "iu":
                    near = tuple(number + away for number in numbers for away in (0, -1, 1))
                    ordered.update(dict.fromkeys(step.outputs[:1], (trace.source, near)))
        elif step.operator in ("if", "where") and step.inputs:
            if step.operator == "if" and step.inputs[0] in ordered:
                decides(*ordered[step.inputs[0]])
            elif first is not None and first.exact and inputs[first.source][1] == 1:
                decides(first.source, (1, 0))
        if step.operator in _MOVES | _LOGICAL:
            for key in step.inputs:
                if key in ordered:
                    ordered.update(dict.fromkeys(step.outputs[:1], ordered[key]))
    demands = {key: InputDemand(_fitting(_with_another(values), inputs[key][0])) for key, values in found.items()}
    demands |= {key: InputDemand(positive=True) for key in positive if inputs[key][0].startswith(("float", "bfloat"))}
    return {key: demand for key, demand in demands.items() if demand.choices or demand.positive}


def onnx_demands(model: ModelProto) -> dict[str, InputDemand]:
    """Returns what an ONNX graph of fixed shapes demands of its inputs, by name."""
    constants = {tensor.name: tensor for tensor in model.graph.initializer}
    inputs: dict[Key, tuple[str, int]] = {}
    for value in model.graph.input:
        declared = value.type.tensor_type
        if value.name not in constants and declared.elem_type:
            dtype = helper.tensor_dtype_to_np_dtype(declared.elem_type).name
            inputs[value.name] = (
                dtype,
                int(np.prod([extent.dim_value for extent in declared.shape.dim], dtype=np.int64)),
            )

    def steps(nodes: Iterable[NodeProto]) -> Iterator[InputStep]:
        for node in nodes:
            value = next((each.t for each in node.attribute if each.name == "value" and each.HasField("t")), None)
            if node.op_type == "Constant" and value is not None:
                constants[node.output[0]] = value
            if node.domain in DEFAULT_DOMAINS and node.op_type in _OF_ONNX:
                yield InputStep(_OF_ONNX[node.op_type], tuple(node.input), tuple(node.output))
            for graph in subgraphs(node):
                constants.update({tensor.name: tensor for tensor in graph.initializer})
                yield from steps(graph.node)

    def constant(key: Key) -> npt.NDArray[Any] | None:
        tensor = constants.get(str(key))
        small = tensor is not None and int(np.prod(tensor.dims, dtype=np.int64)) <= MOST_CHOICES
        return np.asarray(numpy_helper.to_array(tensor)) if tensor is not None and small else None

    return {str(key): demand for key, demand in find_demands(inputs, steps(model.graph.node), constant).items()}


def _only(
    known: list[_Trace | None], step: InputStep, constant: Callable[[Key], npt.NDArray[Any] | None]
) -> _Trace | None:
    """The trace of the only input that is no constant, if it has one."""
    traced = [trace for trace in known if trace is not None]
    others = [key for key, trace in zip(step.inputs, known, strict=True) if trace is None]
    return traced[0] if len(traced) == 1 and all(constant(key) is not None for key in others) else None


def _takes_root(step: InputStep, constant: Callable[[Key], npt.NDArray[Any] | None]) -> bool:
    """Whether it is a power whose exponent is no whole number."""
    if step.operator != "power" or len(step.inputs) < 2:
        return False
    exponent = constant(step.inputs[1])
    return exponent is not None and bool((np.asarray(exponent, np.float64) % 1 != 0).any())


def _with_another(values: Iterable[Number]) -> list[Number]:
    """The values; of one alone also another one, with which the comparison comes out otherwise."""
    each = list(values)
    if len(each) != 1 or not np.isfinite(each[0]):
        return each
    half = each[0] // 2
    return [*each, half if half != each[0] else each[0] + 1]


def _fitting(values: Iterable[Number], dtype: str) -> tuple[Number, ...]:
    """The first values that an input of this type may have."""
    kept = []
    for value in values:
        if dtype == "bool":
            fits = value in (0, 1)
        elif dtype.startswith(("int", "uint")):
            limits = np.iinfo(dtype)
            fits = limits.min <= value <= limits.max and value == int(value)
        else:
            fits = bool(np.isfinite(value))
        if fits:
            kept.append(int(value) if isinstance(value, bool) else value)
    return tuple(dict.fromkeys(kept))[:MOST_CHOICES]
