"""Workloads: a distinct subgraph as a module of its own, its properties without running it, and whether to tune it."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import NamedTuple

import tvm
import tvm_ffi

from kintune.compiler.graph.pieces import STRIDED_JOINS, STRIDED_SLICES
from kintune.compiler.kernels.contraction import OF_BYTES, narrow_sums, undescribed
from kintune.compiler.programs.program import pattern_of
from kintune.compiler.space.replay import weight_positions
from kintune.compiler.space.sketches import is_schedulable
from kintune.compiler.tir import PATTERN, plain_schedule, without
from kintune.core.candidate import FULL_PRECISION, digest_of
from kintune.core.dtypes import numpy_dtype
from kintune.core.quantisation import INT8
from kintune.core.workload import Subgraph
from kintune.models.interpolation import INTERPOLATION

__all__ = ["StandaloneWorkload", "describe", "is_tunable", "standalone"]


_CORES = (
    ("group_conv", "group_conv2d"),
    ("depthwise", "depthwise"),
    ("conv1d", "conv1d"),
    ("conv3d", "conv3d"),
    ("conv2d_transpose", "conv2d_transpose"),
    ("conv", "conv2d"),
    ("matmul", "matmul"),
    ("pool", "pool"),
    ("softmax", "softmax"),
)
"""Part of the name of a block or operator -> the core operator; the first that is found counts."""

_FLOPS_PER_US = 50_000.0  # 50 GFLOP/s and 10 GB/s: any supported machine reaches these without tuning
_BYTES_PER_US = 10_000.0
_LEAST_SHARE = 0.002


class StandaloneWorkload(NamedTuple):
    """A distinct subgraph: `module` holds it as `main`.

    `occurrences` is how often the network calls it.  `flops` are the floating-point operations of one run, `bytes` the
    bytes that it moves at least, and `weight_bytes` those of them that are weights.  `operator` is its core operator,
    `signature` its operators in order; `reduces` says whether it has any reduction.
    """

    name: str
    digest: str
    module: tvm.IRModule
    occurrences: int
    flops: float
    bytes: float
    weight_bytes: float
    operator: str
    signature: str
    reduces: bool

    @property
    def sums_bytes(self) -> bool:
        """Whether it sums products of bytes."""
        return OF_BYTES in narrow_sums(self.module["main"])

    def subgraph(
        self,
        *,
        tunable: bool,
        sketches: Sequence[str] = (),
        nodes: Sequence[str] = (),
        titles: Sequence[str] = (),
        least_flops: float = 0.0,
        narrowest: str = FULL_PRECISION,
    ) -> Subgraph:
        """The description for processes without TVM; `sketches` are digests, `nodes` those of the user's graph.

        `narrowest` is the narrowest precision of the sketches; see `Subgraph` for the other arguments.
        """
        return Subgraph(
            name=self.name,
            workload=self.digest,
            weight=self.occurrences,
            flops=self.flops,
            operator=self.operator,
            signature=self.signature,
            tunable=tunable,
            sketches=tuple(sketches),
            weight_bytes=self.weight_bytes,
            bytes=self.bytes,
            nodes=tuple(nodes),
            titles=tuple(titles),
            least_flops=least_flops,
            narrowest=INT8 if self.sums_bytes else narrowest,
        )


def standalone(function: tvm.tirx.PrimFunc) -> tvm.IRModule:
    """The function as the `main` of a module of its own, without the attributes that concern its network."""
    plain = without(function, PATTERN, "op_attrs", STRIDED_JOINS, STRIDED_SLICES, INTERPOLATION)
    return tvm.IRModule({"main": plain.with_attr("global_symbol", "main")})


def _without_lets(module: tvm.IRModule) -> tvm.IRModule:
    """A module with as many operations, for TVM's count of them, which knows no values that have names."""
    function = module["main"]

    def added(node: tvm.tirx.Let) -> tvm.ir.Expr:
        return node.body + tvm.tirx.Cast(str(node.body.ty), node.value)

    body = tvm_ffi.structural_map(function.body, [(tvm.tirx.Let, added)])
    return module if body.same_as(function.body) else tvm.IRModule({"main": function.with_body(body)})


