"""The types and shapes of tensors that ONNX does not infer: those behind onnxruntime's own operators, among others."""

from __future__ import annotations

from collections.abc import Iterator

from onnx import ModelProto, TensorProto, TypeProto, ValueInfoProto, helper, shape_inference

from kintune.models.evaluation import open_session

__all__ = ["stated_types"]

_TENSOR = "tensor("


def stated_types(model: ModelProto) -> dict[str, ValueInfoProto]:
    """The types and shapes of tensors of the main graph, as far as ONNX, or else onnxruntime, infers them.

    None is there where neither takes the model, or where a tensor is a sequence.
    """
    try:
        graph = shape_inference.infer_shapes(model).graph
    except Exception:  # it raises its own kinds, for models that are too large among others
        return {}
    found = {each.name: each for each in (*graph.input, *graph.value_info, *graph.output)}
    made = {name for node in graph.node for name in node.output if name}
    unknown = made - {name for name, each in found.items() if _is_fixed(each)}
    return {**found, **{each.name: each for each in _by_onnxruntime(model, unknown)}}


def _is_fixed(value: ValueInfoProto) -> bool:
    stated = value.type.tensor_type
    return stated.HasField("shape") and all(dim.HasField("dim_value") for dim in stated.shape.dim)


def _by_onnxruntime(model: ModelProto, names: set[str]) -> Iterator[ValueInfoProto]:
    if not names:
        return
    asked = ModelProto()
    asked.CopyFrom(model)
    stated = {port.name for port in model.graph.output}
    asked.graph.output.extend(helper.make_value_info(name, TypeProto()) for name in sorted(names - stated))
    try:
        ports = open_session(asked).get_outputs()
    except Exception:  # onnxruntime has its own exception types
        return
    for port in ports:
        if port.name in names and port.type.startswith(_TENSOR):
            dtype = TensorProto.DataType.Value(port.type[len(_TENSOR) : -1].upper())
            yield helper.make_tensor_value_info(port.name, dtype, port.shape)
