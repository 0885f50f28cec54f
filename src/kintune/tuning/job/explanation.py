"""Finds the first of the user's nodes because of which a network fails."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import tvm

from kintune.compiler.graph.assemble import assemble
from kintune.compiler.graph.lower import Lowered, lower
from kintune.compiler.graph.source_nodes import first_failing_node
from kintune.errors import NumericsError
from kintune.models.constants import constant_values
from kintune.runtime.inputs import Array
from kintune.runtime.tensors import array_of, leaves_of
from kintune.validate.numerics import compare_outputs

if TYPE_CHECKING:
    from kintune.models.model import ImportedModel

__all__ = ["first_difference", "first_uncompilable", "first_wrong", "is_right"]

_TOLERANCE = 1e-2


def first_uncompilable(model: ImportedModel, target: tvm.target.Target) -> str:
    """Return the first node that cannot be compiled, as messages name it; empty if there is none."""

    def attempt(module: tvm.IRModule) -> None:
        assemble(lower(module, target, conservative=True), {}, target)

    return first_failing_node(model, attempt)


def first_wrong(model: ImportedModel, target: tvm.target.Target, inputs: Mapping[str, Array]) -> str:
    """Return the first node whose result differs from onnxruntime's on these `inputs`, as messages name it.

    Empty if it cannot be found: the model is not an ONNX file, onnxruntime cannot return intermediate tensors, or
    another error ends the search.
    """
    return first_difference(model, target, inputs, _tensors(model, inputs))


def first_difference(
    model: ImportedModel, target: tvm.target.Target, inputs: Mapping[str, Array], expected: Mapping[str, Array]
) -> str:
    """Return the first node whose result differs from what is `expected` of its tensors, as messages name it.

    Empty if it cannot be found: nothing is expected, or another error ends the search.
    """
    if not expected:
        return ""
    holders = _holders(model, expected)
    values = [inputs[tensor.name] for tensor in model.inputs]

    def attempt(module: tvm.IRModule) -> None:
        for name, found in zip(_returned(module), _run(module, target, values), strict=True):
            if name in holders:
                expected = holders[name]  # its variable may be of a wider type
                compared = compare_outputs([name], [found.astype(expected.dtype)], [expected], _TOLERANCE, _TOLERANCE)
                if compared.disagreement:
                    raise NumericsError(compared.disagreement)

    try:
        return first_failing_node(model, attempt, holders, NumericsError)
    except Exception:  # only the name in the message is missing then
        return ""


def _holders(model: ImportedModel, expected: Mapping[str, Array]) -> dict[str, Array]:
    """Return the variables that hold tensors of the model (not intermediate results of a node), with their values."""
    main = model.module["main"]
    last: dict[str, tuple[str, tuple[int, ...]]] = {}
    for block in main.body.blocks:
        for binding in block.bindings:
            name, kind = str(binding.var.name), binding.var.ty
            if (tensor := model.sources.get(name)) in expected and isinstance(kind, tvm.relax.TensorType):
                last[str(tensor)] = name, tuple(int(extent) for extent in kind.shape)
    return {name: expected[tensor] for tensor, (name, shape) in last.items() if expected[tensor].shape == shape}


def is_right(
    lowered: Lowered,
    target: tvm.target.Target,
    values: Sequence[Array],
    names: Sequence[str],
    expected: Sequence[Array],
) -> bool:
    """Return whether a lowered network compiles, and computes what is `expected` of its outputs, which have `names`."""
    try:
        found = _computed(lowered, target, values)
    except Exception:  # the compiler raises any kind of exception
        return False
    return not compare_outputs(names, found[: len(names)], expected, _TOLERANCE, _TOLERANCE).disagreement


def _run(module: tvm.IRModule, target: tvm.target.Target, values: Sequence[Array]) -> list[Array]:
    return _computed(lower(module, target, conservative=True), target, values)


def _computed(lowered: Lowered, target: tvm.target.Target, values: Sequence[Array]) -> list[Array]:
    program = assemble(lowered, {}, target)
    machine = tvm.relax.VirtualMachine(program.executable, tvm.cpu())
    arguments = [tvm.runtime.tensor(np.ascontiguousarray(value)) for value in values]
    return [np.array(array_of(leaf)) for leaf in leaves_of(machine["main"](*arguments, *program.weights))]


def _returned(module: tvm.IRModule) -> list[str]:
    """Return the names, in the whole network, of the variables that a module of its first nodes returns."""
    names: list[str] = []
    main = module["main"]
    bindings = {binding.var: binding.value for block in main.body.blocks for binding in block.bindings}
    result: Any = main.body.body
    while result in bindings and not isinstance(bindings[result], tvm.relax.Call):
        result = bindings[result]
    for field in result.fields if isinstance(result, tvm.relax.Tuple) else [result]:
        names.append(str(getattr(field, "name", "")))
    return names


def _tensors(model: ImportedModel, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """Return the tensors that onnxruntime computes inside the model, by name; empty if it cannot."""
    if model.onnx_path is None:
        return {}
    import onnx
    import onnxruntime

    try:
        proto = onnx.load(model.onnx_path)
        outputs = {value.name for value in proto.graph.output}
        wanted = set(model.sources.values()) - outputs
        inside = [name for node in proto.graph.node for name in node.output if name in wanted]
        proto.graph.output.extend(onnx.ValueInfoProto(name=name) for name in inside)
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        session = onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
        names = [value.name for value in session.get_outputs()]
        feeds = {**inputs, **{name: constant_values(constant) for name, constant in model.constants.items()}}
        found = session.run(names, {value.name: feeds[value.name] for value in session.get_inputs()})
    except Exception:  # only the name in the message is missing then
        return {}
    return dict(zip(names, found, strict=True))
