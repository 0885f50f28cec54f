"""Laws of the estimate of times."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kintune.compiler.kernels.cost import Calls, Loop, Tasks, cycles_of_tasks
from kintune.compiler.kernels.instructions import BYTES, PAIRS, Instruction, fused
from kintune.compiler.kernels.microkernel import Kernel
from kintune.search.processor import Processor

ONE = Processor(16, 32, 1)
COUNTS = st.floats(0, 1e3)


@given(
    loop=st.builds(Loop, *([COUNTS] * len(Loop._fields))),
    rest=st.builds(Tasks, st.integers(1, 100), st.just(()), *([COUNTS] * len(Tasks._fields[2:]))),
    field=st.sampled_from(Loop._fields),
    more=COUNTS,
)
def test_more_work_never_takes_less_time(loop: Loop, rest: Tasks, field: str, more: float) -> None:
    tasks = rest._replace(loops=(loop,))
    longer = tasks._replace(loops=(loop._replace(**{field: getattr(loop, field) + more}),))
    assert cycles_of_tasks(longer, ONE) >= cycles_of_tasks(tasks, ONE) > 0


@given(number=st.integers(1, 200), threads=st.integers(1, 64))
def test_the_core_with_most_tasks_counts(number: int, threads: int) -> None:
    tasks = Tasks(number, (Loop(100, 2, 2),), own=64, shared=64)
    one = cycles_of_tasks(tasks._replace(number=1), ONE)
    assert cycles_of_tasks(tasks, Processor(16, 32, threads)) == pytest.approx(-(-number // threads) * one)


@pytest.mark.parametrize("instruction", [fused(8, 16), *PAIRS, *BYTES], ids=lambda each: each.name)
def test_calls_take_as_long_as_their_steps(instruction: Instruction) -> None:
    kernel = Kernel(instruction, 1, 1, 4096)
    twice = Calls(kernel._replace(steps=8192), 1).cycles / Calls(kernel, 1).cycles
    assert 1.9 < twice < 2
    assert Calls(kernel, 3).cycles == pytest.approx(3 * Calls(kernel, 1).cycles)
