"""Results that run partly in onnxruntime, with regions whose kernels are written by hand."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import onnx
from onnx import TensorProto, helper

from kintune.core.execution_plan import ExecutionPlan
from kintune.core.hybrid import Hybrid, Region
from kintune.core.model import Combination, Tensor
from kintune.runtime.hybrid_package import operator_domain, write_hybrid
from kintune.runtime.manifest import Manifest
from tests.support.toy_model import adding, manifest, write_model

__all__ = [
    "DIGEST",
    "W",
    "X",
    "expected",
    "host_graph",
    "hybrid_manifest",
    "one_region",
    "region_file",
    "write_toy_hybrid",
]

DIGEST = "fedcba9876543210" * 2
X = np.linspace(-1, 1, 1000, dtype=np.float32)
W = np.arange(1000, dtype=np.float32)

_COUNTS = (1000,)


def expected(x: np.ndarray) -> np.ndarray:
    """What the toy computes: a region, a sum from left to right, a region."""
    w = W[: len(x)]
    return np.cumsum(x + w + w, dtype=np.float32) + w + w


def hybrid_manifest(counts: Sequence[int] = _COUNTS, regions: int = 2, machine: str = platform.machine()) -> Manifest:
    """That of the toy, for inputs of so many elements."""
    plans = [adding(count) for count in counts]
    told = [
        Region("first add", ("a", "b"), ("x",), ("middle",)),
        Region("second add", ("c", "d"), ("summed",), ("out",)),
    ]
    hybrid = Hybrid(tuple(told[:regions]), {"CumSum": 1}, {"sum": "operator CumSum is not supported"}, ("1.31.1",))
    return msgspec.structs.replace(manifest(*plans, machine=machine, digest=DIGEST), hybrid=hybrid)


def host_graph(described: Manifest, named: bool = False) -> bytes:
    """The host graph of the toy; with `named`, the extent of its input has the name "count"."""
    counts = {each.inputs[0].shape[0] for each in described.combinations}
    extent = "count" if named or len(counts) > 1 else min(counts)
    domain = operator_domain(described.model_digest)
    regions = len(described.hybrid.regions) if described.hybrid else 0
    nodes = [
        helper.make_node("Region0", ["x"], ["middle"], "first add", domain=domain)
        if regions
        else helper.make_node("Identity", ["x"], ["middle"], "first"),
        helper.make_node("CumSum", ["middle", "axis"], ["summed"], "sum"),
        helper.make_node("Region1", ["summed"], ["out"], "second add", domain=domain)
        if regions > 1
        else helper.make_node("Identity", ["summed"], ["out"], "second"),
    ]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [extent]) for name in ("x", "out")]
    graph = helper.make_graph(
        nodes, "toy", ends[:1], ends[1:], [helper.make_tensor("axis", TensorProto.INT64, [], [0])]
    )
    opsets = [helper.make_opsetid("", 15), helper.make_opsetid(domain, 1)]
    content: bytes = helper.make_model(graph, ir_version=8, opset_imports=opsets).SerializeToString()
    return content


def region_file(folder: Path, name: str, plans: Sequence[ExecutionPlan], **changes: Any) -> bytes:
    """The content of a region's file."""
    most = max(int(np.prod(plan.inputs[0].shape)) for plan in plans)
    weights = [np.arange(most, dtype=np.float32)]
    return write_model(folder / name, plans, weights, **changes).read_bytes()


def write_toy_hybrid(
    folder: Path,
    counts: Sequence[int] = _COUNTS,
    regions: int = 2,
    machine: str = platform.machine(),
    named: bool = False,
) -> Path:
    """Write the toy; returns its path."""
    described = hybrid_manifest(counts, regions, machine)
    file = region_file(folder, "region.kt", [adding(count) for count in counts], machine=machine)
    path = folder / "hybrid.kt"
    write_hybrid(path, described, host_graph(described, named), [file] * regions)
    (folder / "region.kt").unlink()
    return path


def one_region(folder: Path, plan: ExecutionPlan, name: str = "only") -> Path:
    """A result of one region alone, which has all inputs and outputs of `plan`."""
    types = {"float32": TensorProto.FLOAT, "int64": TensorProto.INT64, "int32": TensorProto.INT32}

    def told(tensor: Tensor) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(tensor.name, types[tensor.dtype], tensor.shape)

    region = Region(name, (), tuple(t.name for t in plan.inputs), tuple(t.name for t in plan.outputs))
    described = msgspec.structs.replace(
        manifest(plan, digest=DIGEST), hybrid=Hybrid((region,), {}, {}, ()), more=tuple[Combination, ...]()
    )
    domain = operator_domain(described.model_digest)
    node = helper.make_node("Region0", region.inputs, region.outputs, name, domain=domain)
    graph = helper.make_graph([node], "one", [*map(told, plan.inputs)], [*map(told, plan.outputs)])
    opsets = [helper.make_opsetid("", 15), helper.make_opsetid(domain, 1)]
    content = helper.make_model(graph, ir_version=8, opset_imports=opsets).SerializeToString()
    path = folder / "one.kt"
    write_hybrid(path, described, content, [region_file(folder, "region.kt", [plan])])
    return path
