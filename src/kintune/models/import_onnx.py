"""Imports a prepared ONNX graph into a Relax module."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np
import tvm
from onnx import ModelProto, TensorProto, defs, helper, inliner
from tvm import relax

from kintune.errors import ModelError, UnsupportedOperators, cause_line
from kintune.models.conversion import Conversion
from kintune.models.converters.library import find
from kintune.models.half_precision import accumulate_in_float32
from kintune.models.imported_module import ImportedModule, trace
from kintune.models.onnx_nodes import DEFAULT_DOMAINS, described_nodes, nodes, operator_name
from kintune.models.quiet import quiet
from kintune.models.slimming import slim
from kintune.models.stated_types import stated_types
from kintune.models.unrolling import WHY_LEFT

if TYPE_CHECKING:
    from kintune.models.onnx import OnnxModel

__all__ = ["import_onnx"]

_COMPUTED_HERE = "If"
"""The operator that the conversion itself computes: it converts the graphs inside."""


def import_onnx(model: OnnxModel) -> ImportedModule:
    """Import a prepared model; all weights become constants of `main`.

    Raises:
        UnsupportedOperators: listing all operators that cannot be imported, found at any depth.
        ModelError: naming the node at which the importer gave up, and why.
    """
    label = str(model.path)
    proto = _expand(model)
    counts = _unsupported(proto, model.opset)
    if counts:
        raise UnsupportedOperators(label, dict(counts), WHY_LEFT)
    conversion = Conversion(label, model.opset, model.inputs)
    try:
        with quiet():
            module = conversion.convert(proto.graph)
    except ModelError:
        raise
    except Exception as error:  # TVM raises exceptions of many types
        raise ModelError(f"{label}: cannot be imported: {cause_line(error)}") from error
    module = _bind_weights(module, model, [value.name for value in proto.graph.input])
    module = accumulate_in_float32(module)
    sources = trace(module["main"], conversion.sources)
    return ImportedModule(module, sources, described_nodes(proto, model.proto), model.graph)


def _unsupported(model: ModelProto, opset: int) -> Counter[str]:
    """Counts the nodes of each operator that cannot be imported, at any depth."""
    return Counter(
        operator_name(node)
        for node in nodes(model)
        if find(node.domain, node.op_type, opset) is None
        and not (node.domain in DEFAULT_DOMAINS and node.op_type == _COMPUTED_HERE)
    )


def _expand(model: OnnxModel) -> ModelProto:
    """Replace standard operators that cannot be imported by other operators, where the standard defines them so."""
    expanded, tried = model.proto, set[str]()
    while missing := {name for name in _unsupported(expanded, model.opset) if "::" not in name} - tried:
        tried |= missing  # a definition may hold other such operators
        try:
            expanded = _inline(expanded, missing, model.opset)
        except Exception:  # then they are reported as unsupported
            break
    if expanded is model.proto:
        return expanded
    return slim(expanded, str(model.path), model.weights)  # the inlined definitions hold constants to fold


def _inline(model: ModelProto, operators: set[str], opset: int) -> ModelProto:
    """A copy in which the definitions of these operators by the standard stand for their nodes."""
    expanded = ModelProto()
    expanded.CopyFrom(model)
    _state_defaults(expanded, operators, opset)
    # the inliner asks for the types of all inputs of a node, also of constants and of those left out between others
    stated = [helper.make_tensor_value_info("", TensorProto.FLOAT, None)]
    stated += [helper.make_tensor_value_info(each.name, each.data_type, each.dims) for each in model.graph.initializer]
    typed = [each for each in model.graph.value_info if each.type.WhichOneof("value")]
    known = {each.name for each in (*typed, *model.graph.input, *model.graph.output)}
    stated += [each for name, each in stated_types(model).items() if name not in known]
    del expanded.graph.value_info[:]
    expanded.graph.value_info.extend([*typed, *stated])
    expanded = inliner.inline_selected_functions(
        expanded, [("", name) for name in operators], inline_schema_functions=True
    )
    names = {each.name for each in stated}
    kept = [each for each in expanded.graph.value_info if each.name not in names]
    del expanded.graph.value_info[:]
    expanded.graph.value_info.extend(kept)
    return expanded


def _state_defaults(model: ModelProto, operators: set[str], opset: int) -> None:
    """Give nodes of `operators` the attributes that they leave out: the inliner does not know their defaults."""
    for node in nodes(model):
        if node.op_type in operators and node.domain in DEFAULT_DOMAINS:
            given = {attribute.name for attribute in node.attribute}
            for name, attribute in defs.get_schema(node.op_type, opset).attributes.items():
                if name not in given and attribute.default_value.name:
                    node.attribute.append(attribute.default_value)


def _bind_weights(module: tvm.IRModule, model: OnnxModel, names: list[str]) -> tvm.IRModule:
    """Replace the parameters that are weights by constants; positions become the last parameters."""
    main = module["main"]
    bound = {}
    for name, parameter in zip(names, main.params, strict=True):
        if name not in model.inputs and name not in model.positions:
            bound[parameter] = tvm.runtime.tensor(np.ascontiguousarray(model.weights[name]))
    module = relax.transform.BindParams("main", bound)(module)
    module["main"] = module["main"].with_attr("num_input", len(model.inputs))
    return module
