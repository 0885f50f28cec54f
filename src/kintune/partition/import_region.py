"""Imports a region of a partitioned graph, as a model of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import ModelProto, helper, numpy_helper

from kintune.core.candidate import digest_of
from kintune.core.hybrid import Region
from kintune.core.model import ModelRef
from kintune.models.import_onnx import import_onnx
from kintune.models.imported_module import complete_model
from kintune.models.model import ImportedModel
from kintune.models.onnx import OnnxModel
from kintune.models.onnx_nodes import DEFAULT_DOMAINS
from kintune.models.ref import ONNX
from kintune.models.source_graph import onnx_graph
from kintune.partition.composition import extract

__all__ = ["import_region"]

_LARGE = 64 * 1024  # weights of so many bytes or more are passed beside the graph


def import_region(marked: ModelProto, region: Region, number: int, model_name: str, model_digest: str) -> ImportedModel:
    """Import region `number` of a marked graph; `model_name` and `model_digest` are those of the whole model.

    Raises:
        ModelError: as for `import_onnx`.
    """
    proto = extract(marked, region, number)
    inputs = {
        value.name: tuple(extent.dim_value for extent in value.type.tensor_type.shape.dim)
        for value in proto.graph.input
    }
    opset = next((entry.version for entry in proto.opset_import if entry.domain in DEFAULT_DOMAINS), 0)
    graph = onnx_graph(proto.graph)
    weights = _large_weights_apart(proto)
    name = f"{model_name} {region.name}"
    digest = digest_of(model_digest.encode(), repr(region).encode())
    model = OnnxModel(Path(name), proto, inputs, weights, digest, opset, {}, graph=graph)
    return complete_model(
        ModelRef(ONNX, name, name),
        import_onnx(model),
        tuple(inputs),
        region.outputs,
        digest=digest,
        constants={},
        opset=opset,
    )


def _large_weights_apart(proto: ModelProto) -> dict[str, NDArray[Any]]:
    """Turn large weights into inputs; returns their values."""
    apart: dict[str, NDArray[Any]] = {}
    for position in reversed(range(len(proto.graph.initializer))):
        tensor = proto.graph.initializer[position]
        values = np.asarray(numpy_helper.to_array(tensor))
        if values.nbytes >= _LARGE:
            apart[tensor.name] = values
            kind = helper.np_dtype_to_tensor_dtype(values.dtype)
            proto.graph.input.append(helper.make_tensor_value_info(tensor.name, kind, values.shape))
            del proto.graph.initializer[position]
    return apart
