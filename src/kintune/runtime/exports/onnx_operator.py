"""Exports a `.kt` file for onnxruntime: an ONNX file, and the library that runs its custom operators.

    sess_options.register_custom_ops_library("DIR/libkintune_onnx.so")
    onnxruntime.InferenceSession("DIR/NAME.onnx", sess_options)

The file has one node, or is the host graph of what runs partly in onnxruntime (see `kintune.runtime.hybrid_package`).
The one node is the operator `KintuneNetwork` of the domain `kintune.DIGEST`, where DIGEST is the first 16 digits of the
model's digest: exports of different models can be used by one session.  This module does not import TVM.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from kintune.core.model import Tensor
from kintune.errors import InputError
from kintune.runtime.exports.folder import write_folder
from kintune.runtime.exports.runtime_files import runtime_files
from kintune.runtime.exports.source import open_source
from kintune.runtime.hybrid_package import HybridPackage, operator_domain
from kintune.runtime.package import Manifest

__all__ = ["LIBRARY_NAME", "MODEL_NAME", "OPERATOR_NAME", "export_onnx"]

LIBRARY_NAME, MODEL_NAME = "libkintune_onnx.so", "model.kt"
"""Names of the files beside the ONNX file; the library looks for its model under this name."""

OPERATOR_NAME = "KintuneNetwork"

_IR_VERSION, _OPSET = 8, 15  # old ones, which every onnxruntime since 1.10 reads

_ELEMENT_TYPES = {
    "float32": 1, "uint8": 2, "int8": 3, "uint16": 4, "int16": 5, "int32": 6, "int64": 7, "bool": 9, "float16": 10,
    "float64": 11, "uint32": 12, "uint64": 13, "bfloat16": 16,
}  # fmt: skip
"""dtype -> `onnx.TensorProto.DataType`."""


def export_onnx(model: Path, folder: Path, runtime: Path | None = None) -> Path:
    """Write `folder` with `NAME.onnx`, `model.kt` and `libkintune_onnx.so`; NAME is that of the file `model`.

    All of the folder is written, or nothing.  Returns the path of the ONNX file.  The library is that in the wheel
    `runtime`, by default the one installed here; it must be for the model's machine.

    Raises:
        InputError: the model is missing, damaged, of another format or not for CPUs, it has a type that ONNX does not
            have, the library is for another machine or its wheel cannot be read, or the folder is not empty or cannot
            be written.
        KintuneError: the runtime is not installed whole.
    """
    model, package = open_source(model)
    library = runtime_files(model, package.manifest.machine, (LIBRARY_NAME,), runtime)[LIBRARY_NAME]
    content = package.graph if isinstance(package, HybridPackage) else _onnx_file(model, package.manifest)
    name = f"{model.stem}.onnx"

    def fill(made: Path) -> None:
        # a copy: the dynamic loader takes two links to one file for the same library
        shutil.copyfile(model, made / MODEL_NAME)
        (made / LIBRARY_NAME).write_bytes(library)
        (made / name).write_bytes(content)

    return write_folder(folder, fill) / name


def _onnx_file(path: Path, manifest: Manifest) -> bytes:
    """The bytes of the ONNX file; extents in which combinations of shapes differ, or that are open, are left open."""
    from onnx import helper

    domain = operator_domain(manifest.model_digest)
    given = {tensor.name for tensor in manifest.inputs}
    # no node may write an input: an output that is an input, unchanged, is written under a name that nothing reads
    made = [f"{tensor.name}/unchanged" if tensor.name in given else tensor.name for tensor in manifest.outputs]
    node = helper.make_node(OPERATOR_NAME, [tensor.name for tensor in manifest.inputs], made, "network", domain=domain)
    graph = helper.make_graph(
        [node],
        manifest.model_name or path.stem,
        [_described(path, alike) for alike in zip(*(each.inputs for each in manifest.combinations), strict=True)],
        [_described(path, alike) for alike in zip(*(each.outputs for each in manifest.combinations), strict=True)],
    )
    network = helper.make_model(
        graph,
        producer_name="kintune",
        producer_version=manifest.kintune,
        ir_version=_IR_VERSION,
        opset_imports=[helper.make_opsetid("", _OPSET), helper.make_opsetid(domain, 1)],
    )
    content: bytes = network.SerializeToString(deterministic=True)
    return content


def _described(path: Path, alike: tuple[Tensor, ...]) -> Any:
    """ONNX's description of one input or output; `alike` has it as it is with each combination of shapes."""
    from onnx import helper

    tensor = alike[0]
    element_type = _ELEMENT_TYPES.get(tensor.dtype)
    if element_type is None:
        raise InputError(f"{path}: {tensor.name} is of type {tensor.dtype}, which ONNX does not have")
    shapes = [
        *(each.shape for each in alike),
        *(tuple(low for low, _, _ in each.ranges) for each in alike if each.ranges),
    ]
    ranks = {len(shape) for shape in shapes}
    if len(ranks) > 1:
        return helper.make_tensor_value_info(tensor.name, element_type, None)
    shape = [extents[0] if len(set(extents)) == 1 else None for extents in zip(*shapes, strict=True)]
    return helper.make_tensor_value_info(tensor.name, element_type, shape)
