"""Runs an execution plan in Python on numpy memory, with kernels loaded through TVM: what the C runtime should do."""

from __future__ import annotations

import ctypes
import tempfile
from collections.abc import Sequence
from typing import Any

import numpy as np
import tvm
import tvm_ffi
from numpy.typing import NDArray

from kintune.compiler.graph.arena import place_in_a_row
from kintune.compiler.graph.assemble import PlannedProgram
from kintune.core.dtypes import numpy_dtype
from kintune.core.execution_plan import Branch, Copy, ExecutionPlan, Jump, KernelCall, PlannedTensor
from kintune.runtime.package import ALIGNMENT
from kintune.runtime.tensors import block_of

__all__ = ["PlanInterpreter", "load_kernels", "run_plan"]

_GARBAGE = 0xA5
"""What the arena and the outputs hold before a run."""


def run_plan(program: PlannedProgram, *inputs: NDArray[Any]) -> list[NDArray[Any]]:
    """The outputs of one run, and then the indices of its checks."""
    return PlanInterpreter(program).run(*inputs)


class PlanInterpreter:
    """A plan with its kernels and weights; `executed` has the numbers of the operations of the last run."""

    def __init__(self, program: PlannedProgram) -> None:
        self._plan = program.plan
        self._module = load_kernels(program.library)
        blocks = [block_of(weight) for weight in program.weights]
        row = place_in_a_row(block.data.nbytes for block in blocks)
        self._weights = _memory(row.nbytes)
        for block, offset in zip(blocks, row.offsets, strict=True):
            self._weights[offset : offset + block.data.nbytes] = block.data
        self.executed: list[int] = []

    def run(self, *inputs: NDArray[Any]) -> list[NDArray[Any]]:
        """Run once: one array for each input."""
        plan = self._plan
        kept = self._weights.copy()
        memories = [_copied(array) for array in inputs]
        outputs = [_memory(plan.tensors[number].nbytes) for number in plan.output_tensors]
        arena = _memory(plan.arena_bytes)
        bytes_of = [self._bytes(tensor, memories, outputs, arena) for tensor in plan.tensors]
        tensors = [_tensor(data, tensor) for data, tensor in zip(bytes_of, plan.tensors, strict=True)]
        self._execute(plan, bytes_of, tensors)
        assert np.array_equal(kept, self._weights)
        assert all(np.array_equal(_copied(array), memory) for array, memory in zip(inputs, memories, strict=True))
        return [
            bytes_of[number].view(numpy_dtype(plan.tensors[number].dtype)).reshape(plan.tensors[number].shape)
            for number in plan.output_tensors
        ]

    def _execute(self, plan: ExecutionPlan, bytes_of: Sequence[NDArray[np.uint8]], tensors: Sequence[Any]) -> None:
        self.executed = []
        at = 0
        while at < len(plan.operations):
            self.executed.append(at)
            match plan.operations[at]:
                case KernelCall(kernel, numbers):
                    self._module[kernel](*(tensors[number] for number in numbers))
                case Copy(source, target):
                    bytes_of[target][:] = bytes_of[source]
                case Branch(condition, otherwise):
                    size = numpy_dtype(plan.tensors[condition].dtype).itemsize
                    if not bytes_of[condition][:size].any():
                        at = otherwise
                        continue
                case Jump(target):
                    at = target
                    continue
            at += 1

    def _bytes(
        self,
        tensor: PlannedTensor,
        inputs: Sequence[NDArray[np.uint8]],
        outputs: Sequence[NDArray[np.uint8]],
        arena: NDArray[np.uint8],
    ) -> NDArray[np.uint8]:
        if tensor.place in ("input", "output"):
            return (inputs if tensor.place == "input" else outputs)[tensor.offset][: tensor.nbytes]
        memory = self._weights if tensor.place == "weights" else arena
        assert tensor.offset % ALIGNMENT == 0
        assert tensor.offset + tensor.nbytes <= memory.nbytes
        return memory[tensor.offset : tensor.offset + tensor.nbytes]


def load_kernels(library: bytes) -> Any:
    """The library, whose kernels report their errors to TVM."""
    with tempfile.NamedTemporaryFile(prefix="kintune-", suffix=".so") as file:
        file.write(library)
        file.flush()
        module = tvm_ffi.load_module(file.name, keep_module_alive=False)
        slot = ctypes.c_void_p.in_dll(ctypes.CDLL(file.name), "kintune_raise")
        slot.value = ctypes.cast(tvm_ffi.LIB.TVMFFIErrorSetRaisedFromCStrParts, ctypes.c_void_p).value
        return module


def _memory(nbytes: int) -> NDArray[np.uint8]:
    """Memory at a multiple of `ALIGNMENT`, full of garbage."""
    memory = np.full(nbytes + ALIGNMENT, _GARBAGE, np.uint8)
    start = -memory.ctypes.data % ALIGNMENT
    return memory[start : start + nbytes]


def _copied(array: NDArray[Any]) -> NDArray[np.uint8]:
    memory = _memory(array.nbytes)
    memory[:] = np.frombuffer(np.ascontiguousarray(array).tobytes(), np.uint8)
    return memory


def _tensor(data: NDArray[np.uint8], tensor: PlannedTensor) -> Any:
    if tensor.nbytes == 0:
        return tvm.runtime.empty(tensor.shape, tensor.dtype)
    return tvm.runtime.from_dlpack(data)._create_view(tensor.shape, tensor.dtype)
