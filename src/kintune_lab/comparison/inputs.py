"""The inputs of a model as its own file declares them, for timing other runtimes where Kintune cannot import it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from kintune.core.model import Constant, ModelRef, Tensor
from kintune.errors import ModelError
from kintune.models.constants import store_constant
from kintune.models.shapes import fit_constants
from kintune_lab.comparison.files import ModelFiles

if TYPE_CHECKING:
    from onnx import ModelProto, ValueInfoProto

__all__ = ["declared_constants", "declared_inputs"]


def declared_inputs(model: ModelRef, files: ModelFiles) -> tuple[Tensor, ...]:
    """The inputs of an ONNX file, with the model's shapes where the file leaves them open, and without its constants.

    Raises:
        ModelError: there is no ONNX file, it cannot be read, or a shape is missing or no tensor's.
    """
    if files.onnx is None:
        raise ModelError(f"{model.name}: only an ONNX file declares its inputs")
    graph = _read(files.onnx).graph
    weights = {tensor.name for tensor in graph.initializer}
    own = [value for value in graph.input if value.name not in weights and value.name not in model.constants]
    return tuple(_tensor(model, value) for value in own)


def declared_constants(model: ModelRef, files: ModelFiles) -> dict[str, Constant]:
    """The constants of a model in the types and shapes that its ONNX file declares; of others as they are.

    Raises:
        ModelError: the file cannot be read, or a constant does not fit it.
    """
    if files.onnx is None or not model.constants:
        return dict(model.constants)
    fitted = fit_constants(model.name, _read(files.onnx), model.constants)
    return {name: store_constant(name, values, typed=True) for name, values in fitted.items()}


def _read(path: str) -> ModelProto:
    import onnx
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

    try:
        return onnx.load(Path(path), load_external_data=False)
    except (OSError, DecodeError, UnicodeDecodeError) as error:
        raise ModelError(f"{path}: is no ONNX file that can be read") from error


def _tensor(model: ModelRef, value: ValueInfoProto) -> Tensor:
    import onnx

    declared = value.type.tensor_type
    given = model.shapes.get(value.name)
    shape = given if given is not None else tuple(dim.dim_value for dim in declared.shape.dim)
    if given is None and not all(dim.HasField("dim_value") and dim.dim_value >= 0 for dim in declared.shape.dim):
        raise ModelError(f'{model.name}: the shape of {value.name} is open; set shapes = "{value.name}=..."')
    try:
        dtype = np.dtype(onnx.helper.tensor_dtype_to_np_dtype(declared.elem_type)).name
    except KeyError as error:
        raise ModelError(f"{model.name}: {value.name} is no tensor of numbers") from error
    return Tensor(value.name, tuple(shape), "string" if dtype == "object" else dtype)
