"""Buffers of a caller in C that share memory."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from kintune.core.execution_plan import ExecutionPlan, KernelCall
from kintune.core.model import Tensor
from kintune_runtime.library import Buffer, library
from tests.support.toy_model import planned, write_model

COUNT = 1000
W = np.arange(COUNT, dtype=np.float32)


@pytest.fixture
def context(tmp_path: Path) -> Iterator[ctypes.c_void_p]:
    """Two outputs, both x + w: the first is written before x is read for the second."""
    shape = (COUNT,)
    plan = ExecutionPlan(
        tensors=tuple(planned(place, at, shape) for place, at in
                      (("input", 0), ("weights", 0), ("output", 0), ("output", 1))),
        operations=(KernelCall("add", (0, 1, 2)), KernelCall("add", (0, 1, 3))),
        input_tensors=(0,),
        output_tensors=(2, 3),
        inputs=(Tensor("x", shape, "float32"),),
        outputs=(Tensor("first", shape, "float32"), Tensor("second", shape, "float32")),
        arena_bytes=0,
    )  # fmt: skip
    native, model, made = library(), ctypes.c_void_p(), ctypes.c_void_p()
    assert native.kt_open(os.fsencode(write_model(tmp_path / "two.kt", [plan])), ctypes.byref(model)) == 0
    assert native.kt_context_create(model, 0, None, ctypes.byref(made)) == 0
    native.kt_close(model)
    yield made
    native.kt_context_close(made)


def run(context: ctypes.c_void_p, given: np.ndarray, *made: np.ndarray) -> str:
    """Run once; returns what went wrong."""
    native = library()
    inputs = (Buffer * 1)(Buffer(given.ctypes.data, given.nbytes))
    outputs = (Buffer * 2)(*(Buffer(each.ctypes.data, each.nbytes) for each in made))
    status = native.kt_run(context, inputs, 1, outputs, 2)
    return native.kt_last_error().decode() if status else ""


@pytest.fixture
def memory() -> np.ndarray:
    """Room for three arrays at a multiple of 64 bytes."""
    room = np.zeros(4 * COUNT + 16, np.float32)
    at = -room.ctypes.data % 64 // 4
    return room[at : at + 4 * COUNT]


@pytest.mark.parametrize("shift", [0, 16, 999])
def test_an_input_may_lie_in_the_memory_of_an_output(context: ctypes.c_void_p, memory: np.ndarray, shift: int) -> None:
    x, first, second = memory[shift : shift + COUNT], memory[:COUNT], memory[2 * COUNT : 3 * COUNT]
    x[:] = 1.0
    assert run(context, x, first, second) == ""
    np.testing.assert_array_equal(first, 1.0 + W)
    np.testing.assert_array_equal(second, 1.0 + W)


def test_outputs_may_not_share_memory(context: ctypes.c_void_p, memory: np.ndarray) -> None:
    x, first, second = memory[:COUNT], memory[COUNT : 2 * COUNT], memory[2 * COUNT - 1 : 3 * COUNT - 1]
    assert run(context, x, first, second) == "outputs 'first' and 'second' share memory"
    assert run(context, x, first, memory[2 * COUNT : 3 * COUNT]) == ""
