"""The measurement backend of a GPU."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tvm

from kintune.measure.cuda.pointer import part_of
from kintune.measure.guarded_memory import GUARD, DeviceMemory, GuardedMemory
from kintune.measure.timer import KernelTimer
from kintune.runtime.artifact import load_artifact

__all__ = ["GpuBackend", "GpuMemory"]

_LEAST_SINK = 32 << 20
_STORES_PER_S = 5e13  # bytes; what on-chip memory takes is some multiple of the 10 TB/s that L2 caches reach


class GpuMemory(DeviceMemory):
    """Guarded memory of a GPU."""

    def __init__(self, nbytes: int, device: Any) -> None:
        super().__init__(nbytes, device)
        self._argument = part_of(self._on_device, GUARD, nbytes)


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
        """Returns the first GPU that this process may use; None when there is none, or it does not answer."""
        device = tvm.cuda(0)
        return cls(device) if device.exist else None

    def load(self, artifact: bytes) -> Any:
        """Loads a shared library into this process."""
        return load_artifact(artifact)

    def timer(self) -> KernelTimer:
        """Returns a timer that reads this process's clock."""
        return KernelTimer(self)

    def buffer(self, shape: tuple[int, ...], dtype: str) -> GuardedMemory:
        """Allocates memory of the GPU."""
        return GpuMemory.of(shape, dtype, self.device)

    def flush_to_memory(self, *tensors: Any) -> None:
        """Flushes everything from the second-level cache, by copying more than it holds."""
        del tensors
        self._source.copyto(self._sink)
        self.finish()

    def flush_to_last_level(self, tensors: Sequence[Any]) -> None:
        """Does the same: the caches of the multiprocessors are flushed after every kernel anyway."""
        del tensors
        self.flush_to_memory()

    def set_denormals(self, flush: bool) -> None:
        """Does nothing: a GPU computes with denormal numbers at full speed."""

    def warm_up(self) -> None:
        """Does nothing: no effect of idle times on a GPU is known."""

    def wait_for_locality(self) -> None:
        """Does nothing: a GPU's multiprocessors are not moved."""

    def finish(self) -> None:
        """Waits for all kernels.

        Raises:
            Exception: of the runtime's own kinds, when one of them failed.
        """
        self.device.sync()
