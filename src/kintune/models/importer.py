"""Imports a model of any supported kind into a Relax module."""

from __future__ import annotations

from pathlib import Path

from onnx import GraphProto, TensorProto

from kintune.core.model import ModelRef
from kintune.errors import ModelError, ShapeError, UnsupportedValues
from kintune.models.import_onnx import import_onnx
from kintune.models.imported_module import complete_model
from kintune.models.model import ImportedModel
from kintune.models.onnx import read
from kintune.models.onnx_path import onnx_path_of
from kintune.models.ref import EXPORTED, ONNX, ZOO

__all__ = ["load"]


def load(ref: ModelRef, cache: Path | None = None, *, positions: bool = False) -> ImportedModel:
    """Import the model that `ref` names, with its only combination of shapes.

    Networks of the zoo are written into `cache` first (default: the user's cache directory), once.  With `positions`,
    what follows from open extents is no constant (see `open_positions`), in ONNX files.

    Raises:
        ModelError: when the model cannot be used; `UnsupportedOperators`, `UnsupportedValues` and `ShapeError` are
            among its kinds.  Several combinations of shapes are refused: `ModelRef.each` has them one by one.
        OrderError: when the model comes from PyTorch and PyTorch is not installed.
    """
    if ref.more_shapes:
        raise ShapeError(f"{ref.name}: one combination of shapes is needed here, not {len(ref.combinations)}")
    if ref.kind in (ONNX, ZOO):
        return _load_onnx(ref, onnx_path_of(ref, cache), positions)
    if ref.kind == EXPORTED:
        from kintune.models.import_torch import load_exported

        return load_exported(ref)
    raise ModelError(f"{ref.name}: {ref.kind!r} is no kind of model")


def _load_onnx(ref: ModelRef, path: Path, positions: bool) -> ImportedModel:
    source = read(path, ref.shapes, ref.constants, own=ref.reads_other_files, positions=positions)
    _check_numbers(path, source.proto.graph)
    return complete_model(
        ref,
        import_onnx(source),
        tuple(source.inputs),
        [value.name for value in source.proto.graph.output],
        digest=source.digest,
        constants=source.constants,
        onnx_path=str(path),
        opset=source.opset,
        positions=tuple(source.positions.values()),
    )


def _check_numbers(path: Path, graph: GraphProto) -> None:
    """Refuse a graph whose inputs or outputs are not tensors of numbers: there are no kernels for others."""
    for what, values in (("input", graph.input), ("output", graph.output)):
        for value in values:
            kind = value.type.WhichOneof("value") or "tensor_type"
            if kind != "tensor_type":
                said = f"is not a tensor ({kind.removesuffix('_type')})"
            elif value.type.tensor_type.elem_type == TensorProto.STRING:
                said = "holds strings"
            else:
                continue
            raise UnsupportedValues(f"{path}: {what} {value.name} {said}, and only tensors of numbers can be compiled")
