from __future__ import annotations

import pytest

from kintune.measure.chains import chains_within


@pytest.mark.parametrize(("registers", "chains"), [(16, 12), (24, 12), (32, 24)])
def test_sums_and_their_operands_fit_the_registers(registers: int, chains: int) -> None:
    assert chains_within(registers) == chains
    assert chains < registers
