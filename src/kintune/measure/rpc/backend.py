"""A board behind an RPC server as the place where candidates are run."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import tvm

from kintune.measure.guarded_memory import GUARD, GuardedMemory, numpy_dtype
from kintune.measure.rpc.session import RpcSession
from kintune.measure.rpc.timer import RemoteKernelTimer

__all__ = ["BoardBackend", "Sent"]

_CORE_BYTES_PER_S = 1e12


class Sent(GuardedMemory):
    """An array with a guard band behind it in the memory of a board, and the same again here, where it is looked at.

    What is written here is there after `push`; what was written there is here after `pull`.  A band before the array
    would need an argument that begins somewhere inside another one, and there is none over RPC.
    """

    def __init__(self, nbytes: int, device: Any) -> None:
        super().__init__(nbytes)
        self._sent = self._memory[GUARD:]
        self._there = tvm.runtime.empty((self._sent.size,), "uint8", device)

    @classmethod
    def to(cls, device: Any, shape: tuple[int, ...], dtype: str) -> Sent:
        """Memory of a device for an array of this shape and type."""
        return cls(math.prod(shape) * numpy_dtype(dtype).itemsize, device)

    def tensor(self, shape: tuple[int, ...], dtype: str) -> Any:
        """The memory of the board as a tensor, not copied."""
        return self._there._create_view(shape, dtype)

    def push(self) -> None:
        """Send array and guard band to the board."""
        self._there.copyfrom(self._sent)

    def pull(self) -> None:
        """Fetch array and guard band from the board."""
        np.copyto(self._sent, self._there.numpy())


class BoardBackend:
    """Implements `kintune.measure.backend.MeasurementBackend` over a session."""

    def __init__(self, session: RpcSession, threads: int) -> None:
        self.device = session.device
        self.loads_late = False
        self.stores_per_s = _CORE_BYTES_PER_S * threads
        self._session = session

    def stopwatch(self) -> RemoteKernelTimer:
        """One that reads the board's clock."""
        return RemoteKernelTimer(self.device)

    def load(self, library: bytes) -> Any:
        """The module of a shared library, on the board."""
        return self._session.load(library)

    def buffer(self, shape: tuple[int, ...], dtype: str) -> Sent:
        """Memory of the board."""
        return Sent.to(self.device, shape, dtype)

    def rouse(self) -> None:
        """Nothing: a board builds nothing between stages, and a stock server has no function for it."""

    def gather(self) -> None:
        """Nothing is known of where a board's threads are."""

    def finish(self) -> None:
        """Return when the board is done; raises what the runtime raises when it is gone."""
        self.device.sync()
