"""The `.kt` file: one zip that holds manifests, execution plans with their kernels, and the packed weights.

Members, all stored without compression, each at a multiple of `PAGE`, in this order:

    manifest.json   a `Manifest` of each variant, so that the first bytes of a file say what it is
    planN.bin       an execution plan (`kintune.runtime.plan_format`), from 0 on
    libN.so         the kernels of that plan
    weights.bin     the weights of all plans one after another, each at a multiple of `ALIGNMENT`

A *variant* has the plans for one kind of CPU, one for each combination of shapes, in the same order in all variants.
Its plans are numbered one after another.  `kintune.runtime.merging` makes files with several variants.

The runtime (`kintune_runtime`) maps the file: processes that open the same file share its memory.  Plans hold the
checksums of themselves, their kernels and the weights; the manifest has the zip's own CRC-32.  A file for TVM's virtual
machine (for GPUs, and to try a network on a board) holds `vm.so` in place of plans, and the places of its weights in
the manifest.  What runs partly in onnxruntime is a file of `kintune.runtime.hybrid_package`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from kintune.errors import InputError
from kintune.runtime.manifest import (
    FORMAT_VERSION,
    Contents,
    Manifest,
    Narrow,
    WeightSlot,
    contents_of,
    read_manifest,
    read_manifests,
)
from kintune.runtime.plan_format import with_thread_counts
from kintune.runtime.stored_zip import MANIFEST, PAGE, Content, damaged, read_member, reading, replacing, write_members
from kintune_runtime.library import checksum
from kintune_runtime.source import file_in_memory

__all__ = [
    "ALIGNMENT",
    "FORMAT_VERSION",
    "PAGE",
    "Block",
    "EncodedPlan",
    "Manifest",
    "Narrow",
    "Package",
    "PackageVariant",
    "VmPackage",
    "pack_weights",
    "package_in_memory",
    "read_manifest",
    "read_manifests",
    "write_package",
    "write_vm_package",
    "write_with_error",
    "write_with_thread_counts",
]

ALIGNMENT = 64
"""Bytes; what compiled kernels assume of every tensor."""

_VM_LIBRARY, _WEIGHTS = "vm.so", "weights.bin"


class Block(NamedTuple):
    """One weight: its shape and dtype, and its bytes in row-major order as a flat uint8 array."""

    shape: tuple[int, ...]
    dtype: str
    data: npt.NDArray[np.uint8]


class EncodedPlan(NamedTuple):
    """An encoded execution plan, and the shared library of its kernels."""

    plan: bytes
    library: bytes


class PackageVariant(NamedTuple):
    """What a file has for one kind of CPU: a plan for each combination of shapes."""

    manifest: Manifest
    plans: tuple[EncodedPlan, ...]


class Package(NamedTuple):
    """An opened file for CPUs: its variants, and the content of `weights.bin`, mapped."""

    variants: tuple[PackageVariant, ...]
    weights: npt.NDArray[np.uint8]

    @property
    def manifest(self) -> Manifest:
        """That of the first variant; names, types and shapes are those of all."""
        return self.variants[0].manifest

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> Package:
        """Open and verify a file.

        Raises:
            InputError: the file is missing, is no Kintune executable, is not for CPUs, is damaged, or is of another
                format.
        """
        path = Path(path)
        with reading(path) as archive:
            contents = contents_of(archive, path)
            manifests = contents.manifests
            if contents.executable.hybrid is not None:
                raise InputError(f"{path}: {contents.executable.hybrid.summary}: a file that runs without is needed")
            if contents.plans == 0:
                made_for = contents.executable.capabilities
                kind = "TVM's virtual machine" if made_for.plans else made_for.a_device
                raise InputError(f"{path}: made for {kind}; a file for a CPU is needed")
            each, left = divmod(contents.plans, len(manifests))
            if left or each < 1:
                raise damaged(path, f"{contents.plans} plans of {len(manifests)} variants")
            plans = [
                EncodedPlan(archive.read(f"plan{n}.bin"), archive.read(f"lib{n}.so")) for n in range(contents.plans)
            ]
            variants = [
                PackageVariant(manifest, tuple(plans[number * each : (number + 1) * each]))
                for number, manifest in enumerate(manifests)
            ]
            return cls(tuple(variants), read_member(archive, path, _WEIGHTS))


class VmPackage(NamedTuple):
    """An opened file for the virtual machine: the library's bytes, and the weights."""

    manifest: Manifest
    library: bytes
    weights: tuple[Block, ...]

    @classmethod
    def open(cls, path: str | os.PathLike[str], place: str = "") -> VmPackage:
        """Open and verify a file; all of it is read, and it is not needed afterwards.

        The file is opened at `place`, by default at `path`; `path` is for messages.

        Raises:
            InputError: the file is missing, is no Kintune executable, is damaged, or is of another format.
        """
        path = Path(path)
        with reading(path, place) as archive:
            contents = contents_of(archive, path)
            library = archive.read(_VM_LIBRARY)
            content = read_member(archive, path, _WEIGHTS)
        weights = []
        for slot in contents.weights:
            data = content[slot.offset : slot.offset + slot.nbytes]
            if slot.offset < 0 or len(data) != slot.nbytes:
                raise damaged(path, f"{_WEIGHTS} is shorter than its table says")
            weights.append(Block(slot.shape, slot.dtype, data))
        return cls(contents.executable, library, tuple(weights))


