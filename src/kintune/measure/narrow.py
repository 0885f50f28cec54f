"""Measures what kernels with shorter numbers gain on this machine: a product of matrices, against the same in fp32."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import tvm
from tvm import te

from kintune.compiler.build import ENTRY
from kintune.compiler.programs.panel_form import AMX, DOT, FMA
from kintune.compiler.programs.panel_sum import BF16, NarrowPanels, Panels
from kintune.compiler.programs.program import Program
from kintune.compiler.space.packing import without_packing
from kintune.compiler.space.weights import LAYOUT_FREE
from kintune.core.device import NarrowSpeed
from kintune.errors import BuildError, cause_line
from kintune.hardware.amx import permit_amx
from kintune.measure.agreement import NARROW_ERROR
from kintune.measure.guarded_memory import GuardedMemory
from kintune.runtime.target import extensions_of
from kintune.search.processor import Processor

__all__ = ["measure_narrow"]

_ROWS, _COLUMNS, _REDUCED = 256, 768, 768
_RUNS = 60
_INSTRUCTIONS = {AMX: "AMX", DOT: "vdpbf16ps"}
_FILL = 0.0625


def measure_narrow(target: str) -> tuple[NarrowSpeed, ...]:
    """Measures each kind of instructions for shorter numbers that a canonical target (JSON) has.

    Kernels run in this process, with as many threads as its runtime has.  Each is compiled, compared with what numpy
    computes, and timed against the same product in fp32.  The result is empty where the target has none.
    """
    compiler_target = tvm.target.Target(json.loads(target))
    if compiler_target.kind.name != "llvm":
        return ()
    has = set(extensions_of(compiler_target))
    narrow = NarrowPanels()
    kinds = [kind for kind in narrow.kinds if has.issuperset(narrow.instructions(kind))]
    if not kinds:
        return ()
    full_s = _seconds(_written(Panels(), FMA, compiler_target), compiler_target)
    return tuple(_speed(kind, compiler_target, full_s) for kind in kinds)


def _speed(kind: str, target: tvm.target.Target, full_s: float) -> NarrowSpeed:
    name = _INSTRUCTIONS[kind]
    if kind == AMX and not permit_amx():
        return NarrowSpeed(name, BF16, "the kernel of this system does not permit it")
    try:
        written = _written(NarrowPanels(), kind, target)
        error = _error(written, target)
        if not error <= NARROW_ERROR:
            return NarrowSpeed(name, BF16, f"computes wrong numbers here (relative error {error:.2g})")
        return NarrowSpeed(name, BF16, times_fp32=full_s / _seconds(written, target))
    except BuildError as error:
        return NarrowSpeed(name, BF16, f"does not compile: {error}")


def _written(program: Program, kind: str, target: tvm.target.Target) -> tvm.IRModule:
    """The product as a program writes it first."""
    module = _product()
    machine = Processor.of(extensions_of(target), int(dict(target.export()).get("num-cores", 1)))
    return program.write(module, kind, program.rule(module, kind, machine)[0])


def _product() -> tvm.IRModule:
    data, weights = te.placeholder((_ROWS, _REDUCED), name="data"), te.placeholder((_REDUCED, _COLUMNS), name="weights")
    k = te.reduce_axis((0, _REDUCED), name="k")
    result = te.compute((_ROWS, _COLUMNS), lambda i, j: te.sum(data[i, k] * weights[k, j], axis=k), name="product")
    function = te.create_prim_func([data, weights, result]).with_attr(LAYOUT_FREE, [1])
    return tvm.IRModule({ENTRY: function.with_attr("global_symbol", ENTRY)})


def _error(module: tvm.IRModule, target: tvm.target.Target) -> float:
    """The norm of the difference from what numpy computes, over the norm of that."""
    random = np.random.default_rng(1)
    data, weights = (random.standard_normal((rows, _REDUCED), np.float32) for rows in (_ROWS, _COLUMNS))
    given = [tvm.runtime.tensor(each) for each in (data, np.ascontiguousarray(weights.T))]
    result = tvm.runtime.tensor(np.zeros((_ROWS, _COLUMNS), np.float32))
    _compiled(module, target)[ENTRY](*given, result)
    expected = data.astype(np.float64) @ weights.T.astype(np.float64)
    return float(np.linalg.norm(result.numpy() - expected) / np.linalg.norm(expected))


def _seconds(module: tvm.IRModule, target: tvm.target.Target) -> float:
    """The least of many times of a run on packed weights."""
    packed = without_packing(module)
    arguments = []
    for parameter in packed[ENTRY].params:
        shape, dtype = tuple(int(extent) for extent in parameter.shape), str(parameter.dtype)
        memory = GuardedMemory.of(shape, dtype)
        memory.array(shape, dtype)[...] = _FILL
        arguments.append(memory.tensor(shape, dtype))
    timed = _compiled(packed, target).mod.time_evaluator(ENTRY, tvm.cpu(), number=1, repeat=_RUNS)
    return min(map(float, timed(*arguments).results))


def _compiled(module: tvm.IRModule, target: tvm.target.Target) -> Any:
    try:
        return tvm.compile(module, target)
    except Exception as error:  # lowering and LLVM raise many types
        raise BuildError(cause_line(error)) from error
