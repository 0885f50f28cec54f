"""A compiled network that TVM's virtual machine runs: on a GPU.

The network's function is `main(inputs..., weights...)`; the weights are those that were packed when it was built.
"""

from __future__ import annotations

import os
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tvm

from kintune.core.model import Tensor
from kintune.errors import BuildError, InputError, KintuneError, OrderError
from kintune.runtime.artifact import link_program
from kintune.runtime.executable import Inputs
from kintune.runtime.inputs import Array, arrange_inputs, check_indices, draw_inputs
from kintune.runtime.opened_file import OpenedFile
from kintune.runtime.package import Manifest, VmPackage, write_vm_package
from kintune.runtime.placement import DevicePlacement, make_placement, prepare_threads
from kintune.runtime.pool_denormals import set_pool_denormals
from kintune.runtime.requirements import why_not_here
from kintune.runtime.tensors import block_of, tensor_of
from kintune_runtime import Evaluation
from kintune_runtime.copying import NotCopied
from kintune_runtime.denormals import Flushing
from kintune_runtime.source import Source

__all__ = ["VmExecutable"]


class VmExecutable(NotCopied):
    """A network ready to run on this machine's CPU, or on its first GPU.

    Made by `create` or `open`.  Its first run gives the process the threads that the network was tuned for, but no more
    than physical cores, unless `TVM_NUM_THREADS` says otherwise.  An instance may be shared between threads; its runs
    then take turns.
    """

    def __init__(self, manifest: Manifest, library: bytes, weights: Sequence[tvm.runtime.Tensor]) -> None:
        """Load the program; `library` is the shared library, `weights` the arguments of `main` after the inputs.

        Raises:
            KintuneError: the library cannot be loaded.
        """
        self.manifest = manifest
        self._library = library
        self._weights = tuple(weights)
        self._placement: DevicePlacement | None = None
        self._main: Any = None
        if manifest.capabilities.on_host:  # a process that only builds for another device does not use it
            self._place()
        self._running = threading.Lock()
        self._process = os.getpid()
        self._has_run = False

    @classmethod
    def create(
        cls,
        program: tvm.runtime.Executable,
        weights: Sequence[tvm.runtime.Tensor],
        manifest: Manifest,
        object_files: Sequence[bytes] = (),
    ) -> VmExecutable:
        """Link what `relax.build` made; `weights` follow the inputs in the parameters of its `main`.

        `object_files` define the kernels that it calls and does not hold.  An executable for machines of another
        architecture can be saved here, but not run.

        Raises:
            BuildError: it cannot be linked.
            OrderError: there is nothing to link it with.
        """
        try:
            library = link_program(program, manifest.machine, object_files).library
        except (RuntimeError, OSError, ValueError) as error:
            first = str(error).strip().partition("\n")[0]
            raise BuildError(f"{manifest.model_name}: cannot be linked: {first}") from error
        return cls(manifest, library, weights)

    @classmethod
    def open(cls, source: Source | OpenedFile) -> VmExecutable:
        """Open a saved executable, by its path, or its contents.

        It holds machine code that will run with your rights: open only what you trust.

        Raises:
            InputError: the file is missing, damaged or no Kintune executable, or made for another version, CPU or GPU.
        """
        file = OpenedFile.of(source)
        path = file.path
        package = VmPackage.open(path, file.place)
        _check_runnable(path, package.manifest)
        try:
            opened = cls(package.manifest, package.library, [tensor_of(block) for block in package.weights])
            opened._place()
        except KintuneError as error:
            raise InputError(f"{path}: {error}") from error
        return opened

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the executable to one file, whole or not at all.

        Raises:
            InputError: there is something that is no file.
            StorageError: the file cannot be written there.
        """
        write_vm_package(path, self.manifest, self._library, [block_of(weight) for weight in self._weights])

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
        return f"VmExecutable({self.manifest.model_name!r}, {inputs})"

    def run(self, *inputs: Inputs, threads: int = 0) -> dict[str, Array]:
        """Run once: arrays by input name, or one positional array an input.

        The outputs are arrays by name that belong to the caller.  `threads` means nothing to a GPU.

        Raises:
            InputError: an input is missing, unknown, or of another dtype or shape than the model's, and when an index,
                given or computed, is outside of what it indexes.
            OrderError: the network is for another machine or GPU.
        """
        del threads
        if os.getpid() != self._process:
            raise OrderError(
                f"{self.manifest.model_name} was opened before this process was forked, which no GPU allows: open it"
                " in this process"
            )
        arrays = arrange_inputs(self.inputs, inputs)
        with self._running:
            placement = self._place()
            if placement is None:
                raise OrderError(
                    f"{self.manifest.model_name} is {why_not_here(self.manifest)}, or save it and run it there"
                )
            if not self._has_run:
                prepare_threads(self.manifest.threads)
                self._has_run = True
            with Flushing(not self.manifest.keep_denormals):
                if self.manifest.capabilities.flushes_denormals:
                    set_pool_denormals(not self.manifest.keep_denormals)
                outputs = placement.run(self._main, self.inputs, arrays)
        count = len(self.outputs)
        check_indices(self.manifest.checks, outputs[count:])
        return {tensor.name: output for tensor, output in zip(self.outputs, outputs[:count], strict=True)}

    def evaluate(
        self, *inputs: Inputs, repeats: int = 50, warmups: int = 3, max_seconds: float = 10.0, seed: int = 0,
        threads: int = 0, streams: int = 1,
    ) -> Evaluation:  # fmt: skip
        """Time `run`, arrays in to arrays out: `warmups` untimed runs, then `repeats` timed ones.

        Ends early once `max_seconds` have passed, after at least one timed run.  Without inputs they are drawn from
        `seed`.  `threads` means nothing to a GPU.

        Raises:
            InputError: as for `run`, or there is no repeat, or warmups are negative, or there are several streams.
        """
        del threads
        if streams != 1:
            raise InputError(f"a GPU runs one request at a time here, {streams} streams were asked for")
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
        return Evaluation.of(times, sum(times) / 1e3)

    def _place(self) -> DevicePlacement | None:
        """The device that the network runs on, with its program loaded; None where this machine cannot run it.

        Raises:
            KintuneError: the device cannot be used, or the program cannot be loaded.
        """
        if self._placement is None and (placement := make_placement(self.manifest, self._weights)) is not None:
            self._main = _load(self._library, placement.device)
            self._placement = placement
        return self._placement


def _check_runnable(path: str | os.PathLike[str], manifest: Manifest) -> None:
    """Raise InputError unless this compiler's runtime and this machine can run the program."""
    if manifest.tvm != tvm.__version__:
        raise InputError(
            f"{path}: built with TVM {manifest.tvm}, and TVM {tvm.__version__} is installed; build it again, or install"
            f" apache-tvm=={manifest.tvm}"
        )
    if (why := why_not_here(manifest)) is not None:
        raise InputError(f"{path}: {why}")


def _load(library: bytes, device: Any) -> Any:
    """The function `main` of a library, on a device."""
    with tempfile.TemporaryDirectory(prefix="kintune-") as directory:
        path = Path(directory, "lib.so")
        path.write_bytes(library)
        try:
            module = tvm.runtime.load_module(str(path))
            return tvm.runtime.vm.VirtualMachine(module, device)["main"]
        except Exception as error:  # the runtime raises many types for a library that it cannot load
            reason = str(error).strip().partition("\n")[0]
            raise KintuneError(f"the program cannot be loaded: {type(error).__name__}: {reason}") from error
