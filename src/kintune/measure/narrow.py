"""Measures what kernels with shorter numbers gain on this machine: a product of matrices, against the same in fp32."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import tvm
from tvm import te

from kintune.compiler.build import ENTRY
from kintune.compiler.kernels.contraction import BYTE_SUMS, Operator
from kintune.compiler.kernels.instructions import BYTES, PAIRS, best
from kintune.compiler.programs.byte_products import ByteProducts, ByteTiles
from kintune.compiler.programs.panel_sum import BF16, NarrowPanels
from kintune.compiler.programs.program import Program
from kintune.compiler.programs.vector_program import VectorSum
from kintune.compiler.programs.vector_variants import vector_variant
from kintune.compiler.space.packing import without_packing
from kintune.compiler.space.weights import LAYOUT_FREE
from kintune.core.device import BY_AMX, NarrowSpeed
from kintune.core.quantisation import INT8
from kintune.errors import BuildError, cause_line
from kintune.hardware.amx import permit_amx
from kintune.measure.agreement import NARROW_ERROR
from kintune.measure.guarded_memory import GuardedMemory
from kintune.runtime.target import capabilities
from kintune.search.processor import Processor

__all__ = ["measure_narrow"]

_ROWS, _COLUMNS, _REDUCED = 256, 768, 768
_RUNS = 60
_FILL = 0.0625


class _Kind(NamedTuple):
    """Instructions for products of a precision, the program and variant that use them, and the extensions needed.

    `error` is the largest relative error, in norm, that the outputs may have.
    """

    instructions: str
    precision: str
    program: Program
    variant: str
    needed: frozenset[str]
    error: float


def _kinds(target: tvm.target.Target) -> tuple[_Kind, ...]:
    narrow, tile, vectors = NarrowPanels(), next(each for each in BYTES if each.tiles), best(BYTES, target)
    found = [
        _Kind(BY_AMX if each.tiles else each.name, BF16, narrow, each.variant, frozenset(each.extensions), NARROW_ERROR)
        for each in PAIRS
    ]
    if vectors is not None:
        needed = frozenset(vectors.needs)
        found.append(_Kind(BY_AMX, INT8, ByteTiles(), tile.variant, needed.union(tile.extensions), 0.0))
        found.append(_Kind(vectors.name, INT8, ByteProducts(), vectors.variant, needed, 0.0))
    return tuple(found)


def measure_narrow(target: str) -> tuple[NarrowSpeed, ...]:
    """Measures each kind of instructions for shorter numbers that a canonical target (JSON) has.

    Kernels run in this process, with as many threads as its runtime has.  Each is compiled, compared with what numpy
    computes, and timed against the same product in fp32.  The result is empty where the target has none.
    """
    compiler_target = tvm.target.Target(json.loads(target))
    can = capabilities(compiler_target)
    kinds = [kind for kind in _kinds(compiler_target) if can.has(kind.needed)]
    if not kinds:
        return ()
    full = _written(VectorSum(), vector_variant(compiler_target), _product(), compiler_target)
    full_s = _seconds(full, compiler_target)
    return tuple(_speed(kind, compiler_target, full_s) for kind in kinds)


def _speed(kind: _Kind, target: tvm.target.Target, full_s: float) -> NarrowSpeed:
    name, precision = kind.instructions, kind.precision
    if kind.instructions == BY_AMX and not permit_amx():
        return NarrowSpeed(name, precision, "the kernel of this system does not permit it")
    try:
        product = _product() if precision == BF16 else _byte_product()
        written = _written(kind.program, kind.variant, product, target)
        error = _error(written, target)
        if not error <= kind.error:
            return NarrowSpeed(name, precision, f"computes wrong numbers here (relative error {error:.2g})")
        return NarrowSpeed(name, precision, times_fp32=full_s / _seconds(written, target))
    except BuildError as error:
        return NarrowSpeed(name, precision, f"does not compile: {error}")


def _written(program: Program, variant: str, product: tvm.IRModule, target: tvm.target.Target) -> tvm.IRModule:
    """The product as the program writes it with its most promising decisions."""
    can = capabilities(target)
    machine = Processor.of(can.extensions, can.threads)
    return program.write(product, variant, program.rule(product, variant, machine)[0])


def _product() -> tvm.IRModule:
    data, weights = te.placeholder((_ROWS, _REDUCED), name="data"), te.placeholder((_REDUCED, _COLUMNS), name="weights")
    k = te.reduce_axis((0, _REDUCED), name="k")
    result = te.compute((_ROWS, _COLUMNS), lambda i, j: te.sum(data[i, k] * weights[k, j], axis=k), name="product")
    return _module(data, weights, result)


def _byte_product() -> tvm.IRModule:
    rows, columns, reduced = (tvm.tirx.IntImm("int64", size) for size in (_ROWS, _COLUMNS, _REDUCED))
    data, weights = (
        te.placeholder((rows, reduced), "uint8", "data"),
        te.placeholder((reduced, columns), "int8", "weights"),
    )
    k = te.reduce_axis((tvm.tirx.IntImm("int64", 0), reduced), name="k")

    def element(i: Any, j: Any) -> Any:
        return te.sum(data[i, k].astype("int32") * weights[k, j].astype("int32"), axis=k)

    result = te.compute((rows, columns), element, name="product", attrs={BYTE_SUMS: Operator().text})
    return _module(data, weights, result)


def _module(*operands: Any) -> tvm.IRModule:
    function = te.create_prim_func(list(operands), index_dtype_override="int64").with_attr(LAYOUT_FREE, [1])
    return tvm.IRModule({ENTRY: function.with_attr("global_symbol", ENTRY)})


def _error(module: tvm.IRModule, target: tvm.target.Target) -> float:
    """The norm of the difference from what numpy computes, over the norm of that."""
    random = np.random.default_rng(1)
    data, weights, result = (_drawn(parameter, random) for parameter in module[ENTRY].params)
    given = [tvm.runtime.tensor(each) for each in (data, weights, result)]
    _compiled(module, target)[ENTRY](*given)
    expected = data.astype(np.float64) @ weights.astype(np.float64)
    return float(np.linalg.norm(given[-1].numpy() - expected) / np.linalg.norm(expected))


def _drawn(parameter: Any, random: np.random.Generator) -> npt.NDArray[Any]:
    shape, dtype = tuple(int(extent) for extent in parameter.shape), np.dtype(str(parameter.dtype))
    if dtype.kind == "f":
        return random.standard_normal(shape, np.float32)
    limits = np.iinfo(dtype)
    return random.integers(limits.min, limits.max + 1, shape).astype(dtype)


def _seconds(module: tvm.IRModule, target: tvm.target.Target) -> float:
    """The least of many times of a run on packed weights."""
    packed = without_packing(module)
    arguments = []
    for parameter in packed[ENTRY].params:
        shape, dtype = tuple(int(extent) for extent in parameter.shape), str(parameter.dtype)
        memory = GuardedMemory.of(shape, dtype)
        memory.array(shape, dtype)[...] = 1 if "int" in dtype else _FILL
        arguments.append(memory.tensor(shape, dtype))
    timed = _compiled(packed, target).mod.time_evaluator(ENTRY, tvm.cpu(), number=1, repeat=_RUNS)
    return min(map(float, timed(*arguments).results))


def _compiled(module: tvm.IRModule, target: tvm.target.Target) -> Any:
    try:
        return tvm.compile(module, target)
    except Exception as error:  # lowering and LLVM raise many types
        raise BuildError(cause_line(error)) from error
