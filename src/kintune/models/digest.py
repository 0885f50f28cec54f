"""Digests of models: of their content alone, the same on every machine."""

from __future__ import annotations

import hashlib
import mmap
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray
from onnx import ModelProto

from kintune.core.candidate import digest_of
from kintune.core.model import Constant
from kintune.errors import ModelError
from kintune.files import sha256_of
from kintune.models.graph_file import GraphFile, external_weights
from kintune.models.onnx_nodes import nodes

__all__ = ["exported_digest", "external_digest", "may_name_files", "onnx_digest"]

_ONNX_FORM = b"kintune onnx 1"
_EXPORTED_FORM = b"kintune exported 1"
_LOCATION = b"location"  # the key under which an ONNX file names another one


def onnx_digest(file: GraphFile, shapes: Mapping[str, tuple[int, ...]]) -> str:
    """Digest of graph, weights and input shapes.

    It does not depend on the file's path, on whether weights are embedded or external, on their order, or on comments
    and metadata.
    """
    parts = [_ONNX_FORM, _canonical(file.graph)]
    for name, values in sorted(file.weights.items()):
        content = hashlib.sha256(_elements(values)).digest()
        parts += [name.encode(), f"{values.dtype.name} {values.shape}".encode(), content]
    parts += [f"{name}={shape}".encode() for name, shape in sorted(shapes.items())]
    return digest_of(*parts)


def may_name_files(path: Path) -> bool:
    """Whether an ONNX file may keep weights in other files: its bytes are searched, and nothing in it is interpreted.

    Raises:
        ModelError: the file cannot be read.
    """
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            return content.find(_LOCATION) >= 0
    except (OSError, ValueError) as error:  # an empty file cannot be mapped
        raise ModelError(f"{path}: cannot be read: {error}") from error


def external_digest(path: Path, *, own: bool = False) -> str:
    """Digest of the weights that an ONNX file keeps in other files; empty where it keeps none there.

    A file that does not name another one is only searched for such a name, which takes little time and memory.

    Raises:
        ModelError: the file, or one that it names, cannot be read.
    """
    if not may_name_files(path):
        return ""
    parts: list[bytes] = []
    for name, values in external_weights(path, own=own):
        parts += [name.encode(), hashlib.sha256(_elements(values)).digest()]
    return digest_of(*parts) if parts else ""


def exported_digest(
    path: Path, shapes: Mapping[str, tuple[int, ...]], constants: Mapping[str, Constant] | None = None
) -> str:
    """Digest of an exported program's archive, and of the shapes and constants bound from outside.

    What differs between two exports of one model is left out: the archive's name, times and random id, the example
    inputs, and where in which source file each operator came from.

    Raises:
        zipfile.BadZipFile, ValueError: when the archive is damaged.
    """
    parts = [_EXPORTED_FORM]
    with zipfile.ZipFile(path) as archive:
        for name in sorted(archive.namelist()):
            inner = name.partition("/")[2] or name
            if inner == ".data/serialization_id" or inner.startswith("data/sample_inputs/"):
                continue
            if inner.startswith("models/") and inner.endswith(".json"):
                content = hashlib.sha256(_without_origins(archive.read(name))).digest()
            else:
                with archive.open(name) as member:
                    content = sha256_of(member)
            parts += [inner.encode(), content]
    parts += [f"{name}={shape}".encode() for name, shape in sorted(shapes.items())]
    parts += [f"{name}={constant.digest}".encode() for name, constant in sorted((constants or {}).items())]
    return digest_of(*parts)


def _without_origins(program: bytes) -> bytes:
    """A serialised program without the metadata of its nodes: stack traces and module paths."""

    def strip(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: strip(inner) for key, inner in value.items() if key != "metadata"}
        return [strip(inner) for inner in value] if isinstance(value, list) else value

    return msgspec.json.encode(strip(msgspec.json.decode(program)), order="sorted")


def _elements(values: NDArray[Any]) -> bytes | memoryview:
    """The elements of a weight; strings with their lengths."""
    if values.dtype == object:
        return msgspec.msgpack.encode([str(value) for value in values.flat])
    return np.ascontiguousarray(values).reshape(-1).view(np.uint8).data


def _canonical(graph: ModelProto) -> bytes:
    """The graph without what does not change its meaning."""
    model = ModelProto()
    model.CopyFrom(graph)
    for field in ("producer_name", "producer_version", "domain", "model_version", "doc_string", "metadata_props"):
        model.ClearField(field)
    for field in ("doc_string", "value_info", "quantization_annotation", "name"):
        model.graph.ClearField(field)
    for node in nodes(model):
        node.ClearField("doc_string")
        if "metadata_props" in node.DESCRIPTOR.fields_by_name:
            node.ClearField("metadata_props")
    serialised: bytes = model.SerializeToString(deterministic=True)
    return serialised
