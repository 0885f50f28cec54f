from __future__ import annotations

import numpy as np
import pytest

pytestmark = pytest.mark.tvm


@pytest.mark.parametrize("shape", [(1,), (3, 5), (64,), (1000, 17)])
@pytest.mark.parametrize("dtype", ["float32", "int8", "bfloat16"])
def test_what_is_sent_to_memory_stays_what_it_is(shape: tuple[int, ...], dtype: str) -> None:
    import tvm

    from kintune.measure.evict import evictor
    from kintune.measure.guarded_memory import GuardedMemory

    buffer = GuardedMemory.of(shape, dtype)
    buffer.array(shape, dtype)[...] = 3
    before = buffer.fingerprint()
    tensor = buffer.tensor(shape, dtype)
    evictor(1)(tensor, tensor)
    assert buffer.fingerprint() == before
    assert isinstance(tensor, tvm.runtime.Tensor)


def test_nothing_is_sent_anywhere_when_nothing_is_given() -> None:
    from kintune.measure.evict import evictor

    evictor(1)()


def test_other_processors_have_the_compilers_own_way(monkeypatch: pytest.MonkeyPatch) -> None:
    import tvm

    from kintune.measure import evict

    monkeypatch.setattr(evict, "_FEATURE", "no such feature")
    tensor = tvm.runtime.tensor(np.ones(100, np.float32))
    own = evict.evictor.__wrapped__(1)
    own(tensor)
    own()
    assert (tensor.numpy() == 1).all()
