"""The measurement backend of a board behind an RPC server."""

from __future__ import annotations

from typing import Any

from kintune.measure.guarded_memory import DeviceMemory, GuardedMemory
from kintune.measure.rpc.session import RpcSession
from kintune.measure.rpc.timer import RemoteKernelTimer

__all__ = ["BoardBackend", "BoardMemory"]

_CORE_BYTES_PER_S = 1e12


class BoardMemory(DeviceMemory):
    """Guarded memory of a board: over RPC no argument can begin inside another tensor, so it has no front guard."""

    def __init__(self, nbytes: int, device: Any) -> None:
        super().__init__(nbytes, device, has_front_guard=False)


class BoardBackend:
    """Implements `kintune.measure.backend.MeasurementBackend` over an RPC session."""

    def __init__(self, session: RpcSession, threads: int) -> None:
        self.device = session.device
        self.loads_late = False
        self.stores_per_s = _CORE_BYTES_PER_S * threads
        self._session = session

    def timer(self) -> RemoteKernelTimer:
        """Returns a timer that reads the board's clock."""
        return RemoteKernelTimer(self.device)

    def load(self, library: bytes) -> Any:
        """Loads a shared library on the board."""
        return self._session.load(library)

    def buffer(self, shape: tuple[int, ...], dtype: str) -> GuardedMemory:
        """Allocates memory of the board."""
        return BoardMemory.of(shape, dtype, self.device)

    def set_denormals(self, flush: bool) -> None:
        """Does nothing: a stock server has no function for it, and operands are drawn so that they matter little."""

    def warm_up(self) -> None:
        """Does nothing: a board is not used for building between stages, and a stock server has no function for it."""

    def wait_for_locality(self) -> None:
        """Does nothing: the cores of a board's threads are not known."""

    def finish(self) -> None:
        """Waits for the board.

        Raises:
            Exception: of the runtime's own kinds, when the board is gone.
        """
        self.device.sync()
