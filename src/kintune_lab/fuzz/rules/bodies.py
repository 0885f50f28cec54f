"""Draws nodes with graphs inside: If, Loop and Scan, whose bodies read tensors from outside as well."""

from __future__ import annotations

import numpy as np
from onnx import GraphProto, NodeProto, TensorProto, helper

from kintune_lab.fuzz.drawing import Drawer, NoSuchValue, Rule
from kintune_lab.fuzz.values import FLOATS, Array, LeafRole

__all__ = ["RULES"]

_DEEPEST = 2
_MOST_STEPS = 8
_TYPES = ("float32", "float32", "float64", "int64", "int32", "bool")


def _grow(body: Drawer) -> None:
    if body.depth > _DEEPEST:
        raise NoSuchValue
    body.grow(body.integer(1, 3))


def _computed(body: Drawer, dtype: str = "", shape: tuple[int, ...] | None = None) -> list[str]:
    """The tensors that nodes of the body compute, of this type and shape if they are given."""
    made = [name for node in body.nodes for name in node.output if name]
    return [
        name
        for name in made
        if isinstance(value := body.graph.values[name], np.ndarray)
        and (not dtype or (value.dtype.name, value.shape) == (dtype, shape))
    ]


def _like(body: Drawer, value: Array, given: str) -> str:
    """A tensor of the type and shape of `value`: what the body has computed, else a function of `given`."""
    found = _computed(body, value.dtype.name, value.shape)
    if found and body.chance(0.8):
        return str(body.choice(found))
    if value.dtype.name in FLOATS:
        return body.node(body.choice(("Neg", "Sigmoid", "Identity", "Tanh")), [given], {})[0]
    return body.node("Not" if value.dtype.kind == "b" else "Identity", [given], {})[0]


def _draw_if(d: Drawer, operator: str) -> None:
    """Append an If whose branches have outputs of the same types and shapes; the condition may be computed."""
    condition = d.tensor(("bool",), shape=())
    then = d.body()
    _grow(then)
    outputs = _computed(then)
    if not outputs:
        raise NoSuchValue
    wanted = [str(name) for name in d.rng.permutation(outputs)[: d.integer(1, 2)]]
    other = d.body()
    _grow(other)
    others = []
    for name in wanted:
        value = d.array(name)
        others.append(_like(other, value, d.tensor((value.dtype.name,), shape=value.shape)))
    if len(set(others)) < len(others):
        raise NoSuchValue
    branches = {"then_branch": _branch(then, "then", wanted), "else_branch": _branch(other, "else", others)}
    d.node(operator, [condition], branches, len(wanted))


def _branch(body: Drawer, name: str, outputs: list[str]) -> GraphProto:
    return body.graph_of(name, [], outputs)


def _draw_loop(d: Drawer, operator: str) -> None:
    """Append a Loop of a few steps with one or two states, and perhaps a result for each step."""
    states = [d.tensor(_TYPES, where=lambda v: v.size < 2000) for _ in range(d.integer(1, 2))]
    body = d.body()
    step = body.parameter(d.fresh("step"), np.array(0, np.int64))
    going = body.parameter(d.fresh("going"), np.array(True))
    carried = [body.parameter(d.fresh("state"), d.array(name)) for name in states]
    _grow(body)
    results = [_like(body, d.array(name), own) for name, own in zip(states, carried, strict=True)]
    scanned = [str(name) for name in d.rng.permutation(_computed(body))[: d.integer(0, 1)]]
    still = body.node("Identity", [going], {})[0]
    if len({still, *results, *scanned}) < 1 + len(results) + len(scanned):
        raise NoSuchValue
    graph = body.graph_of("body", [step, going, *carried], [still, *results, *scanned])
    trips = d.constant(d.integer(1, 4))
    d.node(operator, [trips, d.constant(True, "bool"), *states], {"body": graph}, len(states) + len(scanned))


def _draw_scan(d: Drawer, operator: str) -> None:
    """Append a Scan with one state and one or two tensors that are read slice by slice along the first axis."""
    if d.opset < 9:
        raise NoSuchValue
    state = d.tensor(_TYPES, where=lambda v: v.size < 2000)
    read = d.tensor(_TYPES, rank=(1, 2, 3), where=lambda v: v.size > 0 and v.shape[0] <= _MOST_STEPS)
    body = d.body()
    own = body.parameter(d.fresh("state"), d.array(state))
    axis = d.choice((0, 0, d.integer(0, d.array(read).ndim - 1)))
    if d.array(read).shape[axis] > _MOST_STEPS:
        raise NoSuchValue
    part = body.parameter(d.fresh("part"), np.asarray(np.take(d.array(read), 0, axis)))
    _grow(body)
    result = _like(body, d.array(state), own)
    scanned = str(body.choice(_computed(body)))
    if scanned == result:
        raise NoSuchValue
    graph = body.graph_of("body", [own, part], [result, scanned])
    attributes = {"body": graph, "num_scan_inputs": 1}
    if axis or d.chance(0.2):
        attributes["scan_input_axes"] = [axis]
    if d.chance(0.3):
        attributes["scan_output_axes"] = [d.integer(0, d.array(scanned).ndim)]
    if d.chance(0.3):
        attributes["scan_input_directions"] = [1]
    if d.chance(0.3):
        attributes["scan_output_directions"] = [1]
    d.node(operator, [state, read], attributes, 2)


def _narrow(d: Drawer, operator: str) -> None:
    """Append an If whose branch goes through a type of few bits and back: Python has no arrays of these to compare."""
    x = d.tensor(("float32",), rank=(1, 2, 3, 4), where=lambda v: v.size > 0)
    kinds = [(TensorProto.BFLOAT16, 13), (TensorProto.FLOAT8E4M3FN, 19), (TensorProto.FLOAT8E5M2, 19)]
    kinds += [(TensorProto.INT4, 21), (TensorProto.UINT4, 21)]
    fitting = [kind for kind, first in kinds if d.opset >= first]
    if not fitting:
        raise NoSuchValue
    kind, names = d.choice(fitting), [d.fresh("narrow") for _ in range(3)]
    moved = helper.make_node("Transpose", names[:1], names[1:2], perm=[*range(d.array(x).ndim)][::-1])
    if kind in (TensorProto.INT4, TensorProto.UINT4) or (kind != TensorProto.BFLOAT16 and d.chance(0.5)):
        scale = d.leaf("float32", (), LeafRole(0.1, 0.5), constant=1)
        first = helper.make_node("QuantizeLinear", [x, scale], names[:1], output_dtype=kind)
        last = helper.make_node("DequantizeLinear", [names[1], scale], names[2:])
    else:
        first = helper.make_node("Cast", [x], names[:1], to=kind)
        last = helper.make_node("Cast", names[1:2], names[2:], to=TensorProto.FLOAT)
    branches = {}
    for name, nodes in (("then_branch", [first, moved, last]), ("else_branch", [_reversed(x, d, names[2])])):
        info = helper.make_tensor_value_info(names[2], TensorProto.FLOAT, d.array(x).shape[::-1])
        branches[name] = helper.make_graph(nodes, name, [], [info])
    d.node("If", [d.leaf("bool", (), constant=0.7)], branches)


def _reversed(x: str, d: Drawer, name: str) -> NodeProto:
    return helper.make_node("Transpose", [x], [name], perm=[*range(d.array(x).ndim)][::-1])


RULES: dict[str, Rule] = {"few bits": _narrow, "If": _draw_if, "Loop": _draw_loop, "Scan": _draw_scan}