def pack_weights(blocks: Sequence[Block]) -> tuple[tuple[int, ...], npt.NDArray[np.uint8]]:
    """Returns the offset of each block in `weights.bin`, and the content of that member."""
    offsets, end = [], 0
    for block in blocks:
        offsets.append(_aligned(end, ALIGNMENT))
        end = offsets[-1] + block.data.nbytes
    content = np.zeros(end, np.uint8)
    for offset, block in zip(offsets, blocks, strict=True):
        content[offset : offset + block.data.nbytes] = block.data
    return tuple(offsets), content


def write_package(
    path: str | os.PathLike[str], variants: Sequence[PackageVariant], weights: npt.NDArray[np.uint8]
) -> None:
    """Write a file for CPUs, whole or not at all: it is renamed into place once it is on the disk.

    There is at least one variant, and all have as many plans.  `weights` is the content of `weights.bin`.

    Raises:
        InputError: there is something that is no file.
        StorageError: it cannot be written there; nothing is left behind then.
    """
    with replacing(Path(path)) as file:
        _write_plans(file, variants, weights)


def write_with_thread_counts(
    source: str | os.PathLike[str], path: str | os.PathLike[str], counts: Sequence[Mapping[int, int]]
) -> None:
    """Write what the file `source` holds to `path`, with the most threads of kernels' calls replaced.

    `counts` has those of each plan of the first variant, by place, as for `with_thread_counts`; further plans stay as
    they are.  The two paths may be the same.

    Raises:
        InputError: the source cannot be read.
        StorageError: `path` cannot be written.
        ValueError: a plan calls no kernel at such a place.
    """
    package = Package.open(source)
    first, *others = package.variants
    plans = list(first.plans)
    for number, of_plan in enumerate(counts):
        plan, library = plans[number]
        plans[number] = EncodedPlan(with_thread_counts(plan, of_plan, checksum), library)
    write_package(path, [first._replace(plans=tuple(plans)), *others], package.weights)


def write_with_error(path: str | os.PathLike[str], error: float) -> None:
    """Write into the file `path` the error that was measured at the outputs of what computes narrower.

    Files that compute nothing narrower, or run partly in onnxruntime, stay as they are.

    Raises:
        InputError: the file cannot be read.
        StorageError: it cannot be written.
    """
    manifest = read_manifest(path)
    if manifest.narrow is None or manifest.hybrid is not None:
        return
    package = Package.open(path)
    first, *others = package.variants
    narrow = msgspec.structs.replace(manifest.narrow, error=error)
    manifest = msgspec.structs.replace(first.manifest, narrow=narrow)
    write_package(path, [first._replace(manifest=manifest), *others], package.weights)


def package_in_memory(variants: Sequence[PackageVariant], weights: npt.NDArray[np.uint8]) -> int:
    """Returns the descriptor of a file without a name, in memory, with what `write_package` would write."""
    return file_in_memory(lambda file: _write_plans(file, variants, weights))


def write_vm_package(
    path: str | os.PathLike[str], manifest: Manifest, library: bytes, weights: Sequence[Block]
) -> None:
    """Write a file for the virtual machine, as `write_package` does.

    Raises:
        InputError: as for `write_package`.
        StorageError: as for `write_package`.
    """
    offsets, content = pack_weights(weights)
    slots = tuple(WeightSlot(b.shape, b.dtype, at, b.data.nbytes) for at, b in zip(offsets, weights, strict=True))
    with replacing(Path(path)) as file:
        _write(file, Contents(FORMAT_VERSION, manifest, slots), {_VM_LIBRARY: library}, content)


def _write_plans(file: IO[bytes], variants: Sequence[PackageVariant], weights: npt.NDArray[np.uint8]) -> None:
    first, *others = (variant.manifest for variant in variants)
    plans = [plan for variant in variants for plan in variant.plans]
    members: dict[str, bytes] = {}
    for number, plan in enumerate(plans):
        members |= {f"plan{number}.bin": plan.plan, f"lib{number}.so": plan.library}
    _write(file, Contents(FORMAT_VERSION, first, plans=len(plans), others=tuple(others)), members, weights)


def _write(file: IO[bytes], contents: Contents, members: Mapping[str, bytes], weights: npt.NDArray[np.uint8]) -> None:
    parts: dict[str, Content] = {MANIFEST: msgspec.json.encode(contents), **members, _WEIGHTS: weights.data}
    write_members(file, parts.items())


def _aligned(position: int, alignment: int) -> int:
    return position + -position % alignment
