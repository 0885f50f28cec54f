"""Finds or writes the ONNX file of a model, which other runtimes can open."""

from __future__ import annotations

from pathlib import Path

import platformdirs

from kintune.core.model import ModelRef
from kintune.errors import ModelError
from kintune.models import zoo
from kintune.models.ref import ONNX, ZOO

__all__ = ["onnx_path_of"]


def onnx_path_of(ref: ModelRef, cache: Path | None = None) -> Path:
    """The path of a model's ONNX file.

    A network of the zoo is written into `cache` (default: the user's cache directory) unless it is there.

    Raises:
        ModelError: when the model comes from PyTorch, or cannot be written.
    """
    if ref.kind == ONNX:
        return Path(ref.source)
    if ref.kind != ZOO:
        raise ModelError(f"{ref.source}: is no ONNX file, and onnxruntime runs no other; export the model to ONNX")
    directory = cache if cache is not None else Path(platformdirs.user_cache_dir("kintune")) / "zoo"
    try:
        return zoo.write(ref.source, directory, **ref.options)
    except OSError as error:
        raise ModelError(f"zoo:{ref.source}: cannot be written to {directory}: {error.strerror}") from error
