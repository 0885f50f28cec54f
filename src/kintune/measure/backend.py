"""Measurement backends: the hardware that candidates run on, with the memory, loading and timing that it needs."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, Protocol

import tvm
import tvm_ffi

from kintune.core.measurement_protocol import MeasurementProtocol
from kintune.errors import DeviceError
from kintune.hardware.cores import pinned_to
from kintune.hardware.cpu import data_caches, inspect_machine
from kintune.measure.core_locality import CoreLocality, core_latency
from kintune.measure.flush import last_level_flusher, memory_flusher
from kintune.measure.guarded_memory import GuardedMemory
from kintune.measure.timer import KernelTimer
from kintune.runtime.artifact import load_artifact
from kintune.runtime.pool_denormals import set_pool_denormals
from kintune_runtime.denormals import Flushing

__all__ = ["BackendTimer", "HostBackend", "MeasurementBackend"]

_ONE_CORE_PER_THREAD = -2  # the runtime's kSpecifyOneCorePerThread
_CORE_BYTES_PER_S = 1e12
_WARM_UP_BYTES = 1 << 20  # a thread, where the size of its cache is not known
_WARM_UP_S = 0.02


class BackendTimer(Protocol):
    """Times kernels: `kintune.measure.timer.KernelTimer`, or a timer that reads another clock."""

    def run(
        self, module: Any, arguments: Sequence[Any], weights: Sequence[Any], protocol: MeasurementProtocol
    ) -> float:
        """Runs a module's kernel once, its operands as the protocol asks, and returns the seconds."""
        ...

    def times_us(
        self,
        module: Any,
        arguments: Sequence[Any],
        weights: Sequence[Any],
        protocol: MeasurementProtocol,
        slow_us: float,
        first_us: float,
    ) -> tuple[float, ...]:
        """Returns microseconds, one entry a repeat, of a kernel that has already run once, for `first_us`."""
        ...


class MeasurementBackend(Protocol):
    """What a `Runner` needs of the hardware that candidates run on."""

    device: Any
    """The compiler's device."""

    stores_per_s: float
    """An upper bound of the bytes that a program stores a second."""

    loads_late: bool
    """Whether the first run of a program also loads it, so that its time says nothing of the kernel."""

    def buffer(self, shape: tuple[int, ...], dtype: str) -> GuardedMemory:
        """Allocates memory for one argument."""
        ...

    def load(self, artifact: bytes) -> Any:
        """Loads a shared library from bytes; the module is unloaded with the last reference to it.

        Raises:
            Exception: of the runtime's own kinds, when it cannot be loaded.
        """
        ...

    def timer(self) -> BackendTimer:
        """Returns the timer of this backend, of which only one may be in use."""
        ...

    def set_denormals(self, flush: bool) -> None:
        """Makes the threads that the backend starts here flush denormal numbers to zero, or keep them."""
        ...

    def warm_up(self) -> None:
        """Keeps the hardware busy until it runs at its usual speed: a stage begins after an idle time."""
        ...

    def wait_for_locality(self) -> None:
        """Waits briefly for cores that were moved apart to be close again, where the backend can tell."""
        ...

    def finish(self) -> None:
        """Waits for everything that was started here.

        Raises:
            Exception: of the runtime's own kinds, when something of it failed.
        """
        ...


class HostBackend:
    """Runs kernels on `cores` of this machine, one thread on each."""

    def __init__(self, cores: Sequence[int], own_cache: int | None = None) -> None:
        """`own_cache` is the size of a core's second-level cache in bytes; None: found out from this machine."""
        self._cores = tuple(cores)
        self.device = tvm.cpu()
        self.loads_late = False
        self.stores_per_s = _CORE_BYTES_PER_S * len(cores)  # two 64-byte stores a cycle at 5 GHz are 640 GB/s
        self._memory_flush = memory_flusher(len(cores))
        self._own_cache = data_caches(inspect_machine())[1] if own_cache is None else own_cache
        self._locality: CoreLocality | None = None
        configure = tvm_ffi.get_global_func("runtime.config_threadpool")
        with pinned_to(cores[0]):  # `configure` lets the main thread run on all cores; leaving this block undoes that
            configure(_ONE_CORE_PER_THREAD, len(cores), [str(core) for core in cores])

    def load(self, artifact: bytes) -> Any:
        """Loads a shared library into this process."""
        return load_artifact(artifact)

    def timer(self) -> KernelTimer:
        """Returns a timer that reads this process's clock."""
        return KernelTimer(self)

    def buffer(self, shape: tuple[int, ...], dtype: str) -> GuardedMemory:
        """Allocates memory in pages of its own."""
        return GuardedMemory.of(shape, dtype)

    def flush_to_memory(self, *tensors: Any) -> None:
        """Flushes these tensors from all caches."""
        self._memory_flush(*tensors)

    def flush_to_last_level(self, tensors: Sequence[Any]) -> None:
        """Flushes everything but these tensors from the cores' own caches, to the last-level cache that they share.

        Raises:
            DeviceError: the sizes of this machine's caches are not known.
        """
        if not self._own_cache:
            raise DeviceError("cool operands: this machine does not say what its second-level caches hold")
        last_level_flusher(len(self._cores), self._own_cache)(tensors)

    def set_denormals(self, flush: bool) -> None:
        """Sets all threads of the pool."""
        with pinned_to(self._cores[0]), Flushing(flush):
            set_pool_denormals(flush)

    def warm_up(self) -> None:
        """Reads memory with all threads for 20 ms.

        After a second of idle time the first kernels often take a tenth longer than the same ones take later, and up to
        half.  Waiting does not help, and neither does work on only one of the cores.
        """
        read = last_level_flusher(len(self._cores), self._own_cache or _WARM_UP_BYTES)
        began = time.perf_counter()
        with pinned_to(self._cores[0]):
            while time.perf_counter() - began < _WARM_UP_S:
                read(())

    def wait_for_locality(self) -> None:
        """Waits for cores that the host of a virtual machine has moved apart (see `CoreLocality`)."""
        if len(self._cores) == 1:
            return
        if self._locality is None:
            self._locality = CoreLocality(core_latency(len(self._cores), self._own_cache).ratio)
        with pinned_to(self._cores[0]):
            self._locality.wait()

    def finish(self) -> None:
        """Does nothing: a call returns when it is done."""
