"""The arguments of the candidates of a workload: their buffers, their values and the outputs that are expected."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from kintune.core.stage_requests import KernelArgument
from kintune.measure.guarded_memory import GuardedMemory

__all__ = ["WEIGHT", "ArgumentCache", "Array", "BoundArguments", "KernelArguments"]

Array: TypeAlias = npt.NDArray[Any]

WEIGHT = 0.0625
"""Every element of a floating-point weight.

Constant, so that the form a candidate wants its weights in does not matter; a program that transforms them must turn
equal weights into equal values.  Positive, so that a variance or a scale may be one.  A power of two, so that every
type holds it.  Small, so that a sum over thousands of random activations is of the order of one: it neither overflows a
half nor drives a sigmoid into saturation, where wrong sums look right.
"""

_SPREAD = 0.5  # standard deviation of floating-point activations
_SEED = 20_011


class BoundArguments(NamedTuple):
    """The arguments of one kernel: tensors in call order, the weights among them, and the outputs as arrays."""

    arguments: tuple[Any, ...]
    weights: tuple[Any, ...]
    outputs: tuple[Array, ...]


class KernelArguments:
    """The buffers that all candidates of one workload share.

    Once the reference has run, `expected` holds its outputs and `reference_s` the seconds of its run.  Activations are
    drawn from a seed: N(0, 0.5) or, for integers and booleans, 0 and 1 (valid as indices).  Weights are `WEIGHT`
    throughout, or 1.  A packed weight of the same size uses the buffer of the plain one.
    """

    def __init__(self, buffer: Callable[[tuple[int, ...], str], GuardedMemory] = GuardedMemory.of) -> None:
        """`buffer` allocates the memory of an argument of a shape and type."""
        self._buffer = buffer
        self.expected: tuple[Array, ...] | None = None
        self.reference_s = 0.0
        self.scratch: tuple[Array, ...] = ()
        self._buffers: dict[tuple[int, str, int], GuardedMemory] = {}
        self._marks: dict[tuple[int, str, int], int] = {}
        self._bound: tuple[tuple[int, str, int], ...] = ()
        self._written: tuple[GuardedMemory, ...] = ()

    @property
    def nbytes(self) -> int:
        """The bytes of all its buffers."""
        expected = sum(array.nbytes for array in (*(self.expected or ()), *self.scratch))
        return expected + sum(buffer.nbytes for buffer in self._buffers.values())

    def bind(self, operands: Sequence[KernelArgument]) -> BoundArguments:
        """Returns buffers for a kernel with these operands; inputs are filled, outputs keep their old values."""
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
        self._bound, self._written = tuple(keys), tuple(written)
        return BoundArguments(tuple(arguments), tuple(weights), tuple(outputs))

    def poison(self, outputs: Sequence[Array]) -> None:
        """Fills outputs with wrong values, so that a kernel that does not write them is detected.

        Floats become NaN (0 where NaN is expected), integers the complement of what is expected.
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
        """Copies the bound kernel's outputs to the arrays that show them."""
        for buffer in self._written:
            buffer.pull()

    def damage(self, operands: Sequence[KernelArgument]) -> str:
        """Describes in one line what the bound kernel wrote to besides its outputs; empty when it did not."""
        for key, operand in zip(self._bound, operands, strict=True):
            buffer = self._buffers[key]
            buffer.pull()
            if operand.role == "output":
                if buffer.guards_fingerprint() != self._marks[key]:
                    return f"wrote out of bounds: beside argument {key[0]}"
            elif buffer.fingerprint() != self._marks[key]:
                return f"wrote to an input: argument {key[0]} or beside it"
        return ""

    def discard_buffers(self) -> None:
        """Frees all buffers, which a kernel may have written to."""
        self._buffers.clear()
        self._marks.clear()
        self._bound, self._written = (), ()


class ArgumentCache:
    """The arguments of the workloads used last, up to `budget` bytes; those of the current one are always kept."""

    def __init__(self, budget: int, buffer: Callable[[tuple[int, ...], str], GuardedMemory] = GuardedMemory.of) -> None:
        self._budget = budget
        self._buffer = buffer
        self._entries: OrderedDict[str, KernelArguments] = OrderedDict()

    def __getitem__(self, workload: str) -> KernelArguments:
        arguments = self._entries.setdefault(workload, KernelArguments(self._buffer))
        self._entries.move_to_end(workload)
        return arguments

    def __contains__(self, workload: object) -> bool:
        return workload in self._entries

    @property
    def nbytes(self) -> int:
        """The bytes of all entries."""
        return sum(arguments.nbytes for arguments in self._entries.values())

    def trim(self) -> None:
        """Removes the least recently used workloads until the rest fits the budget."""
        while self.nbytes > self._budget and len(self._entries) > 1:
            self._entries.popitem(last=False)
        last = next(iter(self._entries.values()), None)
        if last is not None and last.nbytes > self._budget:
            last.discard_buffers()

    def clear(self) -> None:
        """Removes all entries."""
        self._entries.clear()


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
