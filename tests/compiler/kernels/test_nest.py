"""The loops around a micro-kernel: rows known only when the program runs, and their estimated times."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.targets import native_target

DEPTH, COLUMNS = 24, 37


@pytest.mark.tvm
def test_the_number_of_rows_may_be_known_only_when_the_program_runs() -> None:
    """One library multiplies matrices of any height; each row that a task does not have is left alone."""
    import tvm
    from tvm import tirx

    from kintune.compiler.kernels.calls import address
    from kintune.compiler.kernels.images import Image
    from kintune.compiler.kernels.instructions import fused
    from kintune.compiler.kernels.loops import as_root, buffer, index
    from kintune.compiler.kernels.microkernel import Kernel
    from kintune.compiler.kernels.nest import Nest, Panels, Share, Target, tasks
    from kintune.compiler.kernels.packing import packing_block
    from kintune.compiler.kernels.rows import Lines, Rows, Units

    rows, lanes, vectors = tirx.Var("rows", "int64"), 8, 2
    data, result = (buffer(name, (rows, size), "float32", "") for name, size in (("a", DEPTH), ("c", COLUMNS)))
    weights = buffer("b", (DEPTH, COLUMNS), "float32", "")
    number = -(-COLUMNS // (lanes * vectors))
    packed = buffer("packed", (number, DEPTH, lanes * vectors), "float32", "global")
    packing = packing_block("packed", packed, weights, lambda _, value, column: weights[value, column], COLUMNS, number)
    kernel = Kernel(fused(lanes, 16), 4, vectors, DEPTH, 2)
    panels = Panels(number, [packed], lambda o, _: [address(packed, o * index(DEPTH * lanes * vectors))])
    lines = Lines(Image.of_matrix(1, DEPTH), 1, rows, DEPTH)
    nest = Nest(
        "product", Rows(Units(lines, [rows], 1, 8), data), panels, Target(result, COLUMNS), (Share.of(kernel),), 2
    )
    body = as_root(tirx.SeqStmt([packing, tasks(nest)]), [packed])
    function = tirx.PrimFunc([data, weights, result], body).with_attr("global_symbol", "main")
    library = tvm.compile(tvm.IRModule({"main": function.with_attr("tirx.noalias", True)}), native_target())
    random = np.random.default_rng(0)
    b = random.standard_normal((DEPTH, COLUMNS)).astype(np.float32)
    for extent in (1, 3, 8, 33):
        a, found = (
            random.standard_normal((extent, DEPTH)).astype(np.float32),
            np.full((extent, COLUMNS), 9.0, "float32"),
        )
        given = [tvm.runtime.tensor(each) for each in (a, b, found)]
        library["main"](*given)
        np.testing.assert_allclose(given[-1].numpy(), a @ b, rtol=1e-4, atol=1e-4)


@given(st.integers(1, 64), st.integers(1, 16), st.integers(1, 512))
def test_more_work_takes_longer(groups: int, panels: int, tasks: int) -> None:
    from kintune.compiler.kernels.cost import Work, cycles
    from kintune.compiler.kernels.instructions import BYTES, PAIRS, fused
    from kintune.compiler.kernels.microkernel import Kernel
    from kintune.search.processor import Processor

    machine = Processor(16, 32, 2)
    for instruction in (fused(16, 32), *PAIRS, *BYTES):
        work = Work(Kernel(instruction, 2, 2, 8), groups, panels, tasks, 64)
        least = cycles(work, machine)
        more: list[dict[str, Any]] = [
            {"groups": groups + 1},
            {"panels": panels + 1},
            {"tasks": tasks + 2},
            {"copied": 64},
        ]
        assert all(cycles(work._replace(**each), machine) > least for each in more)
