"""How many bytes of weights a model has."""

from __future__ import annotations

from pathlib import Path

from kintune.core.payloads import ModelRef
from kintune.models import zoo
from kintune.models.graph_file import open_graph
from kintune.models.ref import ONNX, ZOO

__all__ = ["weight_bytes"]


def weight_bytes(ref: ModelRef) -> int:
    """Bytes of the model's weights as stored; of an exported program, the size of its file.

    Raises ModelError when the model cannot be used.
    """
    if ref.kind == ZOO:
        return zoo.build(ref.source, **ref.options).nbytes
    if ref.kind == ONNX:
        return sum(values.nbytes for values in open_graph(Path(ref.source), own=ref.own).weights.values())
    return Path(ref.source).stat().st_size
