"""Loops (Loop, Scan) whose number of steps is known before a run are written out, one copy of the body a step.

The compiler has no loops around operators.  A loop that stays as it is runs in onnxruntime, and the model does not go
into a C program.  The steps are followed with the values that are known: the counter, what is computed from it, and so
the condition of the loop.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import GraphProto, ModelProto, NodeProto, helper, numpy_helper

from kintune.models.evaluation import RANDOM, evaluate
from kintune.models.onnx_nodes import DEFAULT_DOMAINS, nodes, subgraphs
from kintune.models.stated_types import stated_types

__all__ = ["WHY_LEFT", "certain_steps", "unroll"]

_MOST_NODES = 5000  # that all loops of a model may become: each is a kernel call, or a part of one
_MOST_KNOWN_BYTES = 1 << 12  # of a value that is followed: counters, conditions and indices are small
_OLDEST_SCAN = 9  # the operator set before which Scan has a batch axis

WHY_LEFT = {
    "Loop": f"its number of steps depends on the data; or it draws numbers; or it becomes over {_MOST_NODES} nodes",
    "Scan": f"its inputs' lengths are open; or it is of an opset before {_OLDEST_SCAN}; or it draws numbers",
}
"""Why an operator with subgraphs stays in a graph, by its type."""


class _Unknown(Exception):
    """How often the loop runs depends on the data."""


class _TooMany(Exception):
    """The loops of the model become more than `_MOST_NODES` nodes."""


def certain_steps(model: ModelProto) -> int:
    """The most steps that a Loop of the model makes whatever its data are; 0 where there is none."""
    loops = [node for node in nodes(model) if node.op_type == "Loop" and node.domain in DEFAULT_DOMAINS]
    if not loops:
        return 0
    graphs = [model.graph, *(graph for node in nodes(model) for graph in subgraphs(node))]
    known = {name: value for graph in graphs for name, value in _small_constants(graph).items()}
    return max(_steps(node, known) for node in loops)


def _steps(node: NodeProto, known: Mapping[str, NDArray[Any]]) -> int:
    """The steps that a Loop makes if nothing but its number of steps ends it, else 0."""
    limit, condition = (*node.input, "", "")[:2]
    if limit not in known or known[limit].size != 1 or not _is_true(condition or None, known):
        return 0
    body = next((attribute.g for attribute in node.attribute if attribute.name == "body"), None)
    if body is None or len(body.input) < 2 or not body.output:
        return 0
    copies = {inner.output[0]: inner.input[0] for inner in body.node if inner.op_type == "Identity" and inner.input}
    going, seen = body.output[0].name, set[str]()
    while going in copies and going not in seen:
        seen.add(going)
        going = copies[going]
    return max(int(known[limit].reshape(())), 0) if going == body.input[1].name or _is_true(going, known) else 0


def _is_true(name: str | None, known: Mapping[str, NDArray[Any]]) -> bool:
    """Whether a condition is left out, or known to hold."""
    return name is None or (name in known and bool(known[name].all()))


def unroll(model: ModelProto, opset: int) -> ModelProto | None:
    """A copy of `model` without the loops whose number of steps is known; None where it has no such loop.

    `opset` is the version of the default operator set.  Where the loops would become more than 5000 nodes together,
    all of them stay; those in the branches of an If always do.  Tensors and nodes of a step are named after the loop
    and the number of the step.
    """
    if not any(_is_loop(node) for node in model.graph.node):
        return None
    writer = _Writer(opset, _small_constants(model.graph), _shapes(model))
    written: list[NodeProto] = []
    loops = 0
    for node in model.graph.node:
        try:
            steps = writer.steps(node) if _is_loop(node) else [node]
            loops += _is_loop(node)
        except _Unknown:
            steps = [node]
        except _TooMany:
            return None
        written.extend(steps)
    if not loops:
        return None
    unrolled = ModelProto()
    unrolled.CopyFrom(model)
    del unrolled.graph.node[:]
    unrolled.graph.node.extend(written)
    return unrolled


def _is_loop(node: NodeProto) -> bool:
    return node.op_type in ("Loop", "Scan") and node.domain in DEFAULT_DOMAINS


def _small_constants(graph: GraphProto) -> dict[str, NDArray[Any]]:
    tensors = {tensor.name: tensor for tensor in graph.initializer}
    for node in graph.node:
        if node.op_type == "Constant" and node.attribute[0].name == "value":
            tensors[node.output[0]] = node.attribute[0].t
    small = {name: tensor for name, tensor in tensors.items() if np.prod(tensor.dims) * 8 <= _MOST_KNOWN_BYTES}
    return {name: numpy_helper.to_array(tensor) for name, tensor in small.items()}


def _shapes(model: ModelProto) -> dict[str, tuple[int, ...]]:
    """The shapes of tensors of the main graph that are known: a Scan runs as often as its inputs are long."""
    if not any(node.op_type == "Scan" for node in model.graph.node):
        return {}
    found = {}
    for name, value in stated_types(model).items():
        dims = value.type.tensor_type.shape.dim
        if value.type.tensor_type.HasField("shape") and all(dim.HasField("dim_value") for dim in dims):
            found[name] = tuple(dim.dim_value for dim in dims)
    return {**found, **{tensor.name: tuple(tensor.dims) for tensor in model.graph.initializer}}


class _Writer:
    """Writes loops out; `known` has the values that are followed, `shapes` those of tensors outside of loops.

    What a Scan reads in a step, and its state, have shapes that follow from them.
    """

    def __init__(self, opset: int, known: Mapping[str, NDArray[Any]], shapes: Mapping[str, tuple[int, ...]]) -> None:
        self._left = _MOST_NODES
        self._opset = opset
        self._known = dict(known)
        self._shapes = dict(shapes)

    def steps(self, node: NodeProto) -> list[NodeProto]:
        """The nodes that compute what the loop computes.

        Raises:
            _Unknown: the number of steps is not known, or a step draws random numbers.
            _TooMany: there would be too many nodes.
        """
        left = self._left
        try:
            return self._loop(node) if node.op_type == "Loop" else self._scan(node)
        except _Unknown:
            self._left = left  # nothing of it is written
            raise

    def _loop(self, node: NodeProto) -> list[NodeProto]:
        limit, condition, *state = (*node.input, "", "")[: max(2, len(node.input))]
        most = None if not limit else int(self._value(limit))
        if _steps(node, self._known) > self._left:
            raise _TooMany
        going = not condition or bool(self._value(condition))
        body = _Body(node)
        written = self._shared(body)
        collected: list[list[str]] = [[] for _ in node.output[len(state) :]]
        number = 0
        while going and (most is None or number < most):
            counter = self._constant(written, f"{body.name}/{number}/step", np.array(number, np.int64))
            ran = self._constant(written, f"{body.name}/{number}/condition", np.array(True))
            condition, *results = self._step(written, body, number, [counter, ran, *state])
            going = bool(self._value(condition))
            state = results[: len(state)]
            for parts, name in zip(collected, results[len(state) :], strict=False):
                parts.append(name)
            number += 1
        self._finish(written, node, state, collected, [0] * len(collected))
        return written

    def _scan(self, node: NodeProto) -> list[NodeProto]:
        if self._opset < _OLDEST_SCAN:
            raise _Unknown
        attributes = {attribute.name: helper.get_attribute_value(attribute) for attribute in node.attribute}
        count = attributes["num_scan_inputs"]
        state, scanned = list(node.input[:-count]), list(node.input[-count:])
        axes = attributes.get("scan_input_axes") or [0] * count
        backwards = attributes.get("scan_input_directions") or [0] * count
        collected: list[list[str]] = [[] for _ in node.output[len(state) :]]
        if scanned[0] not in self._shapes:
            raise _Unknown
        body = _Body(node)
        written = self._shared(body)
        length = self._shapes[scanned[0]][axes[0]]
        for number in range(length):
            parts = []
            for place, (name, axis, back) in enumerate(zip(scanned, axes, backwards, strict=True)):
                at = np.array(length - 1 - number if back else number, np.int64)
                index = self._constant(written, f"{body.name}/{number}/index_{place}", at)
                parts.append(f"{body.name}/{number}/part_{place}")
                written.append(helper.make_node("Gather", [name, index], [parts[-1]], name=parts[-1], axis=axis))
                if (shape := self._shapes.get(name)) is not None:
                    axis %= len(shape)
                    self._shapes[parts[-1]] = (*shape[:axis], *shape[axis + 1 :])
            results = self._step(written, body, number, [*state, *parts])
            for name, result in zip(state, results, strict=False):  # a state keeps its shape
                if name in self._shapes:
                    self._shapes[result] = self._shapes[name]
            state = results[: len(state)]
            for made, name in zip(collected, results[len(state) :], strict=False):
                made.append(name)
        out_axes = attributes.get("scan_output_axes") or [0] * len(collected)
        for made, back in zip(collected, attributes.get("scan_output_directions") or [], strict=False):
            made[:] = made[::-1] if back else made
        self._finish(written, node, state, collected, out_axes)
        return written

    def _step(self, written: list[NodeProto], body: _Body, number: int, inputs: Sequence[str]) -> list[str]:
        """Appends the nodes of one step; returns the names of what it yields."""
        self._count()
        names = body.names(number, inputs)
        for inner in body.nodes:
            node = _renamed(inner, names)
            node.name = f"{body.label}/{number}/{inner.name or next(iter(inner.output), '')}"
            if node.op_type in RANDOM:
                raise _Unknown
            if _is_loop(node):
                written.extend(self.steps(node))
            elif not self._computed(written, node):
                self._count()
                written.append(node)
        return [names.get(value.name, value.name) for value in body.graph.output]

    def _count(self) -> None:
        self._left -= 1
        if self._left < 0:
            raise _TooMany

    def _shared(self, body: _Body) -> list[NodeProto]:
        """The constants of the body, as nodes; small ones are followed."""
        written = body.constants()
        for node in written:
            attribute = node.attribute[0]
            if attribute.name == "value" and np.prod(attribute.t.dims) * 8 <= _MOST_KNOWN_BYTES:
                self._known[node.output[0]] = numpy_helper.to_array(attribute.t)
        return written

    def _computed(self, written: list[NodeProto], node: NodeProto) -> bool:
        """Whether the node's results follow from known values; then they are written as constants."""
        if not node.input or any(name and name not in self._known for name in node.input):
            return False
        if any(True for _ in subgraphs(node)):
            return False
        results = evaluate(node, [self._known[name] if name else None for name in node.input], self._opset)
        if results is None or any(result.nbytes > _MOST_KNOWN_BYTES for result in results):
            return False
        for name, result in zip(node.output, results, strict=True):
            if name:
                self._constant(written, name, result)
        return True

    def _constant(self, written: list[NodeProto], name: str, value: NDArray[Any]) -> str:
        self._known[name] = value
        written.append(helper.make_node("Constant", [], [name], name=name, value=numpy_helper.from_array(value)))
        return name

    def _value(self, name: str) -> NDArray[Any]:
        if name not in self._known or self._known[name].size != 1:
            raise _Unknown
        return self._known[name].reshape(())

    def _finish(
        self,
        written: list[NodeProto],
        node: NodeProto,
        state: Sequence[str],
        collected: Sequence[Sequence[str]],
        axes: Sequence[int],
    ) -> None:
        """Appends the loop's outputs: the last state, and what the steps collected, along a new axis."""
        for name, last in zip(node.output, state, strict=False):
            if name:
                written.append(helper.make_node("Identity", [last], [name], name=name))
        for name, parts, axis in zip(node.output[len(state) :], collected, axes, strict=False):
            if not name:
                continue
            if not parts:
                raise _Unknown  # the shape of nothing is not known
            joined = []
            for number, part in enumerate(parts):
                joined.append(f"{name}/part/{number}")
                written.extend(self._unsqueeze(part, joined[-1], axis))
            written.append(helper.make_node("Concat", joined, [name], name=name, axis=axis))

    def _unsqueeze(self, name: str, result: str, axis: int) -> list[NodeProto]:
        if self._opset < 13:
            return [helper.make_node("Unsqueeze", [name], [result], name=result, axes=[axis])]
        axes = numpy_helper.from_array(np.array([axis], np.int64))
        return [
            helper.make_node("Constant", [], [f"{result}/axes"], name=f"{result}/axes", value=axes),
            helper.make_node("Unsqueeze", [name, f"{result}/axes"], [result], name=result),
        ]


