"""A GPU as the place where candidates are run."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import tvm

from kintune.measure.cuda.pointer import part_of
from kintune.measure.guarded_memory import GUARD, GuardedMemory, numpy_dtype
from kintune.measure.timer import KernelTimer
from kintune.runtime.artifact import load_artifact

__all__ = ["GpuBackend", "Mirrored"]

_LEAST_SINK = 32 << 20
_STORES_PER_S = 5e13  # bytes; what on-chip memory takes is some multiple of the 10 TB/s that L2 caches reach


class Mirrored(GuardedMemory):
    """An array between two guard bands in the memory of a device, and the same again here, where it is looked at.

    What is written here is there after `push`; what was written there is here after `pull`.
    """

    def __init__(self, nbytes: int, device: Any) -> None:
        super().__init__(nbytes)
        self._there = tvm.runtime.empty((self._memory.size,), "uint8", device)
        self._argument = part_of(self._there, GUARD, nbytes)

    @classmethod
    def on(cls, device: Any, shape: tuple[int, ...], dtype: str) -> Mirrored:
        """Memory of a device for an array of this shape and type."""
        return cls(math.prod(shape) * numpy_dtype(dtype).itemsize, device)

    def tensor(self, shape: tuple[int, ...], dtype: str) -> Any:
        """The memory of the device as a tensor, not copied."""
        return self._argument._create_view(shape, dtype)

    def push(self) -> None:
        """Send array and guard bands to the device."""
        self._there.copyfrom(self._memory)

    def pull(self) -> None:
        """Fetch array and guard bands from the device."""
        np.copyto(self._memory, self._there.numpy())


class GpuBackend:
    """A GPU, as the compiler's runtime knows it."""

    def __init__(self, device: Any) -> None:
        self.device = device
        self.loads_late = True
        self.stores_per_s = _STORES_PER_S
        size = max(2 * int(self.device.l2_cache_size_bytes or 0), _LEAST_SINK)
        self._source = tvm.runtime.empty((size,), "uint8", self.device)
        self._sink = tvm.runtime.empty((size,), "uint8", self.device)

    @classmethod
    def first(cls) -> GpuBackend | None:
        """The first GPU that this process may use; None when there is none, or it does not answer."""
        device = tvm.cuda(0)
        return cls(device) if device.exist else None

    def load(self, artifact: bytes) -> Any:
        """Its module, in this process."""
        return load_artifact(artifact)

    def stopwatch(self) -> KernelTimer:
        """One that reads this process's clock."""
        return KernelTimer(self)

    def buffer(self, shape: tuple[int, ...], dtype: str) -> Mirrored:
        """Memory of the device."""
        return Mirrored.on(self.device, shape, dtype)

    def evict(self, *tensors: Any) -> None:
        """Send everything out of the second-level cache: more than it holds passes through it."""
        del tensors
        self._source.copyto(self._sink)
        self.finish()

    def sweep(self, tensors: Sequence[Any]) -> None:
        """The same: there is no cache between those of a multiprocessor, which no kernel outlives, and this one."""
        del tensors
        self.evict()

    def rouse(self) -> None:
        """Nothing: whether a GPU needs that has not been looked at."""

    def gather(self) -> None:
        """A GPU stays where it is."""

    def finish(self) -> None:
        """Return when all kernels are done; raises what the runtime raises when one of them failed."""
        self.device.sync()
