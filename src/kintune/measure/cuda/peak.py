"""Measures the peak of a GPU (arithmetic in registers, a stream through memory), and compiles its reference kernel."""

from __future__ import annotations

import json
from typing import Any

import tvm
from tvm.script import tirx as T  # noqa: N812 - the name that its parser knows

from kintune.core.device import Peak
from kintune.measure.cuda.backend import GpuBackend
from kintune.measure.evaluator import evaluator
from kintune.measure.health import HEALTH_RUNS, ReferenceKernel, warm

__all__ = ["gpu_reference_kernel", "measure_gpu_peak"]

_THREADS = 256
_BLOCKS_EACH = 16  # a multiprocessor: enough to hide the latencies of one block behind others
_CHAINS = 8  # independent sums of a thread
_STEPS = 1 << 10
_REPEATS = 50
_STREAMS = 9
_LONGEST_STREAM = 256 << 20  # bytes
_CACHES = 8  # a stream is this many times as large as the second-level cache, up to `_LONGEST_STREAM`


def measure_gpu_peak(target: str, backend: GpuBackend) -> Peak:
    """Measures what the backend's GPU reaches with programs for the canonical target (JSON); the best of several runs.

    The triad's bandwidth counts the bytes that a = b + s * c asks for, as STREAM does.
    """
    compiler_target = tvm.target.Target(json.loads(target))
    blocks = _blocks(backend)
    cache_bytes = int(backend.device.l2_cache_size_bytes or _LONGEST_STREAM)
    length = min(_LONGEST_STREAM, _CACHES * cache_bytes) // 4 // _THREADS * _THREADS
    shape = (blocks, _THREADS)

    def best(function: Any, shapes: list[tuple[int, ...]], repeats: int) -> float:
        run = evaluator(function, compiler_target, shapes, repeats, backend)
        warm(run)
        return min(run())

    arithmetic_s = best(_arithmetic(blocks), [shape], _REPEATS)
    triad_s = best(_triad(length), [(length,)] * 3, _STREAMS)
    sum_s = best(_sum(length, blocks), [(length,), shape], _STREAMS)
    share = blocks * _THREADS
    return Peak(
        gflops=2.0 * share * _CHAINS * _STEPS / arithmetic_s / 1e9,
        gbytes_per_s=12.0 * length / triad_s / 1e9,
        threads=1,
        read_gbytes_per_s=4.0 * (length // share * share) / sum_s / 1e9,
        narrow_gflops={},  # its kernels compute in the types of the model
    )


def gpu_reference_kernel(target: str, backend: GpuBackend) -> ReferenceKernel:
    """Compiles the reference kernel of all of a GPU's multiprocessors for a canonical target (JSON)."""
    blocks = _blocks(backend)
    compiler_target = tvm.target.Target(json.loads(target))
    shapes = [(blocks, _THREADS)]
    kernel = _arithmetic(blocks)
    return ReferenceKernel(evaluator(kernel, compiler_target, shapes, HEALTH_RUNS, backend))


def _blocks(backend: GpuBackend) -> int:
    return _BLOCKS_EACH * max(1, int(backend.device.multi_processor_count or 1))


def _arithmetic(blocks: int) -> Any:
    """Chains of multiply-adds that stay in registers; they converge, so that no number becomes denormal."""
    threads, chains, steps = _THREADS, _CHAINS, _STEPS

    @T.prim_func(s_tir=True, private=True)  # type: ignore[untyped-decorator]
    def arithmetic(out: T.Buffer((blocks, threads), "float32")):  # type: ignore[no-untyped-def,valid-type]
        T.func_attr({"tirx.noalias": True, "tirx.is_scheduled": True})
        for block in T.thread_binding(blocks, thread="blockIdx.x"):
            for thread in T.thread_binding(threads, thread="threadIdx.x"):
                with T.sblock("chains"):
                    sums = T.sblock_alloc_buffer((chains,), "float32", scope="local")
                    for chain in T.unroll(chains):
                        sums[chain] = T.Cast("float32", chain) + out[block, thread]
                    for _step in T.serial(steps):
                        for chain in T.unroll(chains):
                            sums[chain] = sums[chain] * T.float32(0.5) + T.float32(1.0)
                    for chain in T.unroll(chains):
                        out[block, thread] = out[block, thread] + sums[chain]

    return arithmetic


def _triad(length: int) -> Any:
    threads = _THREADS
    blocks = length // threads

    @T.prim_func(s_tir=True, private=True)  # type: ignore[untyped-decorator]
    def triad(  # type: ignore[no-untyped-def]
        a: T.Buffer((length,), "float32"),  # type: ignore[valid-type]
        b: T.Buffer((length,), "float32"),  # type: ignore[valid-type]
        c: T.Buffer((length,), "float32"),  # type: ignore[valid-type]
    ):
        T.func_attr({"tirx.noalias": True, "tirx.is_scheduled": True})
        for block in T.thread_binding(blocks, thread="blockIdx.x"):
            for thread in T.thread_binding(threads, thread="threadIdx.x"):
                a[block * threads + thread] = b[block * threads + thread] + T.float32(3.0) * c[block * threads + thread]

    return triad


def _sum(length: int, blocks: int) -> Any:
    """A TIR function that reads an array once and adds it up, in one sum a thread."""
    threads = _THREADS
    steps = length // (threads * blocks)

    @T.prim_func(s_tir=True, private=True)  # type: ignore[untyped-decorator]
    def total(  # type: ignore[no-untyped-def]
        a: T.Buffer((length,), "float32"),  # type: ignore[valid-type]
        out: T.Buffer((blocks, threads), "float32"),  # type: ignore[valid-type]
    ):
        T.func_attr({"tirx.noalias": True, "tirx.is_scheduled": True})
        for block in T.thread_binding(blocks, thread="blockIdx.x"):
            for thread in T.thread_binding(threads, thread="threadIdx.x"):
                with T.sblock("sums"):
                    sums = T.sblock_alloc_buffer((1,), "float32", scope="local")
                    sums[0] = T.float32(0.0)
                    for i in T.serial(steps):
                        sums[0] = sums[0] + a[(i * blocks + block) * threads + thread]
                    out[block, thread] = sums[0]

    return total
