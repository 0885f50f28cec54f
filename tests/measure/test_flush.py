from __future__ import annotations

import numpy as np
import pytest

pytestmark = pytest.mark.tvm


@pytest.mark.parametrize("shape", [(1,), (3, 5), (64,), (1000, 17)])
@pytest.mark.parametrize("dtype", ["float32", "int8", "bfloat16"])
@pytest.mark.parametrize("threads", [1, 2])
def test_what_is_brought_back_stays_what_it_is(shape: tuple[int, ...], dtype: str, threads: int) -> None:
    from kintune.measure.flush import last_level_flusher
    from kintune.measure.guarded_memory import GuardedMemory

    buffer = GuardedMemory.of(shape, dtype)
    buffer.array(shape, dtype)[...] = 3
    before = buffer.fingerprint()
    last_level_flusher(threads, 1 << 16)([buffer.tensor(shape, dtype)])
    assert buffer.fingerprint() == before


def test_what_is_not_a_number_disturbs_nothing() -> None:
    from kintune.measure.flush import last_level_flusher
    from kintune.measure.guarded_memory import GuardedMemory

    buffer = GuardedMemory.of((1000,), "float32")
    buffer.array((1000,), "float32")[...] = np.nan
    last_level_flusher(1, 1 << 16)([buffer.tensor((1000,), "float32")])
    last_level_flusher(1, 1 << 16)([])


@pytest.mark.parametrize(("threads", "neighbour"), [(1, 0), (1, 1), (2, 0), (2, 1), (3, 1), (3, 2)])
def test_each_thread_reads_its_own_part_or_that_of_a_neighbour(threads: int, neighbour: int) -> None:
    import tvm

    from kintune.measure.flush import compile_function, reading_function

    rows = np.repeat(np.arange(1, threads + 1, dtype=np.float32), 5)
    data = tvm.runtime.tensor(np.repeat(rows[:, None], 16, axis=1))
    out = tvm.runtime.tensor(np.zeros((threads, 16), np.float32))
    compile_function(reading_function(threads, neighbour))(data, out)
    assert out.numpy()[:, 0].tolist() == [(part + neighbour) % threads + 1 for part in range(threads)]


@pytest.mark.parametrize("shape", [(1,), (3, 5), (64,), (1000, 17)])
@pytest.mark.parametrize("dtype", ["float32", "int8", "bfloat16"])
def test_what_is_sent_to_memory_stays_what_it_is(shape: tuple[int, ...], dtype: str) -> None:
    import tvm

    from kintune.measure.flush import memory_flusher
    from kintune.measure.guarded_memory import GuardedMemory

    buffer = GuardedMemory.of(shape, dtype)
    buffer.array(shape, dtype)[...] = 3
    before = buffer.fingerprint()
    tensor = buffer.tensor(shape, dtype)
    memory_flusher(1)(tensor, tensor)
    assert buffer.fingerprint() == before
    assert isinstance(tensor, tvm.runtime.Tensor)


def test_nothing_is_sent_anywhere_when_nothing_is_given() -> None:
    from kintune.measure.flush import memory_flusher

    memory_flusher(1)()


def test_other_processors_have_the_compilers_own_way(monkeypatch: pytest.MonkeyPatch) -> None:
    import tvm

    from kintune.measure import flush

    monkeypatch.setattr(flush, "_FLUSH_FEATURE", "no such feature")
    tensor = tvm.runtime.tensor(np.ones(100, np.float32))
    own = flush.memory_flusher.__wrapped__(1)
    own(tensor)
    own()
    assert (tensor.numpy() == 1).all()
