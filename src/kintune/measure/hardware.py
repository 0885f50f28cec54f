"""The hardware of a device worker: a CPU's cores or a GPU, with its backend, peak and reference kernel."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from kintune.core.device import Machine, NarrowSpeed, Peak
from kintune.hardware.cores import pinned_to
from kintune.hardware.cpu import data_caches, last_level_bytes
from kintune.measure.backend import HostBackend, MeasurementBackend

__all__ = ["Hardware", "gpu_hardware", "host_hardware"]

_USABLE_SHARE = 0.5
"""The share of the last-level cache that a network may fill: other processes and page conflicts use the rest."""


class Hardware(NamedTuple):
    """A device: its `model`, as it names itself, and the `backend` that candidates run on.

    `peak` measures its peak; `reference_kernel` compiles its reference kernel and returns what times it in
    microseconds.  `cool_bytes` stay in its last-level cache from one inference to the next, as in `DeviceDescription`.
    `narrow` measures its speeds with shorter numbers.
    """

    model: str
    backend: MeasurementBackend
    peak: Callable[[], Peak]
    reference_kernel: Callable[[], Callable[[], float]]
    cool_bytes: int = 0
    narrow: Callable[[], tuple[NarrowSpeed, ...]] = tuple


def host_hardware(target: str, cores: Sequence[int], machine: Machine) -> Hardware:
    """Returns `cores` of this machine as hardware for programs of a canonical target (JSON)."""
    from kintune.measure.narrow import measure_narrow
    from kintune.measure.peak import host_reference_kernel, measure_peak

    largest_cache = max((cache.size for cache in machine.caches), default=0)
    all_caches = max(largest_cache, last_level_bytes(cores))

    def peak() -> Peak:
        with pinned_to(cores[0]):  # where the runtime's other threads are not
            return measure_peak(target, len(cores), all_caches)

    def narrow() -> tuple[NarrowSpeed, ...]:
        with pinned_to(cores[0]):
            return measure_narrow(target)

    def reference_kernel() -> Callable[[], float]:
        with pinned_to(cores[0]):
            kernel = host_reference_kernel(target, len(cores))

        def microseconds() -> float:
            with pinned_to(cores[0]):
                return kernel.microseconds()

        return microseconds

    _, own_cache, last_cache = data_caches(machine)
    cool_bytes = int(_USABLE_SHARE * last_cache) if own_cache else 0
    return Hardware(machine.cpu, HostBackend(cores, own_cache), peak, reference_kernel, cool_bytes, narrow)


def gpu_hardware(target: str) -> Hardware:
    """Returns the first GPU that this process may use as hardware for programs of a canonical target (JSON).

    Raises:
        OrderError: a library of the CUDA toolkit is missing.
        TargetError: no GPU answers.
    """
    from kintune.errors import TargetError
    from kintune.measure.cuda.backend import GpuBackend
    from kintune.measure.cuda.peak import gpu_reference_kernel, measure_gpu_peak
    from kintune.runtime.cuda_codegen import load_runtime

    load_runtime()
    try:
        backend = GpuBackend.first()
    except Exception as error:  # the runtime's own kinds: no memory left on it, held by somebody else
        raise TargetError(f"target 'cuda': the GPU cannot be used: {str(error).strip().splitlines()[0]}") from error
    if backend is None:
        raise TargetError(
            "target 'cuda': no GPU answers; it needs a driver for CUDA 13 (580 or later), see `nvidia-smi`"
        )
    return Hardware(
        str(backend.device.device_name),
        backend,
        lambda: measure_gpu_peak(target, backend),
        lambda: gpu_reference_kernel(target, backend).microseconds,
    )
