"""What a sum reads along an axis, by a look at each place; and what lowering notes of operators."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.compiler.kernels.test_reading import noted
from tests.support.convolutions import Case, workload
from tests.support.products import product
from tests.support.sums import Bytes, FewBits

pytestmark = pytest.mark.tvm


@given(*[st.integers(1, 5)] * 5, *[st.integers(0, 3)] * 2)
def test_what_is_read_along_an_axis(
    size: int, results: int, kernel: int, stride: int, dilation: int, before: int, after: int
) -> None:
    from kintune.compiler.kernels.contraction import Reach

    reach = Reach(size, results, kernel, stride, dilation, before, after)
    read = [x * stride + i * dilation for x in range(results) for i in range(kernel)]
    assert reach.read == max(read) + 1
    assert reach.padded == len([*range(-before, 0), *range(size), *range(after)])
    plain = reach._replace(size=size, results=size, kernel=1, stride=1, dilation=1, before=0, after=0)
    assert plain.is_plain
    for name, number in zip(Reach._fields, reach, strict=True):
        assert plain._replace(**{name: number}).is_plain == (number == getattr(plain, name))


def batched(module: Any) -> Any:
    """The product of floats, noted as one whose weights differ along the first axes."""
    from kintune.compiler.kernels.contraction import SUMS, Operator

    return noted(module, {SUMS: Operator(batched=True).text})


def described_as(module: Any, *, convolves: bool) -> Any:
    from kintune.compiler.kernels.contraction import SUMS, Operator

    return noted(module, {SUMS: Operator(convolves).text})


def test_products_of_rows_are_those_that_lowering_says() -> None:
    from kintune.compiler.kernels.contraction import OF_BLOCKWISE, OF_BYTES, multiplies_rows, narrow_sums

    plain, image = product(3, columns=4, reduced=5), workload(Case(4, 4, 2, 2))
    few, of_bytes = FewBits((1,), 8, 32, 4, 32).module(), Bytes((), 2, 3, 4).module()
    rows = [described_as(plain, convolves=False), few]
    others = [plain, batched(plain), described_as(image, convolves=True), of_bytes]
    assert [multiplies_rows(each["main"]) for each in (*rows, *others)] == [True] * 2 + [False] * 4
    narrow = [narrow_sums(each["main"]) for each in (plain, rows[0], few, of_bytes)]
    assert narrow == [set(), set(), {OF_BLOCKWISE}, {OF_BYTES}]


def test_sums_of_floats_lose_what_lowering_says_and_others_keep_it() -> None:
    import tvm_ffi

    from kintune.compiler.kernels.contraction import undescribed

    plain = noted(product(3, columns=4, reduced=5), {})
    told = described_as(plain, convolves=False)
    assert not tvm_ffi.structural_equal(told["main"], plain["main"])
    assert tvm_ffi.structural_equal(undescribed(told["main"]), plain["main"])
    few = FewBits((1,), 8, 32, 4, 32).module()["main"]
    assert tvm_ffi.structural_equal(undescribed(few), few)
