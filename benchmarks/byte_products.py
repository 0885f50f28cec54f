"""Times single quantised products and convolutions, with what follows: vectors of bytes against AMX tiles, by turns.

python benchmarks/byte_products.py --threads 1 [--candidates 6] [--seconds 1] [NAME...]

For each program the best of its first candidates is kept, and the two run in turns.  Weights come from the shared
cache.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable
from typing import Any

import numpy as np

_TURNED_OVER = 24 << 20  # bytes of weights, in copies that are used by turns: more than a core's own cache has


def product(rows: int, reduced: int, columns: int) -> Any:
    from tvm import te

    data = te.placeholder((_long(rows), _long(reduced)), "uint8", "data")
    weights = te.placeholder((_long(reduced), _long(columns)), "int8", "weights")
    k = te.reduce_axis((_long(0), _long(reduced)), name="k")
    mark = _mark()
    sums = te.compute(
        (_long(rows), _long(columns)),
        lambda i, j: te.sum(data[i, k].astype("int32") * weights[k, j].astype("int32"), axis=k),
        name="matmul_bytes",
        attrs=mark,
    )
    return _module(data, weights, sums)


def convolution(size: int, channels: int, filters: int, kernel: int = 1, stride: int = 1) -> Any:
    from tvm import te, tirx

    pad = kernel // 2
    data = te.placeholder(tuple(map(_long, (1, size, size, channels))), "uint8", "data")
    weights = te.placeholder(tuple(map(_long, (kernel, kernel, channels, filters))), "int8", "weights")
    point = tirx.const(0, "uint8")

    def bordered(b: Any, y: Any, x: Any, c: Any) -> Any:
        inside = tirx.all(y >= pad, y < size + pad, x >= pad, x < size + pad)
        return tirx.if_then_else(inside, data[b, y - pad, x - pad, c], point)

    wide = size + 2 * pad
    source = te.compute(tuple(map(_long, (1, wide, wide, channels))), bordered, name="pad_temp") if pad else data
    high = (wide - kernel) // stride + 1
    i, j, c = (te.reduce_axis((_long(0), extent), name) for extent, name in zip(weights.shape, "ijc", strict=False))

    def element(b: Any, y: Any, x: Any, f: Any) -> Any:
        place = source[b, y * stride + i, x * stride + j, c]
        return te.sum(place.astype("int32") * weights[i, j, c, f].astype("int32"), axis=[i, j, c])

    mark = _mark(True, (stride, stride), (1, 1), (pad,) * 4)
    shape = tuple(map(_long, (1, high, high, filters)))
    return _module(data, weights, te.compute(shape, element, name="conv2d_bytes", attrs=mark))


def _long(extent: Any) -> Any:
    from tvm import tirx

    return tirx.IntImm("int64", int(extent))


def _mark(*fields: Any) -> dict[str, str]:
    from kintune.compiler.kernels.contraction import BYTE_SUMS, Operator

    return {BYTE_SUMS: Operator(*fields).text}


def _module(data: Any, weights: Any, sums: Any) -> Any:
    """The module with a factor and a bias for each filter, rounding and bounds behind the sums."""
    import tvm
    from tvm import te, tirx

    factor, bias = (te.placeholder((sums.shape[-1],), "float32", name) for name in ("factor", "bias"))

    def quantised(*at: Any) -> Any:
        scaled = tirx.max(sums[at].astype("float32") * factor[at[-1]] + bias[at[-1]], 0.0)
        return tirx.max(tirx.min(tirx.round(scaled), 255.0), 0.0).astype("uint8")

    result = te.compute(sums.shape, quantised, name="quantised")
    function = te.create_prim_func([data, weights, factor, bias, result]).with_attr("layout_free_buffers", [1])
    return tvm.IRModule({"main": function.with_attr("global_symbol", "main")})


CASES: dict[str, Callable[[], Any]] = {
    "128x768x768": lambda: product(128, 768, 768),
    "128x768x3072": lambda: product(128, 768, 3072),
    "128x3072x768": lambda: product(128, 3072, 768),
    "7x7 of 3, stride 2, 224": lambda: convolution(224, 3, 64, 7, 2),
    "3x3 of 64, 56": lambda: convolution(56, 64, 64, 3),
    "3x3 of 128, 28": lambda: convolution(28, 128, 128, 3),
    "3x3 of 256, 14": lambda: convolution(14, 256, 256, 3),
    "3x3 of 512, 7": lambda: convolution(7, 512, 512, 3),
    "3x3 of 256, stride 2, 28": lambda: convolution(28, 256, 256, 3, 2),
    "1x1 of 64 to 256, 56": lambda: convolution(56, 64, 256),
    "1x1 of 256 to 64, 56": lambda: convolution(56, 256, 64),
    "1x1 of 512 to 128, 28": lambda: convolution(28, 512, 128),
    "1x1 of 1024 to 256, 14": lambda: convolution(14, 1024, 256),
    "1x1 of 256 to 1024, 14": lambda: convolution(14, 256, 1024),
    "1x1 of 2048 to 512, 7": lambda: convolution(7, 2048, 512),
    "1x1 of 96 to 24, 56": lambda: convolution(56, 96, 24),
    "1x1 of 24 to 144, 56": lambda: convolution(56, 24, 144),
    "1x1 of 384 to 64, 14": lambda: convolution(14, 384, 64),
}


class Timed:
    """A compiled candidate with its arguments; a run finds its weights in the shared cache, as in a network."""

    def __init__(self, module: Any, target: Any) -> None:
        import tvm

        from kintune.compiler.space.packing import without_packing

        packed = without_packing(module)
        arrays = []
        for parameter in packed["main"].params:
            arrays.append(np.ones(tuple(int(extent) for extent in parameter.shape), str(parameter.dtype)))
        copies = -(-_TURNED_OVER // arrays[1].nbytes)
        self._weights = [tvm.runtime.tensor(arrays[1]) for _ in range(copies)]
        self._arguments = [tvm.runtime.tensor(each) for each in arrays]
        self._run = tvm.compile(packed, target)["main"]
        self._turn = 0

    def time_us(self) -> float:
        self._turn = (self._turn + 1) % len(self._weights)
        data, _, *others = self._arguments
        begin = time.perf_counter()
        self._run(data, self._weights[self._turn], *others)
        return 1e6 * (time.perf_counter() - begin)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--candidates", type=int, default=6)
    parser.add_argument("--seconds", type=float, default=1.0, help="of the turns, for each case")
    parser.add_argument("--verbose", action="store_true", help="the decisions of each candidate, and its time")
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    os.environ["TVM_NUM_THREADS"] = str(options.threads)
    import tvm

    from kintune.compiler.programs.byte_products import ByteProducts, ByteTiles
    from kintune.core.candidate import described
    from kintune.hardware.amx import permit_amx
    from kintune.hardware.cpu import data_caches, inspect_machine
    from kintune.runtime.target import capabilities, resolve_target
    from kintune.search.processor import Processor

    permit_amx()
    target = tvm.target.Target(json.loads(resolve_target("native", options.threads)))
    machine = Processor.of(capabilities(target).extensions, options.threads, data_caches(inspect_machine()))
    for name in options.names or CASES:
        module = CASES[name]()
        best: dict[str, Timed] = {}
        for program, variant in ((ByteProducts(), "vnni"), (ByteTiles(), "amx")):
            axes = program.axes(module, variant) or ()
            found: list[tuple[float, int, Timed]] = []
            for decisions in program.rule(module, variant, machine)[: options.candidates]:
                timed = Timed(program.write(module, variant, decisions), target)
                least = float(np.percentile([timed.time_us() for _ in range(40)], 20))
                found.append((least, len(found), timed))
                if options.verbose:
                    print(f"  {program.name} {described(axes, decisions)}: {least:.1f} us", flush=True)
            best[program.name] = min(found, key=lambda each: each[:2])[2]
        times: dict[str, list[float]] = {each: [] for each in best}
        end = time.monotonic() + options.seconds
        while time.monotonic() < end:
            for each, timed in best.items():
                timed.time_us()
                times[each] += [timed.time_us() for _ in range(3)]
        parts = []
        for each, measured in times.items():
            low, middle, high = np.percentile(measured, [10, 50, 90])
            parts.append(f"{each} {low:.0f} / {middle:.0f} / {high:.0f} us")
        low, middle = (
            np.percentile(times["bytes"], share) / np.percentile(times["byte_tiles"], share) for share in (10, 50)
        )
        print(f"{name}: {', '.join(parts)}: {low:.1f} and {middle:.1f} times as fast", flush=True)


if __name__ == "__main__":
    main()
