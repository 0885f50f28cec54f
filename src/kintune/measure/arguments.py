"""The arguments with which the candidates of one workload are run, and what they should make of them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from kintune.core.stage_requests import Operand
from kintune.measure.guarded_memory import GuardedMemory

__all__ = ["WEIGHT", "ArgumentCache", "Array", "Clamped", "KernelArguments"]

Array: TypeAlias = npt.NDArray[Any]

WEIGHT = 0.0625
"""Every element of a floating-point weight.

Constant, so that the layout a candidate wants its weights in does not matter.  Positive, so that a variance or a scale
may be one.  A power of two, so that every type holds it.  Small, so that a sum over thousands of random activations is
of the order of one: it neither overflows a half nor drives a sigmoid into saturation, where wrong sums look right.
"""

_SPREAD = 0.5  # standard deviation of floating-point activations
_SEED = 20_011


class Clamped(NamedTuple):
    """A kernel's arguments, ready to run: tensors in call order, weights among them, outputs as arrays (not copied)."""

    arguments: tuple[Any, ...]
    weights: tuple[Any, ...]
    outputs: tuple[Array, ...]


class KernelArguments:
    """Buffers for the candidates of one workload; once the reference has run, expected outputs and its seconds.

    Activations are drawn from a seed, N(0, 0.5) or, for integers and booleans, 0 and 1 (valid as indices); weights are
    `WEIGHT` throughout, or 1.  Buffers are kept from one candidate to the next; a weight that is packed takes those
    of its size.
    """

    def __init__(self, buffer: Callable[[tuple[int, ...], str], GuardedMemory] = GuardedMemory.of) -> None:
        """`buffer` makes memory for an argument of some shape and type."""
        self._buffer = buffer
        self.expected: tuple[Array, ...] | None = None
        self.reference_s = 0.0
        self.scratch: tuple[Array, ...] = ()
        self._buffers: dict[tuple[int, str, int], GuardedMemory] = {}
        self._marks: dict[tuple[int, str, int], int] = {}
        self._clamped: tuple[tuple[int, str, int], ...] = ()
        self._written: tuple[GuardedMemory, ...] = ()

    @property
    def nbytes(self) -> int:
        """The memory it holds."""
        expected = sum(array.nbytes for array in (*(self.expected or ()), *self.scratch))
        return expected + sum(buffer.nbytes for buffer in self._buffers.values())

    def clamp(self, operands: Sequence[Operand]) -> Clamped:
        """Buffers for a kernel with these operands; inputs are filled, outputs hold whatever was there."""
        keys = []
        arguments, weights, outputs, written = [], [], [], []
        for position, operand in enumerate(operands):
            key = (position, operand.dtype, int(np.prod(operand.shape, dtype=np.int64)))
            buffer = self._buffers.get(key)
            if buffer is None:
                buffer = self._buffers[key] = self._buffer(operand.shape, operand.dtype)
                if operand.role == "output":
                    self._marks[key] = buffer.guards_fingerprint()
                else:
                    _fill(buffer.array(operand.shape, operand.dtype), operand.role, position)
                    self._marks[key] = buffer.fingerprint()
                buffer.push()
            keys.append(key)
            arguments.append(buffer.tensor(operand.shape, operand.dtype))
            if operand.role == "weight":
                weights.append(arguments[-1])
            elif operand.role == "output":
                outputs.append(buffer.array(operand.shape, operand.dtype))
                written.append(buffer)
        self._clamped, self._written = tuple(keys), tuple(written)
        return Clamped(tuple(arguments), tuple(weights), tuple(outputs))

    def poison(self, outputs: Sequence[Array]) -> None:
        """Fill outputs with what no right program leaves there, so that one that writes nothing is found out.

        Floats become NaN (0 where NaN is right), integers the complement of what is expected.
        """
        expected = self.expected or (None,) * len(outputs)
        for output, right in zip(outputs, expected, strict=True):
            if _is_float(output.dtype):
                output[...] = np.nan
                if right is not None:
                    np.copyto(output, 0, where=np.isnan(right))
            else:
                output[...] = np.invert(right) if right is not None else 0
        for buffer in self._written:
            buffer.push()

    def collect(self) -> None:
        """Let the clamped kernel's outputs show what it has written."""
        for buffer in self._written:
            buffer.pull()

    def damage(self, operands: Sequence[Operand]) -> str:
        """What the clamped kernel wrote to that is not its own, as one line; empty when it kept to its outputs."""
        for key, operand in zip(self._clamped, operands, strict=True):
            buffer = self._buffers[key]
            buffer.pull()
            if operand.role == "output":
                if buffer.guards_fingerprint() != self._marks[key]:
                    return f"wrote out of bounds: beside argument {key[0]}"
            elif buffer.fingerprint() != self._marks[key]:
                return f"wrote to an input: argument {key[0]} or beside it"
        return ""

    def discard_buffers(self) -> None:
        """Forget all buffers: a kernel may have written to them."""
        self._buffers.clear()
        self._marks.clear()
        self._clamped, self._written = (), ()


class ArgumentCache:
    """The workbenches of the workloads used last, as many as `budget` bytes hold; the current one always."""

    def __init__(self, budget: int, buffer: Callable[[tuple[int, ...], str], GuardedMemory] = GuardedMemory.of) -> None:
        self._budget = budget
        self._buffer = buffer
        self._benches: OrderedDict[str, KernelArguments] = OrderedDict()

    def __getitem__(self, workload: str) -> KernelArguments:
        bench = self._benches.setdefault(workload, KernelArguments(self._buffer))
        self._benches.move_to_end(workload)
        return bench

    def __contains__(self, workload: object) -> bool:
        return workload in self._benches

    @property
    def nbytes(self) -> int:
        """The memory they hold together."""
        return sum(bench.nbytes for bench in self._benches.values())

    def trim(self) -> None:
        """Let go of the workloads used longest ago until the rest is within the budget."""
        while self.nbytes > self._budget and len(self._benches) > 1:
            self._benches.popitem(last=False)
        last = next(iter(self._benches.values()), None)
        if last is not None and last.nbytes > self._budget:
            last.discard_buffers()

    def clear(self) -> None:
        """Let go of all."""
        self._benches.clear()


def _fill(array: Array, role: str, position: int) -> None:
    if role == "weight":
        array[...] = WEIGHT if _is_float(array.dtype) else 1
        return
    random = np.random.default_rng([_SEED, position, *array.shape])
    if _is_float(array.dtype):
        array[...] = (random.standard_normal(array.shape, np.float32) * np.float32(_SPREAD)).astype(array.dtype)
    else:
        array[...] = random.integers(0, 2, array.shape)


def _is_float(dtype: np.dtype[Any]) -> bool:
    return dtype.kind not in "biu"  # bfloat16 and the 8-bit floats have no kind of their own
