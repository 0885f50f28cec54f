from __future__ import annotations

import pytest

pytestmark = pytest.mark.tvm


@pytest.mark.parametrize("shape", [(1,), (3, 5), (64,), (1000, 17)])
@pytest.mark.parametrize("dtype", ["float32", "int8", "bfloat16"])
@pytest.mark.parametrize("threads", [1, 2])
def test_what_is_brought_back_stays_what_it_is(shape: tuple[int, ...], dtype: str, threads: int) -> None:
    from kintune.measure.flush import sweeper
    from kintune.measure.guarded_memory import GuardedMemory

    buffer = GuardedMemory.of(shape, dtype)
    buffer.array(shape, dtype)[...] = 3
    before = buffer.fingerprint()
    sweeper(threads, 1 << 16)([buffer.tensor(shape, dtype)])
    assert buffer.fingerprint() == before


def test_what_is_not_a_number_disturbs_nothing() -> None:
    import numpy as np

    from kintune.measure.flush import sweeper
    from kintune.measure.guarded_memory import GuardedMemory

    buffer = GuardedMemory.of((1000,), "float32")
    buffer.array((1000,), "float32")[...] = np.nan
    sweeper(1, 1 << 16)([buffer.tensor((1000,), "float32")])
    sweeper(1, 1 << 16)([])


@pytest.mark.parametrize(("threads", "neighbour"), [(1, 0), (1, 1), (2, 0), (2, 1), (3, 1), (3, 2)])
def test_each_thread_reads_its_own_part_or_that_of_a_neighbour(threads: int, neighbour: int) -> None:
    import numpy as np
    import tvm

    from kintune.measure.flush import compiled, reading

    rows = np.repeat(np.arange(1, threads + 1, dtype=np.float32), 5)
    data = tvm.runtime.tensor(np.repeat(rows[:, None], 16, axis=1))
    out = tvm.runtime.tensor(np.zeros((threads, 16), np.float32))
    compiled(reading(threads, neighbour))(data, out)
    assert out.numpy()[:, 0].tolist() == [(part + neighbour) % threads + 1 for part in range(threads)]
