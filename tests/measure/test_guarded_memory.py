from __future__ import annotations

import ctypes

import numpy as np
import pytest

from kintune.errors import DeviceError

pytestmark = pytest.mark.tvm


@pytest.mark.parametrize(
    "dtype", ["float32", "float16", "bfloat16", "float64", "int8", "uint8", "int64", "bool", "float8_e4m3fn"]
)
@pytest.mark.parametrize("shape", [(3, 5), (1,), (), (7, 1, 11)])
def test_array_and_tensor_are_the_same_memory(dtype: str, shape: tuple[int, ...]) -> None:
    from kintune.measure.guarded_memory import GuardedMemory

    guarded = GuardedMemory.of(shape, dtype)
    array, tensor = guarded.array(shape, dtype), guarded.tensor(shape, dtype)
    array[...] = 1
    assert (tuple(tensor.shape), str(tensor.dtype)) == (shape, dtype)
    assert array.ctypes.data % 64 == 0
    np.testing.assert_array_equal(tensor.numpy().astype(np.float64), np.ones(shape))


def test_a_type_without_whole_bytes_is_refused() -> None:
    from kintune.measure.guarded_memory import GuardedMemory

    for dtype in ("int4", "handle", "float8_imaginary"):
        with pytest.raises(DeviceError, match=dtype):
            GuardedMemory.of((8,), dtype)


@pytest.mark.parametrize("offset", [-1, -4096, 12, 12 + 4095])
def test_a_write_beside_the_array_is_seen(offset: int) -> None:
    from kintune.measure.guarded_memory import GuardedMemory

    guarded = GuardedMemory.of((3,), "float32")
    whole, guards = guarded.fingerprint(), guarded.guards_fingerprint()
    ctypes.memset(guarded.array((3,), "float32").ctypes.data + offset, 1, 1)
    assert guarded.fingerprint() != whole
    assert guarded.guards_fingerprint() != guards


def test_a_write_to_the_array_is_not_one_to_its_guards() -> None:
    from kintune.measure.guarded_memory import GuardedMemory

    guarded = GuardedMemory.of((3,), "float32")
    whole, guards = guarded.fingerprint(), guarded.guards_fingerprint()
    guarded.array((3,), "float32")[2] = 1
    assert guarded.fingerprint() != whole
    assert guarded.guards_fingerprint() == guards


def test_an_array_outlives_its_owner() -> None:
    from kintune.measure.guarded_memory import GuardedMemory

    tensor = GuardedMemory.of((1 << 20,), "float32").tensor((1 << 20,), "float32")
    assert float(tensor.numpy().sum()) == 0.0
