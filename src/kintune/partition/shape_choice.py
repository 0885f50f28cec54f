"""Builds a graph that runs a tuned graph for some shapes of its inputs, else the original.  Does not import TVM."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from onnx import GraphProto, ModelProto, NodeProto, TensorProto, TypeProto, helper

from kintune.errors import ModelError
from kintune.models.onnx_nodes import DEFAULT_DOMAINS, subgraphs

__all__ = ["choose_by_shape", "open_inputs"]

_PREFIX = "kintune/"


def open_inputs(model: ModelProto) -> tuple[str, ...]:
    """The inputs of a model whose shapes are open: a size is not given, or is -1, or there is no shape at all."""
    return tuple(
        value.name
        for value in model.graph.input
        if value.type.WhichOneof("value") == "tensor_type" and _is_open(value.type.tensor_type)
    )


def _is_open(tensor: TypeProto.Tensor) -> bool:
    return not tensor.HasField("shape") or any(
        not extent.HasField("dim_value") or extent.dim_value < 0 for extent in tensor.shape.dim
    )


def choose_by_shape(
    original: ModelProto, tuned: ModelProto, combinations: Sequence[Mapping[str, Sequence[int]]]
) -> ModelProto:
    """Return a graph that runs `tuned` for inputs with one of the `combinations` of shapes, else `original`.

    Both must have the same inputs and outputs by name.  `combinations` map inputs to shapes; there is at least one.

    Raises:
        ModelError: when the graphs use different versions of the default operator set.
    """
    versions = [_opset(model) for model in (original, tuned)]
    if versions[0] != versions[1]:
        raise ModelError(f"the tuned graph is of operator set {versions[1]}, the model of {versions[0]}")
    made = ModelProto()
    made.CopyFrom(original)
    opened = set(open_inputs(original))
    graph = made.graph
    then = _branch(tuned.graph, "then")
    other = _branch(original.graph, "else")
    del graph.node[:], graph.initializer[:], graph.value_info[:], graph.sparse_initializer[:]
    fitting = [_fits(graph, number, shapes, opened) for number, shapes in enumerate(combinations)]
    condition = fitting[0]
    for number, other_condition in enumerate(fitting[1:], start=1):
        name = f"{_PREFIX}any{number}"
        graph.node.append(helper.make_node("Or", [condition, other_condition], [name]))
        condition = name
    outputs = [value.name for value in graph.output]
    graph.node.append(
        helper.make_node("If", [condition], outputs, f"{_PREFIX}shapes", then_branch=then, else_branch=other)
    )
    known = {entry.domain for entry in made.opset_import}
    made.opset_import.extend(entry for entry in tuned.opset_import if entry.domain not in known)
    return made


def _opset(model: ModelProto) -> int:
    return next((entry.version for entry in model.opset_import if entry.domain in DEFAULT_DOMAINS), 0)


def _fits(graph: GraphProto, number: int, shapes: Mapping[str, Sequence[int]], opened: set[str]) -> str:
    """Add nodes that test whether the open inputs have these shapes; returns the name of the boolean result."""
    tests: list[str] = []
    for position, value in enumerate(graph.input):
        shape = shapes.get(value.name)
        if value.name not in opened or shape is None:
            continue
        start = f"{_PREFIX}{number}/{position}/"
        declared = value.type.tensor_type.HasField("shape")
        if declared and not shape:
            continue
        found, wanted = _sizes(graph, start, value.name, shape, padded=not declared)
        graph.initializer.append(helper.make_tensor(f"{start}wanted", TensorProto.INT64, [len(wanted)], wanted))
        steps: tuple[tuple[str, list[str], str, dict[str, int]], ...] = (
            ("Equal", [found, f"{start}wanted"], "equal", {}),
            ("Cast", [f"{start}equal"], "number", {"to": TensorProto.INT32}),
            ("ReduceMin", [f"{start}number"], "least", {"keepdims": 0}),
            ("Cast", [f"{start}least"], "fits", {"to": TensorProto.BOOL}),
        )
        for operator, inputs, name, attributes in steps:
            graph.node.append(helper.make_node(operator, inputs, [f"{start}{name}"], **attributes))
        tests.append(f"{start}fits")
    if not tests:
        name = f"{_PREFIX}{number}/always"
        graph.initializer.append(helper.make_tensor(name, TensorProto.BOOL, [], [True]))
        return name
    found = tests[0]
    for position, test in enumerate(tests[1:], start=1):
        name = f"{_PREFIX}{number}/all{position}"
        graph.node.append(helper.make_node("And", [found, test], [name]))
        found = name
    return found


def _sizes(graph: GraphProto, start: str, name: str, shape: Sequence[int], padded: bool) -> tuple[str, tuple[int, ...]]:
    """Add nodes for the sizes of an input; returns the name of the tensor that holds them, and its wanted value.

    With `padded`, for an input of unknown rank, the tensor has one size more than `shape`; missing sizes are -1.
    """
    sizes = f"{start}shape"
    graph.node.append(helper.make_node("Shape", [name], [sizes]))
    if not padded:
        return sizes, tuple(shape)
    count = len(shape) + 1
    for what, values in (("none", [-1] * count), ("places", list(range(count)))):
        graph.initializer.append(helper.make_tensor(f"{start}{what}", TensorProto.INT64, [count], values))
    graph.node.append(helper.make_node("Concat", [sizes, f"{start}none"], [f"{start}padded"], axis=0))
    graph.node.append(helper.make_node("Gather", [f"{start}padded", f"{start}places"], [f"{start}sizes"], axis=0))
    return f"{start}sizes", (*shape, -1)


def _branch(source: GraphProto, name: str) -> GraphProto:
    """The graph as a branch of an If: without inputs, and with new names for its outputs."""
    branch = GraphProto(name=name)
    given = {value.name for value in source.input}
    names = {value.name: f"{_PREFIX}{name}/{value.name}" for value in source.output}
    outputs = {made: new for made, new in names.items() if made not in given}
    for node in source.node:
        _rename(branch.node.add(), node, outputs)
    branch.initializer.extend(source.initializer)
    for tensor in branch.initializer:
        tensor.name = outputs.get(tensor.name, tensor.name)
    made = {tensor for node in branch.node for tensor in node.output} | {t.name for t in branch.initializer}
    for value in source.output:
        renamed = names[value.name]
        if renamed not in made:  # an input, unchanged
            branch.node.append(helper.make_node("Identity", [value.name], [renamed]))
        declared = branch.output.add()
        declared.CopyFrom(value)
        declared.name = renamed
    branch.value_info.extend(value for value in source.value_info if value.name not in outputs)
    return branch


def _rename(made: NodeProto, node: NodeProto, names: Mapping[str, str]) -> None:
    made.CopyFrom(node)
    made.input[:] = [names.get(name, name) for name in node.input]
    made.output[:] = [names.get(name, name) for name in node.output]
    for inner in subgraphs(made):
        _rename_inside(inner, names)


def _rename_inside(graph: GraphProto, names: Mapping[str, str]) -> None:
    own = {value.name for value in graph.input} | {tensor.name for tensor in graph.initializer}
    own |= {name for node in graph.node for name in node.output}
    taken = {name: new for name, new in names.items() if name not in own}
    for node in graph.node:
        copy = NodeProto()
        _rename(copy, node, taken)
        node.CopyFrom(copy)
    for value in graph.output:
        value.name = taken.get(value.name, value.name)
