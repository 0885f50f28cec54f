"""Exports of models with hand-written kernels to onnxruntime."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np
import onnx

from kintune.core.execution_plan import ExecutionPlan
from kintune.runtime.exports.onnx_operator import export_onnx
from kintune.runtime.package import EncodedPlan, PackageVariant, write_package
from tests.support.toy_model import encoded, kernels, manifest, packed

__all__ = ["DIGEST", "PROGRAM", "W", "X", "export", "without_shapes"]

DIGEST = "0123456789abcdef" * 2
PROGRAM = Path(__file__).parents[1] / "runtime" / "exports" / "export_onnx.c"
"""A program that runs an export of `ADDING` by onnxruntime's library."""

X = np.linspace(-1, 1, 1000, dtype=np.float32)
W = np.arange(1000, dtype=np.float32)


def export(folder: Path, *plans: ExecutionPlan, digest: str = DIGEST, weights: Sequence[np.ndarray] = (W,)) -> Path:
    """An export of a toy model; returns the path of its ONNX file."""
    folder.mkdir(exist_ok=True)
    model, content = folder / "toy.kt", packed(weights)
    described = msgspec.structs.replace(manifest(*plans), model_digest=digest)
    made = [
        EncodedPlan(encoded(plan, content, number=number, total=len(plans)), kernels())
        for number, plan in enumerate(plans)
    ]
    write_package(model, [PackageVariant(described, tuple(made))], content)
    return export_onnx(model, folder / "export")


def without_shapes(path: Path) -> Path:
    """The same network, for whose inputs onnxruntime does not know a shape."""
    network = onnx.load(path)
    for tensor in [*network.graph.input, *network.graph.output]:
        tensor.type.tensor_type.ClearField("shape")
    changed = path.with_name("changed.onnx")
    onnx.save(network, changed)
    return changed
