"""Import any model into the compiler."""

from __future__ import annotations

from pathlib import Path

from kintune.core.model import ModelRef
from kintune.errors import ModelError, ShapeError
from kintune.models.import_onnx import import_onnx
from kintune.models.imported_module import complete_model
from kintune.models.model import ImportedModel
from kintune.models.onnx import read
from kintune.models.onnx_path import onnx_path_of
from kintune.models.ref import EXPORTED, ONNX, ZOO

__all__ = ["load"]


def load(ref: ModelRef, cache: Path | None = None) -> ImportedModel:
    """Import the model that `ref` names, with its only combination of shapes.

    Networks of the zoo are written into `cache` first (default: the user's cache directory), once.

    Raises:
        ModelError: when the model cannot be used; `UnsupportedOperators` and `ShapeError` are among its kinds.
            Several combinations of shapes are refused: `ModelRef.each` has them one by one.
        OrderError: when the model comes from PyTorch and PyTorch is not installed.
    """
    if ref.more_shapes:
        raise ShapeError(f"{ref.name}: one combination of shapes is needed here, not {len(ref.combinations)}")
    if ref.kind in (ONNX, ZOO):
        return _load_onnx(ref, onnx_path_of(ref, cache))
    if ref.kind == EXPORTED:
        from kintune.models.import_torch import load_exported

        return load_exported(ref)
    raise ModelError(f"{ref.name}: {ref.kind!r} is no kind of model")


def _load_onnx(ref: ModelRef, path: Path) -> ImportedModel:
    source = read(path, ref.shapes, ref.constants, own=ref.own)
    return complete_model(
        ref,
        import_onnx(source),
        tuple(source.inputs),
        [value.name for value in source.proto.graph.output],
        digest=source.digest,
        constants=source.constants,
        onnx_path=str(path),
        opset=source.opset,
    )
