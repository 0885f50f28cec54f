"""Where candidates are run: the memory of their arguments, and what must be done around their runs."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any
from typing import Protocol as Shape

import tvm
import tvm_ffi

from kintune.core.measurement_protocol import MeasurementProtocol
from kintune.errors import DeviceError
from kintune.hardware.cores import pinned_to
from kintune.hardware.cpu import data_caches, inspect_machine
from kintune.measure.core_locality import CoreLocality, core_latency
from kintune.measure.evict import evictor
from kintune.measure.flush import sweeper
from kintune.measure.guarded_memory import GuardedMemory
from kintune.measure.timer import KernelTimer
from kintune.runtime.artifact import load_artifact

__all__ = ["BackendWatch", "HostBackend", "MeasurementBackend"]

_ONE_CORE_PER_THREAD = -2  # the runtime's kSpecifyOneCorePerThread

_CORE_BYTES_PER_S = 1e12

_ROUSING = 1 << 20  # bytes to a thread, where the size of its cache is not known
_ROUSED_S = 0.02


class BackendWatch(Shape):
    """What times kernels: `kintune.measure.timer.KernelTimer`, or one that reads another clock."""

    def run(
        self, module: Any, arguments: Sequence[Any], weights: Sequence[Any], protocol: MeasurementProtocol
    ) -> float:
        """Run a module's kernel, with operands as the protocol wants them; seconds that a run took."""
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
        """Microseconds of a run, one entry a repeat, of a kernel that has already run once, for `first_us`."""
        ...


class MeasurementBackend(Shape):
    """What a `Runner` needs of the hardware that it runs candidates on."""

    device: Any
    """The compiler's device."""

    stores_per_s: float
    """No program here stores more bytes a second."""

    loads_late: bool
    """Whether a program is only loaded when it is run for the first time, so that this run says nothing."""

    def buffer(self, shape: tuple[int, ...], dtype: str) -> GuardedMemory:
        """Memory for one argument."""
        ...

    def load(self, artifact: bytes) -> Any:
        """The runtime module of a shared library in bytes; it is unloaded with the last reference to it.

        Raises whatever the runtime raises when that cannot be loaded.
        """
        ...

    def stopwatch(self) -> BackendWatch:
        """What times kernels here; one at a time."""
        ...

    def rouse(self) -> None:
        """Keep all of it busy until it runs as it does later: a stage begins after an idle time."""
        ...

    def gather(self) -> None:
        """Wait a little for what has just been moved to where it is slower, if that is known."""
        ...

    def finish(self) -> None:
        """Return when everything that was started here is done.

        Raises whatever the runtime raises when that went wrong.
        """
        ...


class HostBackend:
    """This process's own `cores`, one thread on each."""

    def __init__(self, cores: Sequence[int], own_cache: int | None = None) -> None:
        """`own_cache` is what the second-level cache of a core holds, in bytes; None: this machine tells."""
        self._cores = tuple(cores)
        self.device = tvm.cpu()
        self.loads_late = False
        self.stores_per_s = _CORE_BYTES_PER_S * len(cores)  # two 64-byte stores a cycle at 5 GHz are 640 GB/s
        self._evict = evictor(len(cores))
        self._own_cache = data_caches(inspect_machine())[1] if own_cache is None else own_cache
        self._gathering: CoreLocality | None = None
        configure = tvm_ffi.get_global_func("runtime.config_threadpool")
        with pinned_to(cores[0]):  # the runtime gives the main thread all cores; this gives it back what it had
            configure(_ONE_CORE_PER_THREAD, len(cores), [str(core) for core in cores])

    def load(self, artifact: bytes) -> Any:
        """Its module, in this process."""
        return load_artifact(artifact)

    def stopwatch(self) -> KernelTimer:
        """One that reads this process's clock."""
        return KernelTimer(self)

    def buffer(self, shape: tuple[int, ...], dtype: str) -> GuardedMemory:
        """Memory in pages of its own."""
        return GuardedMemory.of(shape, dtype)

    def evict(self, *tensors: Any) -> None:
        """Send these tensors out of all caches."""
        self._evict(*tensors)

    def sweep(self, tensors: Sequence[Any]) -> None:
        """Send everything but these tensors out of the cores' own caches, as far as the one that they share."""
        if not self._own_cache:
            raise DeviceError("cool operands: this machine does not say what its second-level caches hold")
        sweeper(len(self._cores), self._own_cache)(tensors)

    def rouse(self) -> None:
        """Read memory with all threads for a while.

        After a second in which others were building, the first kernels often take a tenth longer than the same ones
        take later, and up to half.  Neither waiting helps nor work on one of the cores.
        """
        read = sweeper(len(self._cores), self._own_cache or _ROUSING)
        began = time.perf_counter()
        with pinned_to(self._cores[0]):
            while time.perf_counter() - began < _ROUSED_S:
                read(())

    def gather(self) -> None:
        """Wait for cores that the host of a virtual machine has moved apart (`measure.gathering`)."""
        if len(self._cores) == 1:
            return
        if self._gathering is None:
            self._gathering = CoreLocality(core_latency(len(self._cores), self._own_cache).ratio)
        with pinned_to(self._cores[0]):
            self._gathering.gather()

    def finish(self) -> None:
        """A call returns when it is done."""
