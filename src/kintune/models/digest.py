"""What a model is, as one digest: of its content alone, the same on every machine, whoever computes it."""

from __future__ import annotations

import hashlib
import zipfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from onnx import ModelProto

from kintune.models.graph_file import GraphFile
from kintune.models.walk import nodes
from kintune.space.candidate import digest_of

__all__ = ["exported_digest", "onnx_digest"]

_ONNX_FORM = b"kintune onnx 1"
_EXPORTED_FORM = b"kintune exported 1"


def onnx_digest(file: GraphFile, shapes: Mapping[str, tuple[int, ...]]) -> str:
    """Digest of graph, weights and input shapes.

    It does not depend on the file's path, on whether weights are embedded or external, on their order, or on comments
    and metadata.
    """
    parts = [_ONNX_FORM, _canonical(file.graph)]
    for name, values in sorted(file.weights.items()):
        content = hashlib.sha256(np.ascontiguousarray(values).reshape(-1).view(np.uint8).data).digest()
        parts += [name.encode(), f"{values.dtype.name} {values.shape}".encode(), content]
    parts += [f"{name}={shape}".encode() for name, shape in sorted(shapes.items())]
    return digest_of(*parts)


def exported_digest(path: Path) -> str:
    """Digest of an exported program's archive: of its members' names and contents, not of their times or order.

    The archive's random serialisation id is left out.
    """
    parts = [_EXPORTED_FORM]
    with zipfile.ZipFile(path) as archive:
        for name in sorted(archive.namelist()):
            inner = name.partition("/")[2] or name
            if inner.endswith("serialization_id"):
                continue
            content = hashlib.sha256()
            with archive.open(name) as member:
                while chunk := member.read(1 << 20):
                    content.update(chunk)
            parts += [inner.encode(), content.digest()]
    return digest_of(*parts)


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
