"""Times a trusted TIR function: one that Kintune itself has written, to learn what a device does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tvm

from kintune.compiler.build import ENTRY
from kintune.measure.backend import MeasurementBackend
from kintune.measure.guarded_memory import GuardedMemory
from kintune.runtime.artifact import library_of
from kintune.runtime.cuda_codegen import compiling_for
from kintune.runtime.target import architecture_of

__all__ = ["evaluator"]


def evaluator(
    function: Any,
    target: tvm.target.Target,
    shapes: Sequence[tuple[int, ...]],
    repeats: int,
    backend: MeasurementBackend | None = None,
) -> Callable[[], tuple[float, ...]]:
    """Compiles a trusted TIR function; the result runs it `repeats` times and returns the seconds of each run.

    Its arguments are zeroed float32 tensors of these shapes.  It runs on `backend`, by default in this process.
    """
    buffer = GuardedMemory.of if backend is None else backend.buffer
    buffers = [buffer(shape, "float32") for shape in shapes]
    for each, shape in zip(buffers, shapes, strict=True):
        each.array(shape, "float32")[...] = 0  # so that no page is first touched while the clock runs
        each.push()
    arguments = [each.tensor(shape, "float32") for each, shape in zip(buffers, shapes, strict=True)]
    with compiling_for(target):
        executable = tvm.compile(tvm.IRModule({ENTRY: function.with_attr("global_symbol", ENTRY)}), target)
    module = executable.mod if backend is None else backend.load(library_of(executable, architecture_of(target)))
    device = tvm.cpu() if backend is None else backend.device
    timed = module.time_evaluator(ENTRY, device, number=1, repeat=repeats)

    def run() -> tuple[float, ...]:
        return tuple(map(float, timed(*arguments).results))

    return run
