"""A compiled network that can be run, timed, saved and opened again elsewhere.

`Executable` is one for CPUs: an execution plan, which `kintune_runtime` runs.  `kintune.runtime.package` has the file.
This module does not import TVM.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt

import kintune_runtime
from kintune.core.execution_plan import ExecutionPlan, KernelCall
from kintune.core.kernel_bounds import KernelBounds
from kintune.core.kernel_call import CallRecord, title_of
from kintune.core.model import Tensor
from kintune.errors import InputError, OrderError
from kintune.runtime.opened_file import OpenedFile
from kintune.runtime.package import (
    Block,
    EncodedPlan,
    Manifest,
    Package,
    PackageVariant,
    pack_weights,
    package_in_memory,
    read_manifests,
)
from kintune.runtime.plan_format import encode_plan
from kintune.runtime.requirements import why_none_here
from kintune.runtime.weight_pool import WeightPool
from kintune_runtime.library import checksum
from kintune_runtime.source import Source

__all__ = ["CompiledPlan", "Executable", "Inputs"]


Inputs: TypeAlias = "Mapping[str, npt.ArrayLike] | npt.ArrayLike"


class CompiledPlan(NamedTuple):
    """A plan, the shared library of its kernels, its weights in the plan's order, and what its calls compute.

    `kept` is the number of tensors that are kept in a narrower type than that of the model.  `bounds` says which
    kernels are known to stay inside of their buffers.
    """

    plan: ExecutionPlan
    library: bytes
    weights: Iterable[Block]
    calls: tuple[CallRecord, ...] = ()
    kept: int = 0
    bounds: KernelBounds | None = None


class Executable(kintune_runtime.Executable):
    """A network ready to run on this machine's CPU, or to be saved and run on another one.

    Made by `create` or `open`.  An instance may be shared between threads; its runs then take turns, those of its
    contexts do not.  `variants` are the manifests of all CPUs that its file is for, `manifest` is the one that was
    chosen for this machine: number `variant.number`.  Where none can run here, it is the first.
    """

    def __init__(self, source: Source | OpenedFile, variant: int | None = None) -> None:
        """Open a file.

        Raises:
            InputError: as for `open`.
        """
        self._file = OpenedFile.of(source)
        path = self._file.path
        self.variants = read_manifests(path, self._file.place)
        self.manifest = self.variants[0]
        super().__init__(self._file.place, variant, str(path))
        if self._model is not None:
            chosen = self.variant
            others = chosen.total != len(self.variants)
            self.manifest = self.variants[0 if others else chosen.number]
            if others or not self._is_described():
                raise InputError(f"{path}: damaged: its manifest is of another file; copy it again, or build it again")

    @classmethod
    def create(cls, plan: ExecutionPlan, library: bytes, weights: Iterable[Block], manifest: Manifest) -> Executable:
        """Make an executable of a plan, the shared library of its kernels, and its weights in the plan's order.

        One for machines of another kind can be saved here, but not run.
        """
        return cls.create_from_plans([CompiledPlan(plan, library, weights)], manifest)

    @classmethod
    def create_from_plans(cls, compiled: Iterable[CompiledPlan], manifest: Manifest) -> Executable:
        """Make an executable of a plan for each of the manifest's combinations of shapes, in their order.

        Weights that are equal are stored once.  `compiled` is read one after the other.
        """
        pool = WeightPool()
        placed, calls, bounds, kept = [], [], [], 0
        for each in compiled:
            placed.append((_titled(pool.add(each.plan, each.weights), each.calls), each.library))
            calls.append(each.calls)
            bounds += [] if each.bounds is None else [each.bounds]
            kept += each.kept
        if any(calls):
            manifest = msgspec.structs.replace(manifest, calls=tuple(calls))
        if len(bounds) == len(placed):
            manifest = msgspec.structs.replace(manifest, bounds=tuple(bounds))
        if manifest.narrow is not None and kept:
            narrow = msgspec.structs.replace(manifest.narrow, kept_tensors=kept)
            manifest = msgspec.structs.replace(manifest, narrow=narrow)
        _, content = pack_weights(pool.blocks)
        weights_checksum = checksum(content)
        plans = tuple(
            EncodedPlan(
                encode_plan(
                    plan,
                    machine=manifest.machine,
                    isa=manifest.isa,
                    threads=manifest.threads,
                    weights_bytes=content.nbytes,
                    weights_checksum=weights_checksum,
                    library_bytes=len(library),
                    library_checksum=checksum(library),
                    checksum=checksum,
                    number=number,
                    total=len(placed),
                    cpu=manifest.cpu,
                    keep_denormals=manifest.keep_denormals,
                ),
                library,
            )
            for number, (plan, library) in enumerate(placed)
        )
        return cls._in_memory([PackageVariant(manifest, plans)], content)

    @classmethod
    def open(cls, source: Source | OpenedFile, variant: int | None = None) -> Executable:
        """Open a saved executable, by its path or its contents.

        Of several variants the one that suits this machine best is taken, or the one of number `variant`.  It
        holds machine code that will run with your rights: open only what you trust.

        Raises:
            InputError: the file is missing, damaged or no Kintune executable, or made for another format or CPU, or
                there is no such variant.
        """
        opened = cls(source, variant)
        if (why := why_none_here(opened.variants)) is not None:
            raise InputError(f"{opened._file.path}: {why}")
        return opened

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the executable to one file, whole or not at all.

        Raises:
            InputError: there is something that is no file.
            StorageError: it cannot be written there.
        """
        self._file.save(path)

    @property
    def place(self) -> str:
        """A path at which this process finds its file for as long as the executable lives."""
        return self._file.place

    def described(self, manifest: Manifest) -> Executable:
        """The same with another manifest of its first variant.

        Raises:
            InputError: its file is damaged.
        """
        package = Package.open(self.place)
        first, *others = package.variants
        return self._in_memory([first._replace(manifest=manifest), *others], package.weights)

    @classmethod
    def _in_memory(cls, variants: Sequence[PackageVariant], weights: npt.NDArray[np.uint8]) -> Executable:
        descriptor = package_in_memory(variants, weights)
        try:
            return cls(f"/proc/self/fd/{descriptor}")
        finally:
            os.close(descriptor)

    @property
    def inputs(self) -> tuple[Tensor, ...]:  # type: ignore[override]
        """The inputs in order."""
        return self.manifest.inputs

    @property
    def outputs(self) -> tuple[Tensor, ...]:  # type: ignore[override]
        """The outputs in order."""
        return self.manifest.outputs

    def described_inputs(self, plan: int = 0) -> tuple[Tensor, ...]:  # type: ignore[override]
        """The inputs of a plan, with what is known of their values."""
        if not self._plans:  # it is for another machine
            return self.manifest.combinations[plan].inputs
        shapes = [tensor.shape for tensor in self.plans[plan]]
        fitting = (each.inputs for each in self.manifest.combinations if [t.shape for t in each.inputs] == shapes)
        return next(fitting, self.manifest.inputs)

    def __repr__(self) -> str:
        inputs = ", ".join(f"{t.name}: {t.dtype}{list(t.shape)}" for t in self.inputs)
        return f"Executable({self.manifest.model_name!r}, {inputs})"

    def _is_described(self) -> bool:
        """Whether the manifest has the inputs and outputs of the plans."""
        told = [(each.inputs, each.outputs) for each in self.manifest.combinations]
        return [list(map(_ends, each)) for each in told] == [list(map(_ends, each)) for each in self._plans]

    def _load(self, path: str, variant: int | None, name: str) -> None:
        """Open it for running, where this machine can."""
        if why_none_here(self.variants) is None:
            super()._load(path, variant, name)

    def _handle(self) -> ctypes.c_void_p:
        if self._model is None and (why := why_none_here(self.variants)) is not None:
            raise OrderError(f"{self.manifest.model_name} is {why}, or save it and run it there")
        return super()._handle()


def _ends(tensors: Iterable[Tensor | kintune_runtime.Tensor]) -> list[tuple[str, tuple[int, ...], str]]:
    return [(tensor.name, tensor.shape, tensor.dtype) for tensor in tensors]


def _titled(plan: ExecutionPlan, calls: Iterable[CallRecord]) -> ExecutionPlan:
    """The plan with titles, for messages, of the calls whose records name nodes of the user's graph."""
    titles = {record.place: title_of(record).replace("\0", "") for record in calls if record.nodes}
    operations = [
        msgspec.structs.replace(operation, title=titles[place])
        if place in titles and isinstance(operation, KernelCall)
        else operation
        for place, operation in enumerate(plan.operations)
    ]
    return msgspec.structs.replace(plan, operations=tuple(operations))
