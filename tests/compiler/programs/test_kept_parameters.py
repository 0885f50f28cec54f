"""Parameters in bf16: sums compute the same of data that is rounded already, and round what they store."""

from __future__ import annotations

from typing import Any

import pytest

from kintune.errors import BuildError
from tests.support.products import product

pytestmark = pytest.mark.tvm


def test_whole_rows_are_read_where_they_are() -> None:
    from kintune.compiler.programs.panel_sum import NarrowPanels

    program = NarrowPanels()
    for reduced, is_copied in ((64, False), (72, True)):
        written = program.write(product(197, columns=96, reduced=reduced), "amx", ((2,), (1,), (1,)), frozenset({0}))
        assert ('"kt_copy"' in str(written)) == is_copied
        assert '"kt_round"' not in str(written)


def test_what_is_stored_in_part_first_may_not_be_rounded() -> None:
    import tvm
    from tvm import te, topi

    from kintune.compiler.programs.kept_parameters import is_reshape, readable, writable

    x = te.placeholder((1, 8, 8, 32), name="x")
    k = te.reduce_axis((0, 8), name="k")

    def made(*operands: Any) -> Any:
        return te.create_prim_func(list(operands))

    total = made(x, te.compute((8, 32), lambda i, j: te.sum(x[0, k, i, j], axis=k), "total"))
    largest = made(x, te.compute((8, 32), lambda i, j: te.max(x[0, k, i, j], axis=k), "largest"))
    assert readable(total, 0)
    assert not readable(total, 1)
    assert not writable(total, 1)
    assert readable(largest, 0)
    assert writable(largest, 1)
    assert not is_reshape(largest)
    assert is_reshape(made(x, topi.reshape(x, (64, 32))))
    assert not is_reshape(made(x, topi.transpose(x, (0, 2, 1, 3))))
    assert not is_reshape(made(x, topi.nn.relu(x)))
    indices = te.placeholder((4,), "int64", "indices")
    taken = made(indices, x, topi.take(x, indices, axis=1))
    assert not readable(taken, 0)
    assert isinstance(taken, tvm.tirx.PrimFunc)


def test_programs_without_bf16_keep_nothing() -> None:
    from kintune.compiler.programs.panel_sum import NarrowPanels
    from kintune.compiler.programs.registry import keepable, write

    module = product(64, columns=64, reduced=64)
    assert keepable(f"narrow.{NarrowPanels.version}:amx", module) == {0, 2, 3}
    assert keepable("vectors.1:8x16", module) == frozenset()
    with pytest.raises(BuildError, match="no program"):
        write("nothing.1:", module, (), ())
    with pytest.raises(BuildError, match="keeps none"):
        write("vectors.1:8x16", module, (), {0})
