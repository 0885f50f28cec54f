"""A compiled network that can be run, timed, saved and opened again elsewhere.

The network's function is `main(inputs..., weights...)`; the weights are those that were packed when it was built.  See
`kintune.graph.package` for the file.
"""

from __future__ import annotations

import datetime
import json
import math
import os
import tempfile
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import tvm

import kintune
from kintune.errors import BuildError, InputError, KintuneError, OrderError
from kintune.graph.evaluation import Evaluation
from kintune.graph.inputs import Array, arrange_inputs, draw_inputs, numpy_dtype
from kintune.graph.instruction_set import host_extensions, host_machine
from kintune.graph.package import ALIGNMENT, Block, Manifest, Package, write_package
from kintune.graph.threads import prepare_threads
from kintune.job.payloads import Tensor
from kintune.measure.linker import linking_for
from kintune.measure.target import architecture_of, instruction_set

__all__ = ["Executable", "Inputs", "describe_build"]

Inputs: TypeAlias = "Mapping[str, npt.ArrayLike] | npt.ArrayLike"

_PLAIN = "fiub"  # the kinds of dtypes that numpy itself knows


def describe_build(
    *,
    model_name: str,
    model_digest: str,
    target: str,
    threads: int,
    inputs: Iterable[Tensor],
    outputs: Iterable[Tensor],
    chosen: Mapping[str, str],
) -> Manifest:
    """The manifest of a network that is being built now, by this Kintune and this compiler.

    `target` is a canonical target (see `kintune.measure.target`); the instruction set that programs built for it may
    use is found out here.
    """
    return Manifest(
        model_name=model_name,
        model_digest=model_digest,
        target=target,
        machine=architecture_of(tvm.target.Target(json.loads(target))),
        isa=instruction_set(target),
        threads=threads,
        inputs=tuple(inputs),
        outputs=tuple(outputs),
        chosen=dict(chosen),
        created=datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        kintune=kintune.__version__,
        tvm=str(tvm.__version__),
    )


class Executable:
    """A network ready to run on this machine's CPU.

    Made by `create` or `open`.  Its first run gives the process the threads that the network was tuned for, but no more
    than physical cores, unless `TVM_NUM_THREADS` says otherwise.  An instance may be shared between threads; its runs
    then take turns.
    """

    def __init__(self, manifest: Manifest, library: bytes, weights: Sequence[tvm.runtime.Tensor]) -> None:
        """Load the program; `library` is the shared library, `weights` the arguments of `main` after the inputs.

        Raises KintuneError when the library cannot be loaded.
        """
        self.manifest = manifest
        self._library = library
        self._weights = tuple(weights)
        self._weight_addresses = {weight.data_ptr() for weight in weights}
        self._buffers: dict[int, tuple[tvm.runtime.Tensor, Array]] = {}
        self._main = _load(library) if manifest.machine == host_machine() else None
        self._running = threading.Lock()
        self._has_run = False

    @classmethod
    def create(
        cls, program: tvm.runtime.Executable, weights: Sequence[tvm.runtime.Tensor], manifest: Manifest
    ) -> Executable:
        """Link what `relax.build` made; `weights` follow the inputs in the parameters of its `main`.

        What is for machines of another architecture can be saved here, and run there.

        Raises BuildError when it cannot be linked, and OrderError when there is nothing to link it with.
        """
        with tempfile.TemporaryDirectory(prefix="kintune-") as directory:
            path = Path(directory, "lib.so")
            try:
                program.export_library(str(path), fcompile=linking_for(manifest.machine))
            except (RuntimeError, OSError, ValueError) as error:
                first = str(error).strip().partition("\n")[0]
                raise BuildError(f"{manifest.model_name}: cannot be linked: {first}") from error
            library = path.read_bytes()
        return cls(manifest, library, weights)

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> Executable:
        """Open a saved executable.

        It holds machine code that will run with your rights: open only what you trust.  Raises InputError when the
        file is missing, damaged or no Kintune executable, or made for another version or CPU.
        """
        package = Package.open(path)
        _check_runnable(path, package.manifest)
        try:
            return cls(package.manifest, package.library, [_tensor(block) for block in package.weights])
        except KintuneError as error:
            raise InputError(f"{path}: {error}") from error

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the executable to one file, whole or not at all; InputError when it cannot be written there."""
        write_package(path, self.manifest, self._library, [_block(weight) for weight in self._weights])

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        """The inputs in order."""
        return self.manifest.inputs

    @property
    def outputs(self) -> tuple[Tensor, ...]:
        """The outputs in order."""
        return self.manifest.outputs

    def __repr__(self) -> str:
        inputs = ", ".join(f"{t.name}: {t.dtype}{list(t.shape)}" for t in self.inputs)
        return f"Executable({self.manifest.model_name!r}, {inputs})"

    def run(self, *inputs: Inputs) -> dict[str, Array]:
        """Run once: arrays by input name, or one positional array an input.

        The outputs are arrays by name that belong to the caller.  Raises InputError when an input is missing, unknown,
        or of another dtype or shape than the model's.
        """
        if self._main is None:
            raise OrderError(
                f"{self.manifest.model_name} is built for {self.manifest.machine}: save it, and run it there"
            )
        arrays = arrange_inputs(self.inputs, inputs)
        with self._running:
            if not self._has_run:
                prepare_threads(self.manifest.threads)
                self._has_run = True
            arguments = [self._argument(position, array) for position, array in enumerate(arrays)]
            leaves = _leaves(self._main(*arguments, *self._weights))
            taken = {argument.data_ptr() for argument in arguments} | self._weight_addresses
            return {tensor.name: _own(leaf, taken) for tensor, leaf in zip(self.outputs, leaves, strict=True)}

    def evaluate(
        self, *inputs: Inputs, repeats: int = 50, warmups: int = 3, max_seconds: float = 10.0, seed: int = 0
    ) -> Evaluation:
        """Time `run`, arrays in to arrays out: `warmups` untimed runs, then `repeats` timed ones.

        Ends early once `max_seconds` have passed, after at least one timed run.  Without inputs they are drawn from
        `seed`.  Raises InputError as `run` does.
        """
        if repeats < 1 or warmups < 0:
            raise InputError(f"evaluate needs at least 1 repeat and no negative warmups, got {repeats} and {warmups}")
        given: tuple[Any, ...] = inputs or (draw_inputs(self.inputs, seed),)
        deadline = time.perf_counter() + max_seconds
        for _ in range(warmups):
            self.run(*given)
            if time.perf_counter() > deadline:
                break
        times: list[float] = []
        while not times or (len(times) < repeats and time.perf_counter() < deadline):
            start = time.perf_counter()
            self.run(*given)
            times.append((time.perf_counter() - start) * 1e3)
        return Evaluation.of(times)

    def _argument(self, position: int, array: Array) -> tvm.runtime.Tensor:
        """A tensor over the array's own memory where the runtime allows that, else a buffer of ours with its values."""
        if array.dtype.kind in _PLAIN and array.flags.carray and _address(array) % ALIGNMENT == 0:
            return tvm.runtime.from_dlpack(array)
        if position not in self._buffers:
            buffer = tvm.runtime.empty(array.shape, self.inputs[position].dtype)
            self._buffers[position] = buffer, _array(buffer)
        buffer, view = self._buffers[position]
        view[...] = array
        return buffer


