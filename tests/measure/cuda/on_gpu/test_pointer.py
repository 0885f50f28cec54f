from __future__ import annotations

import gc

import pytest

pytestmark = pytest.mark.tvm


def test_a_part_of_a_tensor_is_the_same_memory_and_keeps_it_alive() -> None:
    import numpy as np
    import tvm

    from kintune.measure.cuda import pointer
    from kintune.runtime.cuda_codegen import load_runtime

    load_runtime()
    before = set(pointer._KEPT)
    whole = tvm.runtime.tensor(np.arange(128, dtype=np.uint8), tvm.cuda(0))
    part = pointer.part_of(whole, 64, 32)
    assert part.data_ptr() == whole.data_ptr() + 64
    np.testing.assert_array_equal(part.numpy(), np.arange(64, 96))
    del whole
    gc.collect()
    np.testing.assert_array_equal(part._create_view((8,), "int32").numpy().view(np.uint8), np.arange(64, 96))
    del part
    gc.collect()
    assert set(pointer._KEPT) <= before  # those of other tests may have gone meanwhile
