"""Measures the peak of a CPU (arithmetic in registers, a stream through memory), and compiles its reference kernel."""

from __future__ import annotations

import json
import math
from typing import Any

import tvm
from tvm.script import tirx as T  # noqa: N812 - the name that its parser knows
from tvm.target import codegen

from kintune.core.device import Peak
from kintune.measure.backend import MeasurementBackend
from kintune.measure.chains import FEW_CHAINS, chains_within
from kintune.measure.evaluator import evaluator
from kintune.measure.health import HEALTH_RUNS, ReferenceKernel
from kintune.measure.narrow_peak import measure_narrow_peaks
from kintune.runtime.target import capabilities

__all__ = ["host_reference_kernel", "measure_peak"]

_STEPS = 1 << 16
_REPEATS = 200  # of some tenth of a millisecond: enough for the clock to go up, and for others to leave
_STREAMS = 9
_LARGEST = 768 << 20  # bytes of all streams that are read or written together


def measure_peak(target: str, threads: int, cache_bytes: int, backend: MeasurementBackend | None = None) -> Peak:
    """Measures what `threads` threads reach with programs for the canonical target (JSON); the best of several runs.

    `cache_bytes` is the size of all last-level caches, which no stream may fit in.  Together, streams take 768 MB at
    most.  The triad's bandwidth counts the bytes that a = b + s * c asks for, as STREAM does.  The programs run on
    `backend`, by default in this process.
    """
    compiler_target = tvm.target.Target(json.loads(target))
    can = capabilities(compiler_target)
    lanes = can.lanes
    shape = (threads, FEW_CHAINS, lanes)
    sums = (threads, chains_within(can.registers), lanes)
    arithmetic_s = min(evaluator(_multiply_adds(*sums), compiler_target, [sums], _REPEATS, backend)())
    flops = 2.0 * _STEPS * math.prod(sums)
    piece = threads * lanes * FEW_CHAINS

    def length_of(streams: int) -> int:
        """The values of each of so many streams."""
        return min(max(4 * cache_bytes, 64 << 20), _LARGEST // streams) // 4 // piece * piece

    def best_s(function: Any, shapes: list[tuple[int, ...]]) -> float:
        return min(evaluator(function, compiler_target, shapes, _STREAMS, backend)())

    length, longer = length_of(3), length_of(1)
    triad_s = best_s(_triad(threads, lanes, length), [(length,)] * 3)
    sum_s = best_s(_sum(threads, lanes, longer), [(longer,), shape])
    return Peak(
        gflops=flops / arithmetic_s / 1e9,
        gbytes_per_s=12.0 * length / triad_s / 1e9,
        threads=threads,
        read_gbytes_per_s=4.0 * longer / sum_s / 1e9,
        narrow_gflops=measure_narrow_peaks(target, threads, backend),
    )


def host_reference_kernel(target: str, threads: int, backend: MeasurementBackend | None = None) -> ReferenceKernel:
    """Compiles the reference kernel of so many threads for a canonical target (JSON).

    Services compare its times with stored ones, so its arithmetic stays as it is: on 16 lanes even if vectors have 8.
    """
    compiler_target = tvm.target.Target(json.loads(target))
    lanes = max(1, int(codegen.llvm_get_vector_width(compiler_target)) // 32)
    shape = (threads, FEW_CHAINS, lanes)
    return ReferenceKernel(evaluator(_reference(threads, lanes), compiler_target, [shape], HEALTH_RUNS, backend))


def _multiply_adds(threads: int, chains: int, lanes: int) -> Any:
    """Chains of multiply-adds that stay in registers, whose numbers stay as they are.

    Each adds to the register that it writes.  The instruction of aarch64 can do nothing else: if a constant were added,
    a move would precede each of them.
    """
    steps = _STEPS

    @T.prim_func(s_tir=True, private=True)  # type: ignore[untyped-decorator]
    def arithmetic(out: T.Buffer((threads, chains, lanes), "float32")):  # type: ignore[no-untyped-def,valid-type]
        T.func_attr({"tirx.noalias": True})
        for thread in T.parallel(threads):
            with T.sblock("chains"):
                sums = T.sblock_alloc_buffer((chains, lanes), "float32")
                for chain in T.unroll(chains):
                    for lane in T.vectorized(lanes):
                        sums[chain, lane] = T.Cast("float32", chain + 1) + out[thread, chain, lane]
                for _step in T.serial(steps):
                    for chain in T.unroll(chains):
                        for lane in T.vectorized(lanes):
                            sums[chain, lane] = sums[chain, lane] + sums[chain, lane] * T.float32(2.0**-30)
                for chain in T.unroll(chains):
                    for lane in T.vectorized(lanes):
                        out[thread, chain, lane] = sums[chain, lane]

    return arithmetic


def _reference(threads: int, lanes: int) -> Any:
    """Chains of multiply-adds that stay in registers; they converge, so that no number becomes denormal."""
    chains, steps = FEW_CHAINS, _STEPS

    @T.prim_func(s_tir=True, private=True)  # type: ignore[untyped-decorator]
    def arithmetic(out: T.Buffer((threads, chains, lanes), "float32")):  # type: ignore[no-untyped-def,valid-type]
        T.func_attr({"tirx.noalias": True})
        for thread in T.parallel(threads):
            with T.sblock("chains"):
                sums = T.sblock_alloc_buffer((chains, lanes), "float32")
                for chain in T.unroll(chains):
                    for lane in T.vectorized(lanes):
                        sums[chain, lane] = T.Cast("float32", chain) + out[thread, chain, lane]
                for _step in T.serial(steps):
                    for chain in T.unroll(chains):
                        for lane in T.vectorized(lanes):
                            sums[chain, lane] = sums[chain, lane] * T.float32(0.5) + T.float32(1.0)
                for chain in T.unroll(chains):
                    for lane in T.vectorized(lanes):
                        out[thread, chain, lane] = sums[chain, lane]

    return arithmetic


def _triad(threads: int, lanes: int, length: int) -> Any:
    share = length // threads // lanes

    @T.prim_func(s_tir=True, private=True)  # type: ignore[untyped-decorator]
    def triad(  # type: ignore[no-untyped-def]
        a: T.Buffer((length,), "float32"),  # type: ignore[valid-type]
        b: T.Buffer((length,), "float32"),  # type: ignore[valid-type]
        c: T.Buffer((length,), "float32"),  # type: ignore[valid-type]
    ):
        T.func_attr({"tirx.noalias": True})
        for thread in T.parallel(threads):
            for i in T.serial(share):
                for lane in T.vectorized(lanes):
                    a[(thread * share + i) * lanes + lane] = (
                        b[(thread * share + i) * lanes + lane] + T.float32(3.0) * c[(thread * share + i) * lanes + lane]
                    )

    return triad


def _sum(threads: int, lanes: int, length: int) -> Any:
    """A TIR function that reads an array once and adds it up, in `FEW_CHAINS` independent vectors of sums a thread."""
    chains = FEW_CHAINS
    share = length // threads // lanes // chains

    @T.prim_func(s_tir=True, private=True)  # type: ignore[untyped-decorator]
    def total(  # type: ignore[no-untyped-def]
        a: T.Buffer((length,), "float32"),  # type: ignore[valid-type]
        out: T.Buffer((threads, chains, lanes), "float32"),  # type: ignore[valid-type]
    ):
        T.func_attr({"tirx.noalias": True})
        for thread in T.parallel(threads):
            with T.sblock("sums"):
                sums = T.sblock_alloc_buffer((chains, lanes), "float32")
                for chain in T.unroll(chains):
                    for lane in T.vectorized(lanes):
                        sums[chain, lane] = T.float32(0.0)
                for i in T.serial(share):
                    for chain in T.unroll(chains):
                        for lane in T.vectorized(lanes):
                            sums[chain, lane] = (
                                sums[chain, lane] + a[((thread * share + i) * chains + chain) * lanes + lane]
                            )
                for chain in T.unroll(chains):
                    for lane in T.vectorized(lanes):
                        out[thread, chain, lane] = sums[chain, lane]

    return total
