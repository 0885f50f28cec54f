"""A result that runs partly in onnxruntime and is not published yet, with files of regions written by hand."""

from __future__ import annotations

from pathlib import Path

import msgspec

from kintune.core.hybrid import Hybrid
from kintune.partition.composition import compose
from kintune.partition.partition import partition
from kintune.runtime.hybrid_package import write_hybrid
from tests.support.partitions import DIGEST, Refusing, onnx_model, parse
from tests.support.toy_model import adding, manifest, write_model

__all__ = ["THREE_REGIONS", "write_unpublished"]

THREE_REGIONS = """
    m (float[64, 512] x) => (float[64, 512] y) {
        a = Relu(x)  b = Sigmoid(a)  c = Erf(b)  d = com.microsoft.Gelu(c)  e = Neg(d)  f = Erf(e)  g = Exp(f)
        y = Tanh(g)
    }
"""
"""A model in which Erf is left to onnxruntime, twice."""


def write_unpublished(path: Path) -> Path:
    """Write a result for `THREE_REGIONS`; what its regions compute is of no interest."""
    found = partition(onnx_model(parse(THREE_REGIONS)), Refusing("Erf"))
    about = msgspec.structs.replace(
        manifest(adding(), digest=DIGEST), hybrid=Hybrid(found.regions, found.operators, found.reasons, ("1.2.3",))
    )
    graph = compose(found.marked, found.regions, range(3), DIGEST).SerializeToString()
    files = []
    for number in range(3):
        files.append(path.with_name(f"toy{number}.kt"))
        write_model(files[-1], threads=number + 1)
    write_hybrid(path, about, graph, [file.read_bytes() for file in files], marked=found.marked.SerializeToString())
    for file in files:
        file.unlink()
    return path
