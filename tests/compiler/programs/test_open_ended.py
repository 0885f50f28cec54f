"""Programs for any extent: made of what is written for some extents, and compared with that for the greatest.

`generalise` has tests of its own.
"""

from __future__ import annotations

import threading
from contextlib import nullcontext
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kintune.errors import BuildError
from tests.support.examples import compiled_examples
from tests.support.plain_bytes import plain_bytes
from tests.support.sums import MACHINE, SUMS, WORTH, Bytes, Image, Product, Writer, built, drawn_operands, runs_here

pytestmark = pytest.mark.tvm

GREATEST = 100
POINTS = (24, 41, 64, GREATEST)
EXTENTS = (1, 2, 3, 7, 31, 97, GREATEST)
OPEN = (
    Writer("vectors", "16x32", ("product", "weights across", "pointwise"), ""),
    Writer("bytes", "vnni256", ("bytes", "batched bytes"), ""),
    Writer("blockwise", "convert8", ("few bits",), ""),
    Writer("narrow", "dot", ("product", "pointwise"), "", (frozenset(("avx512f", "avx512bf16")),)),
)


def at(case: Any, extent: int) -> Any:
    """The workload `case` with so many rows, or columns of the image, in place of its own."""
    if isinstance(case, Bytes):
        return msgspec.structs.replace(case, rows=extent).module()
    if isinstance(case, Image):
        return Image(msgspec.structs.replace(case.case, width=extent)).module()
    return msgspec.structs.replace(case, shape=(*case.shape[:-1], extent)).module()


def general(writer: Writer, case: Any, decisions: Any) -> Any:
    """The program for any extent, after extents were asked for until none was in doubt."""
    from kintune.compiler.graph.generalise import generalise

    points: list[int] = list(POINTS)
    while True:
        written = writer.made.open_ended([at(case, n) for n in points], writer.variant, decisions)
        module, doubts = generalise(written, [{"n": n} for n in points])
        if not doubts:
            return module
        points[:0] = {point["n"] for point in doubts}


def with_threads(number: int, call: Any) -> Any:
    """What a call returns in a thread of its own, which has a pool of so many."""
    import tvm

    found: list[Any] = []

    def body() -> None:
        tvm.get_global_func("runtime.config_threadpool")(-2, number, [str(core) for core in range(number)])
        assert tvm.get_global_func("runtime.NumThreads")() == number
        found.append(call())

    thread = threading.Thread(target=body)
    thread.start()
    thread.join()
    return found[0]


def some(module: Any, arrays: Any) -> list[Any]:
    """The part of each array that a parameter of the module has."""
    shapes = [tuple(map(int, each.shape)) for each in module["main"].params]
    return [each[tuple(map(slice, shape))].copy() for each, shape in zip(arrays, shapes, strict=False)]


@pytest.mark.parametrize("writer", OPEN, ids=lambda writer: f"{writer.program}-{writer.variant}")
@compiled_examples(8, deadline=None)
@given(data=st.data())
def test_one_program_computes_what_that_of_each_extent_does(writer: Writer, data: st.DataObject) -> None:
    """Bit for bit: a row does not depend on how many there are.

    Where this CPU has no such instructions, the program is only written.
    """
    case = data.draw(SUMS[data.draw(st.sampled_from(writer.sums))])
    greatest = at(case, GREATEST)
    try:
        decisions = data.draw(st.sampled_from(writer.made.rule(greatest, writer.variant, MACHINE)))
    except BuildError:
        return
    arrays, height = drawn_operands(greatest), min(decisions[0][0], 30)
    with plain_bytes() if writer.program == "bytes" else nullcontext():
        made = general(writer, case, decisions)
        if not runs_here(writer):
            assert 'call_extern("int32", "kt_' in str(made.script())
            return
        run = built(made, proven=False)
        expected = built(writer.made.write(greatest, writer.variant, decisions), proven=False)(arrays)
    edges = (height - 1, height, height + 1, 2 * height - 1, 3 * height + 1)
    modules = [at(case, extent) for extent in sorted({*EXTENTS, *(each for each in edges if 0 < each <= GREATEST)})]
    shapes = [tuple(map(int, module["main"].params[-1].shape)) for module in modules]
    operands = [some(module, arrays) for module in modules]
    for threads in (1, 2):
        for found in with_threads(threads, lambda: list(map(run, operands, shapes))):
            wanted = expected[tuple(map(slice, found.shape))]
            np.testing.assert_array_equal(found, wanted, err_msg=str(decisions))


KNOWN = (
    Writer("vectors", "16x32", ("few positions",), ""),
    Writer("vectors", "16x32", ("rows of a norm",), ""),
    Writer("blockwise", "convert8", ("few bits of a norm",), ""),
    Writer("bytes", "vnni", ("image of bytes",), ""),
    Writer("byte_tiles", "amx", ("bytes",), ""),
    Writer("narrow", "amx", ("product",), ""),
    Writer("narrow", "dot", ("rows of a norm",), ""),
    Writer("narrow", "dot", ("convolution",), ""),
)
"""Programs that are written for known extents alone."""


@pytest.mark.parametrize("writer", KNOWN, ids=lambda writer: f"{writer.program}-{writer.sums[0]}")
def test_what_is_written_for_known_extents_alone_is_refused(writer: Writer) -> None:
    module = WORTH[writer.sums[0]].module()
    decisions = writer.made.rule(module, writer.variant, MACHINE)[0]
    with pytest.raises(BuildError, match="known extents alone"):
        writer.made.open_ended([module], writer.variant, decisions)


def test_decisions_are_those_for_the_greatest_extent() -> None:
    """Tiles that are higher than the least extents are written all the same, and others are refused as ever."""
    writer, case = OPEN[0], Product((GREATEST,), 64, 64)
    decisions = ((14, 2), (2,), (1,), (1,), (1,), (0,))
    small, great = at(case, 8), at(case, GREATEST)
    assert len(writer.made.open_ended([small, great], writer.variant, decisions)) == 2
    with pytest.raises(BuildError, match="no rows vectors = 14 2"):
        writer.made.open_ended([great, small], writer.variant, decisions)
