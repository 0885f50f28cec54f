"""Times a program of ours, which is trusted, on arguments of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tvm

from kintune.measure.build import ENTRY
from kintune.measure.cuda.codegen import compiling_for
from kintune.measure.guarded import Guarded

__all__ = ["evaluator"]


def evaluator(
    function: Any,
    target: tvm.target.Target,
    shapes: Sequence[tuple[int, ...]],
    repeats: int,
    *,
    device: Any = None,
    buffer: Callable[[tuple[int, ...], str], Guarded] = Guarded.of,
) -> Callable[[], tuple[float, ...]]:
    """What runs `function` so many times on zeroed float32 arguments of these shapes.

    It returns the seconds of each run.  Arguments lie in memory that `buffer` makes, on `device`; by default this
    process's own.
    """
    buffers = [buffer(shape, "float32") for shape in shapes]
    for each, shape in zip(buffers, shapes, strict=True):
        each.array(shape, "float32")[...] = 0  # so that no page is first touched while the clock runs
        each.push()
    arguments = [each.tensor(shape, "float32") for each, shape in zip(buffers, shapes, strict=True)]
    with compiling_for(target):
        executable = tvm.compile(tvm.IRModule({ENTRY: function.with_attr("global_symbol", ENTRY)}), target)
    timed = executable.mod.time_evaluator(ENTRY, device or tvm.cpu(), number=1, repeat=repeats)

    def run() -> tuple[float, ...]:
        return tuple(map(float, timed(*arguments).results))

    return run
