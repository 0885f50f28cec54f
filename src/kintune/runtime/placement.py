"""Placement: the device that a network runs on, and the copies of weights, inputs and outputs to and from it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import tvm

from kintune.core.model import Tensor
from kintune.errors import DeviceError, InputError, KintuneError
from kintune.hardware.cores import physical_cores
from kintune.hardware.cpu import host_machine
from kintune.runtime.cuda_codegen import load_runtime
from kintune.runtime.inputs import Array
from kintune.runtime.package import Manifest
from kintune.runtime.requirements import is_gpu_here
from kintune.runtime.tensors import array_of, as_argument, leaves_of

__all__ = ["BIND_VARIABLE", "THREADS_VARIABLE", "DevicePlacement", "make_placement", "prepare_threads"]

THREADS_VARIABLE = "TVM_NUM_THREADS"
"""Read by the runtime at its first parallel call; without it, it takes half of the processors it sees."""

BIND_VARIABLE = "TVM_BIND_THREADS"
"""`0` lets the operating system choose where threads run."""

_ONE_CORE_PER_THREAD = -2

Weights = Sequence[tvm.runtime.Tensor]


class DevicePlacement(Protocol):
    """The device that one network runs on, with its weights."""

    device: Any
    """The compiler's device."""

    def run(self, main: Any, inputs: Sequence[Tensor], arrays: Sequence[Array]) -> list[Array]:
        """Calls `main(inputs..., weights...)`; the outputs belong to the caller."""
        ...


def make_placement(manifest: Manifest, weights: Weights) -> DevicePlacement | None:
    """Returns the CPU of this machine, or its first GPU; None where the network only runs on other machines.

    Raises:
        DeviceError: the GPU cannot be used.
        OrderError: the CUDA toolkit is not installed.
    """
    if manifest.machine != host_machine():
        return None
    if manifest.capabilities.on_host:
        return _HostPlacement(weights)
    if not is_gpu_here(manifest):
        return None
    try:
        return _GpuPlacement(weights)
    except KintuneError:
        raise
    except Exception as error:  # the runtime's own kinds: no memory left on it, held by somebody else
        raise DeviceError(f"the GPU cannot be used: {str(error).strip().splitlines()[0]}") from error


def prepare_threads(threads: int) -> None:
    """Gives this process's pool `threads` threads, but no more than physical cores it may use, one on each.

    `TVM_NUM_THREADS` overrides the number, and so does a pool that has run already: it never grows.  The runtime by
    itself binds its threads to the machine's first processors, whether this process may use them or not, and to both
    halves of a core where those are neighbours.

    Raises:
        InputError: the variable holds no number of threads.
    """
    cores = physical_cores()
    named = os.environ.setdefault(THREADS_VARIABLE, str(max(1, min(threads, len(cores)))))
    if not (named.isdecimal() and len(named) < 5 and int(named) > 0):
        raise InputError(f"{THREADS_VARIABLE}={named[:20]!r} is no number of threads; leave it unset, or name one")
    count = int(named)
    if os.environ.get(BIND_VARIABLE) == "0" or count > len(cores):
        return
    before = os.sched_getaffinity(0)
    tvm.get_global_func("runtime.config_threadpool")(_ONE_CORE_PER_THREAD, count, [str(c) for c in cores[:count]])
    os.sched_setaffinity(0, before)  # the runtime changes that of the calling thread too


class _HostPlacement:
    """The CPU: arrays are passed without a copy where the runtime allows that."""

    def __init__(self, weights: Weights) -> None:
        self.device = tvm.cpu()
        self._weights = tuple(weights)
        self._addresses = {weight.data_ptr() for weight in weights}
        self._buffers: dict[int, tuple[tvm.runtime.Tensor, Array]] = {}

    def run(self, main: Any, inputs: Sequence[Tensor], arrays: Sequence[Array]) -> list[Array]:
        """Returns the network's own buffers, and copies of those that share memory with something else."""
        arguments = [
            self._argument(i, tensor, array) for i, (tensor, array) in enumerate(zip(inputs, arrays, strict=True))
        ]
        leaves = leaves_of(main(*arguments, *self._weights))
        taken = {argument.data_ptr() for argument in arguments} | self._addresses
        return [_own(leaf, taken) for leaf in leaves]

    def _argument(self, position: int, tensor: Tensor, array: Array) -> tvm.runtime.Tensor:
        """Returns a tensor over the array's memory where the runtime allows that, else a buffer with its values."""
        if (argument := as_argument(array)) is not None:
            return argument
        if position not in self._buffers:
            buffer = tvm.runtime.empty(array.shape, tensor.dtype)
            self._buffers[position] = buffer, array_of(buffer)
        buffer, view = self._buffers[position]
        view[...] = array
        return buffer


class _GpuPlacement:
    """The first GPU: weights are copied there once, inputs for each run."""

    def __init__(self, weights: Weights) -> None:
        load_runtime()
        self.device = tvm.cuda(0)
        self._weights = tuple(weight.copyto(self.device) for weight in weights)
        self._buffers: dict[int, tuple[tvm.runtime.Tensor, Array, tvm.runtime.Tensor]] = {}

    def run(self, main: Any, inputs: Sequence[Tensor], arrays: Sequence[Array]) -> list[Array]:
        """Returns copies of the outputs."""
        arguments = [
            self._argument(i, tensor, array) for i, (tensor, array) in enumerate(zip(inputs, arrays, strict=True))
        ]
        return [array_of(leaf.copyto(tvm.cpu())) for leaf in leaves_of(main(*arguments, *self._weights))]

    def _argument(self, position: int, tensor: Tensor, array: Array) -> tvm.runtime.Tensor:
        """Returns a buffer of the device with the array's values."""
        if position not in self._buffers:
            here = tvm.runtime.empty(array.shape, tensor.dtype)
            there = tvm.runtime.empty(array.shape, tensor.dtype, self.device)
            self._buffers[position] = here, array_of(here), there
        here, view, there = self._buffers[position]
        view[...] = array
        return here.copyto(there)


def _own(leaf: tvm.runtime.Tensor, taken: set[int]) -> Array:
    """Returns an output as an array, copied where it shares memory with an input, a weight or another output."""
    array = array_of(leaf)
    if leaf.data_ptr() in taken:
        return np.array(array)
    taken.add(leaf.data_ptr())
    return array
