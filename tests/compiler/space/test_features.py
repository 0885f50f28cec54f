from __future__ import annotations

import numpy as np
import pytest

from kintune.search.training_rows import STORES

pytestmark = pytest.mark.tvm


def test_stores_are_summed_and_the_largest_taken() -> None:
    from kintune.compiler.space.features import pooled

    stores = np.zeros((2, STORES // 2), np.float32)
    stores[:, 0] = 3.0, 5.0
    row = pooled(stores)
    assert row.shape == (STORES,)
    assert (row[0], row[STORES // 2]) == (8.0, 5.0)


def test_a_program_without_stores_has_zeros() -> None:
    from kintune.compiler.space.features import pooled

    row = pooled(np.zeros((0, STORES // 2), np.float32))
    assert row.shape == (STORES,)
    assert not row.any()
