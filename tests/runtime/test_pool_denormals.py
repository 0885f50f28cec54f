from __future__ import annotations

import numpy as np
import pytest

pytestmark = pytest.mark.tvm


def test_all_threads_of_the_pool_flush_or_keep_denormal_numbers() -> None:
    import tvm
    from tvm.script import tirx as T

    from kintune.measure.flush import compile_function
    from kintune.runtime.pool_denormals import set_pool_denormals
    from kintune_runtime.denormals import Flushing

    parts = 64

    @T.prim_func(s_tir=True, private=True)  # type: ignore[untyped-decorator]
    def double(data: T.Buffer((parts, 16), "float32"), out: T.Buffer((parts, 16), "float32")):  # type: ignore[no-untyped-def,valid-type]
        for part in T.parallel(parts):
            for i in T.serial(16):
                out[part, i] = data[part, i] + data[part, i]

    function = compile_function(double)
    tiny = np.full((parts, 16), 1e-40, np.float32)
    out = tvm.runtime.tensor(np.ones((parts, 16), np.float32))
    for flush in (True, False, True, False):
        with Flushing(flush):
            set_pool_denormals(flush)
            for _ in range(20):
                function(tvm.runtime.tensor(tiny), out)
                bits = out.numpy().view(np.int32)
                assert not bits.any() if flush else (bits != 0).all()
    assert (tiny * np.float32(1)).any()  # this thread's own state is back