class _Body:
    """The body of a loop: what all steps share, which are its constants, and what each has for itself."""

    def __init__(self, node: NodeProto) -> None:
        self.name = next(name for name in node.output if name)  # no other tensor has it
        self.label = node.name or self.name
        self.graph = next(attribute.g for attribute in node.attribute if attribute.name == "body")
        self._constants = [inner for inner in self.graph.node if inner.op_type == "Constant"]
        self.nodes = [inner for inner in self.graph.node if inner.op_type != "Constant"]
        own = [tensor.name for tensor in self.graph.initializer]
        own += [name for inner in self._constants for name in inner.output]
        self._shared = {name: f"{self.name}/{name}" for name in own}

    def constants(self) -> list[NodeProto]:
        """What all steps share, as nodes."""
        made = [_renamed(inner, self._shared) for inner in self._constants]
        for tensor in self.graph.initializer:
            made.append(helper.make_node("Constant", [], [self._shared[tensor.name]], value=tensor))
        return made

    def names(self, number: int, inputs: Sequence[str]) -> dict[str, str]:
        """Name in the body -> name outside, in the step of this number with these inputs."""
        made = [name for inner in self.nodes for name in inner.output if name]
        given = {value.name: name for value, name in zip(self.graph.input, inputs, strict=True)}
        return {**self._shared, **given, **{name: f"{self.name}/{number}/{name}" for name in made}}


def _renamed(node: NodeProto, names: Mapping[str, str]) -> NodeProto:
    """A copy of the node that reads and makes tensors of other names, also what its own graphs take from outside."""
    renamed = NodeProto()
    renamed.CopyFrom(node)
    del renamed.input[:], renamed.output[:]
    renamed.input.extend(names.get(name, name) for name in node.input)
    renamed.output.extend(names.get(name, name) for name in node.output)
    for graph in subgraphs(renamed):
        _rename_outside(graph, names)
    return renamed


def _rename_outside(graph: GraphProto, names: Mapping[str, str]) -> None:
    own = {value.name for value in graph.input} | {tensor.name for tensor in graph.initializer}
    own |= {name for node in graph.node for name in node.output}
    outer = {name: other for name, other in names.items() if name not in own}
    copies = [_renamed(node, outer) for node in graph.node]
    del graph.node[:]
    graph.node.extend(copies)
    for value in graph.output:
        value.name = outer.get(value.name, value.name)