def _check_runnable(path: str | os.PathLike[str], manifest: Manifest) -> None:
    """Raise InputError unless this compiler's runtime and this CPU can run the program."""
    if manifest.tvm != tvm.__version__:
        raise InputError(
            f"{path}: built with TVM {manifest.tvm}, and TVM {tvm.__version__} is installed; build it again, or install"
            f" apache-tvm=={manifest.tvm}"
        )
    if manifest.machine != host_machine():
        raise InputError(f"{path}: built for {manifest.machine}, this machine is {host_machine()}; build it here")
    here = host_extensions()
    lacking = [] if here is None else [name for name in manifest.isa if name not in here]
    if lacking:
        raise InputError(
            f"{path}: built for a CPU with {', '.join(lacking)}, which this one lacks; build it for this machine"
        )


def _load(library: bytes) -> Any:
    """The function `main` of a library, on the CPU."""
    with tempfile.TemporaryDirectory(prefix="kintune-") as directory:
        path = Path(directory, "lib.so")
        path.write_bytes(library)
        try:
            module = tvm.runtime.load_module(str(path))
            return tvm.runtime.vm.VirtualMachine(module, tvm.cpu())["main"]
        except Exception as error:  # the runtime raises many types for a library that it cannot load
            reason = str(error).strip().partition("\n")[0]
            raise KintuneError(f"the program cannot be loaded: {type(error).__name__}: {reason}") from error


def _own(leaf: tvm.runtime.Tensor, taken: set[int]) -> Array:
    """An output as an array of its own: copied where it shares memory with an input, a weight or another output."""
    array = _array(leaf)
    if leaf.data_ptr() in taken:
        return np.array(array)
    taken.add(leaf.data_ptr())
    return array


def _tensor(block: Block) -> tvm.runtime.Tensor:
    """A tensor over the block's own memory, or over a copy if that is not aligned."""
    data = block.data
    flat = tvm.runtime.from_dlpack(data) if _address(data) % ALIGNMENT == 0 else tvm.runtime.tensor(data)
    return flat._create_view(block.shape, block.dtype)


def _block(tensor: tvm.runtime.Tensor) -> Block:
    return Block(tuple(int(extent) for extent in tensor.shape), str(tensor.dtype), _bytes(tensor))


def _array(tensor: tvm.runtime.Tensor) -> Array:
    """The tensor's own memory as an array."""
    dtype = numpy_dtype(str(tensor.dtype))
    array: Array = np.from_dlpack(tensor) if dtype.kind in _PLAIN else _bytes(tensor).view(dtype)
    return array.reshape(tuple(tensor.shape))


def _bytes(tensor: tvm.runtime.Tensor) -> npt.NDArray[np.uint8]:
    """The tensor's own memory as bytes, whatever its dtype."""
    nbytes = math.prod(tensor.shape) * numpy_dtype(str(tensor.dtype)).itemsize
    return np.from_dlpack(tensor._create_view((nbytes,), "uint8")).view(np.uint8)


def _address(array: Array) -> int:
    return int(array.__array_interface__["data"][0])


def _leaves(result: Any) -> list[tvm.runtime.Tensor]:
    if isinstance(result, tvm.runtime.Tensor):
        return [result]
    return [leaf for item in result for leaf in _leaves(item)]
