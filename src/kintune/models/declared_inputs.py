"""The inputs that a model declares, with their shapes fixed: what can be said of it without the compiler."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from onnx import ModelProto, helper

from kintune.core.model import Combination, ModelRef, Tensor
from kintune.models import zoo
from kintune.models.exported_program import exported_inputs
from kintune.models.graph_file import GraphFile, open_graph, readable_names
from kintune.models.ref import EXPORTED, ZOO
from kintune.models.shapes import ELEMENT_TYPES, bind, fit_constants, with_constants

__all__ = ["declared_inputs"]


def declared_inputs(ref: ModelRef) -> tuple[Combination, ...]:
    """Return the inputs of a model as its file declares them, with each combination of its shapes, and no outputs.

    An exported program is opened with PyTorch, which takes seconds; an ONNX file takes as long as it is read.

    Raises:
        ModelError: the file is damaged or cannot be used, or a constant does not fit; `ShapeError` where a shape is
            missing or wrong.
        OrderError: when the model comes from PyTorch and PyTorch is not installed.
    """
    if ref.kind == EXPORTED:
        return tuple(Combination(exported_inputs(each), ()) for each in ref.each())
    file = _zoo_file(ref) if ref.kind == ZOO else open_graph(Path(ref.source), own=ref.reads_other_files)
    with readable_names(file.path):
        return tuple(Combination(_inputs(file, shapes, ref), ()) for shapes in ref.combinations)


def _zoo_file(ref: ModelRef) -> GraphFile:
    ports = zoo.build(ref.source, **ref.options).inputs
    inputs = [helper.make_tensor_value_info(name, element, shape) for name, element, shape in ports]
    return GraphFile(Path(f"zoo:{ref.source}"), helper.make_model(helper.make_graph([], ref.source, inputs, [])), {})


def _inputs(file: GraphFile, shapes: Mapping[str, tuple[int, ...]], ref: ModelRef) -> tuple[Tensor, ...]:
    label = str(file.path)
    graph = ModelProto()
    graph.CopyFrom(file.graph)
    values = fit_constants(label, graph, ref.constants)
    fixed = bind(label, graph, with_constants(label, shapes, values), file.weights)
    return tuple(
        Tensor(port.name, fixed[port.name], ELEMENT_TYPES[port.type.tensor_type.elem_type])
        for port in graph.graph.input
        if port.name not in values
    )
