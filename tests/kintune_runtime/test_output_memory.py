from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from kintune_runtime.inputs import Array
from kintune_runtime.output_memory import OutputMemory, address_of

LARGE = (3, 50_000)


def memory(shape: tuple[int, ...] = LARGE, dtype: Any = np.float32) -> OutputMemory:
    return OutputMemory(shape, np.dtype(dtype), int(np.prod(shape)) * np.dtype(dtype).itemsize)


def test_arrays_are_as_they_were_asked_for() -> None:
    for shape in (LARGE, (2, 3), ()):
        array = memory(shape, np.int64).array()
        assert (array.shape, array.dtype) == (shape, np.int64)
        assert array.flags.c_contiguous
        assert array.flags.writeable
    assert address_of(memory().array()) % 64 == 0


def test_what_nobody_holds_is_taken_again() -> None:
    made = memory()
    seen = {address_of(made.array()) for _ in range(5)}
    assert len(seen) == 1


def test_a_loop_that_holds_the_last_output_needs_two_blocks() -> None:
    made, seen = memory(), set()
    last = None
    for _ in range(8):
        last = made.array()
        seen.add(address_of(last))
    assert last is not None
    assert len(seen) == 2


HOLDERS: dict[str, Callable[[Array], object]] = {
    "the array": lambda array: array,
    "a slice": lambda array: array[1, 10:20],
    "a view of a view": lambda array: array.view(np.int32)[1:].reshape(-1)[::3].T,
    "a memoryview": lambda array: memoryview(array),
    "bytes of a slice": lambda array: memoryview(array[2]).cast("B")[4:],
    "an array over its buffer": lambda array: np.frombuffer(memoryview(array).cast("B"), np.float32),
    "DLPack": lambda array: np.from_dlpack(array),
    "an array in a list": lambda array: [{"y": array}],
}


@pytest.mark.parametrize("hold", HOLDERS.values(), ids=HOLDERS)
def test_what_somebody_holds_is_never_written_to(hold: Callable[[Array], object]) -> None:
    made = memory()
    first = made.array()
    first[...] = 7
    start, held = address_of(first), hold(first)
    del first
    gc.collect()
    others = [made.array() for _ in range(4)]
    for other in others:
        other[...] = 1
    assert start not in {address_of(other) for other in others}
    assert len({address_of(other) for other in others}) == 4
    while not isinstance(held, np.ndarray | memoryview):
        assert isinstance(held, list)
        held = held[0]["y"]
    assert {7.0} == set(np.frombuffer(np.ascontiguousarray(held).tobytes(), np.float32))


def test_what_is_given_back_serves_again() -> None:
    made = memory()
    held = [made.array() for _ in range(3)]
    last = {address_of(array) for array in held[1:]}
    del held
    assert {address_of(one) for one in (made.array(), made.array())} <= last


def test_where_references_cannot_be_counted_nothing_is_taken_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kintune_runtime.output_memory._references", lambda _: 10**9)
    made = memory()
    kept = [made.array() for _ in range(3)]
    assert len({address_of(array) for array in kept}) == 3