def describe(name: str, module: tvm.IRModule, occurrences: int = 1) -> StandaloneWorkload:
    """Describe the workload `module`; `name` is the name it had in its network (`fused_conv2d1_add_relu`)."""
    function = module["main"]
    operands = [(tuple(int(d) for d in p.shape), str(p.dtype)) for p in function.params]
    moved = [float(math.prod(shape) * numpy_dtype(dtype).itemsize) for shape, dtype in operands]
    flops = float(tvm.s_tir.analysis.estimate_tir_flops(_without_lets(module)))
    blocks, pattern = _reductions(module), pattern_of(function)
    signature = tuple(re.sub(r"\d+$", "", part) for part in name.removeprefix("fused_").split("_"))
    loops = tvm.IRModule({"main": undescribed(function)}, attrs=module.attrs)
    structure = tvm_ffi.structural_hash(loops).to_bytes(8, "little", signed=False)
    return StandaloneWorkload(
        name=name,
        digest=digest_of(structure, repr(operands).encode(), repr(flops).encode()),
        module=module,
        occurrences=occurrences,
        flops=flops,
        bytes=sum(moved),
        weight_bytes=sum(moved[i] for i in sorted(weight_positions(function))),
        operator=pattern.split()[0] if pattern else _operator(blocks, signature, module),
        signature="-".join(part for part in signature if part),
        reduces=bool(blocks or pattern),
    )


def is_tunable(workloads: Sequence[StandaloneWorkload]) -> frozenset[str]:
    """The digests of the workloads that reduce something and take at least 0.2 % of the network's time.

    The share is estimated from FLOPs and bytes alone.  To search smaller ones (tiny reductions) would cost more than it
    could save.
    """
    work = {w.digest: w.occurrences * max(w.flops / _FLOPS_PER_US, w.bytes / _BYTES_PER_US) for w in workloads}
    total = sum(work.values())
    return frozenset(w.digest for w in workloads if w.reduces and work[w.digest] >= _LEAST_SHARE * total)


def _reductions(module: tvm.IRModule) -> dict[str, int]:
    """Blocks that reduce, with the number of iterations of each."""
    if not is_schedulable(module):
        return {}
    schedule = plain_schedule(module)
    found: dict[str, int] = {}
    for block in schedule.get_child_blocks(schedule.get_sblock("root", func_name="main")):
        statement = schedule.get(block)
        kinds = [int(v.iter_type) for v in statement.iter_vars]
        reduced = [v for v, kind in zip(statement.iter_vars, kinds, strict=True) if kind == tvm.tirx.IterVar.CommReduce]
        if reduced:
            found[statement.name_hint] = math.prod(int(v.dom.extent) for v in statement.iter_vars)
    return found


def _operator(blocks: dict[str, int], signature: tuple[str, ...], module: tvm.IRModule) -> str:
    """The core operator: that of the reduction with the most iterations, else the first operator's name."""
    if not blocks:
        return "elementwise"
    core = max(blocks, key=blocks.__getitem__)
    found = next((name for mark, name in _CORES if mark in core.lower()), None)
    if found is None:
        found = next((name for mark, name in _CORES for part in signature if mark in part), "reduction")
    if found == "matmul":
        return "dense" if _is_dense(module, core) else "batch_matmul"
    if found == "group_conv2d":
        return "depthwise" if _is_depthwise(module, core) else "group_conv2d"
    return found


def _is_dense(module: tvm.IRModule, block: str) -> bool:
    """Whether a product has a matrix, usually weights, that is the same for all batches."""
    schedule = plain_schedule(module)
    operands = schedule.get(schedule.get_sblock(block, func_name="main")).reads
    return min(len(operand.region) for operand in operands) <= 2


def _is_depthwise(module: tvm.IRModule, block: str) -> bool:
    """Whether a grouped convolution sums over a single channel."""
    schedule = plain_schedule(module)
    variables = schedule.get(schedule.get_sblock(block, func_name="main")).iter_vars
    return int(variables[-1].dom.extent) == 1
