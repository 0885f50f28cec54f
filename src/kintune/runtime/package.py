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
the manifest.  This module does not import TVM, so any process can read a manifest.
"""

from __future__ import annotations

import mmap
import os
import shutil
import struct
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from kintune.core.kernel_call import CallRecord
from kintune.core.model import Combination, IndexCheck, Tensor
from kintune.errors import InputError
from kintune.hardware.gpu_target import is_gpu
from kintune.runtime.plan_format import with_thread_counts
from kintune_runtime.library import checksum

__all__ = [
    "ALIGNMENT",
    "FORMAT_VERSION",
    "PAGE",
    "Block",
    "EncodedPlan",
    "Manifest",
    "Package",
    "Variant",
    "VmPackage",
    "copy_package",
    "pack_weights",
    "package_in_memory",
    "read_manifest",
    "read_manifests",
    "write_package",
    "write_vm_package",
    "write_with_thread_counts",
]

FORMAT_VERSION = 2
"""Raised when an older Kintune could no longer read what a newer one writes."""

ALIGNMENT = 64
"""Bytes; what compiled kernels assume of every tensor."""

PAGE = 4096
"""Bytes; the granularity at which files are mapped."""

_MANIFEST, _VM_LIBRARY, _WEIGHTS = "manifest.json", "vm.so", "weights.bin"
_MANIFEST_LIMIT = 64 << 20  # bytes, far above any real manifest: bounds the allocation when the length is damaged
_CHUNK = 16 << 20  # bytes handled at a time
_PADDING_ID = 0x4B54  # the extra field that pads a zip header, "KT"
_LOCAL_HEADER = struct.Struct("<4s5H3L2H")
_ZIP64_EXTRA = 20  # bytes that `force_zip64` adds to a local header


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """What an executable is and what it needs.

    `inputs` and `outputs` are named and shaped as in the model, in its order.  `target` is the compiler's target as
    JSON; `machine` (as `platform.machine()` says) and `isa` (see `hardware.instruction_set`) are what a CPU must
    offer; `threads` ran each kernel when it was chosen.  `chosen` maps workload digests to candidate digests.
    `cpu` is the name of the CPU on which it was tuned, as the system says it; empty where that is not known.
    `created` is UTC in ISO 8601; `kintune` and `tvm` are the versions that built it.  `checks` says what results after
    the outputs are for (see `kintune.runtime.inputs`).  Where it runs with several combinations of shapes, these are of
    the first, and `more` has the others, in the order of the plans.  `calls` says of each plan what its kernel calls
    compute; it is empty in files of earlier versions, and in those for a GPU.
    """

    model_name: str
    model_digest: str
    target: str
    machine: str
    isa: tuple[str, ...]
    threads: int
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    chosen: dict[str, str]
    created: str
    kintune: str
    tvm: str
    checks: tuple[IndexCheck, ...] = ()
    cpu: str = ""
    more: tuple[Combination, ...] = ()
    calls: tuple[tuple[CallRecord, ...], ...] = ()

    @property
    def combinations(self) -> tuple[Combination, ...]:
        """All combinations of shapes in order, at least one."""
        return (Combination(self.inputs, self.outputs, self.checks), *self.more)


class Block(NamedTuple):
    """One weight: its shape and dtype, and its bytes in row-major order as a flat uint8 array."""

    shape: tuple[int, ...]
    dtype: str
    data: npt.NDArray[np.uint8]


class _Slot(msgspec.Struct, frozen=True):
    """The place of a weight in `weights.bin`."""

    shape: tuple[int, ...]
    dtype: str
    offset: int
    nbytes: int


class _Contents(msgspec.Struct, frozen=True):
    """The whole of `manifest.json`.

    `plans` is the number of plans of a file for CPUs, `weights` are those of a file for the virtual machine.
    `executable` is the first variant, `others` are those after it.
    """

    format: int
    executable: Manifest
    weights: tuple[_Slot, ...] = ()
    plans: int = 0
    others: tuple[Manifest, ...] = ()

    @property
    def manifests(self) -> tuple[Manifest, ...]:
        """Those of all variants, in the file's order."""
        return (self.executable, *self.others)


class _Header(msgspec.Struct, frozen=True):
    """The part of `manifest.json` that every format version has."""

    format: int


class EncodedPlan(NamedTuple):
    """An encoded execution plan, and the shared library of its kernels."""

    plan: bytes
    library: bytes


class Variant(NamedTuple):
    """What a file has for one kind of CPU: a plan for each combination of shapes."""

    manifest: Manifest
    plans: tuple[EncodedPlan, ...]


class Package(NamedTuple):
    """An opened file for CPUs: its variants, and the content of `weights.bin`, mapped."""

    variants: tuple[Variant, ...]
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
        with _reading(path) as archive:
            contents = _contents(archive, path)
            manifests = contents.manifests
            if contents.plans == 0:
                kind = "a GPU" if is_gpu(contents.executable.target) else "TVM's virtual machine"
                raise InputError(f"{path}: made for {kind}; a file for a CPU is needed")
            each, left = divmod(contents.plans, len(manifests))
            if left or each < 1:
                raise _damaged(path, f"{contents.plans} plans of {len(manifests)} variants")
            plans = [
                EncodedPlan(archive.read(f"plan{n}.bin"), archive.read(f"lib{n}.so")) for n in range(contents.plans)
            ]
            variants = [
                Variant(manifest, tuple(plans[number * each : (number + 1) * each]))
                for number, manifest in enumerate(manifests)
            ]
            return cls(tuple(variants), _map_member(archive, path, _WEIGHTS))


class VmPackage(NamedTuple):
    """An opened file for the virtual machine: the library's bytes, and the weights as views of the mapped file."""

    manifest: Manifest
    library: bytes
    weights: tuple[Block, ...]

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> VmPackage:
        """Open and verify a file; every byte of it is read once, the weights stay mapped.

        Raises:
            InputError: the file is missing, is no Kintune executable, is damaged, or is of another format.
        """
        path = Path(path)
        with _reading(path) as archive:
            contents = _contents(archive, path)
            library = archive.read(_VM_LIBRARY)
            mapped = _map_member(archive, path, _WEIGHTS)
        weights = []
        for slot in contents.weights:
            data = mapped[slot.offset : slot.offset + slot.nbytes]
            if slot.offset < 0 or len(data) != slot.nbytes:
                raise _damaged(path, f"{_WEIGHTS} is shorter than its table says")
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


def read_manifest(path: str | os.PathLike[str]) -> Manifest:
    """Reads the manifest alone, that of the first variant.

    Raises:
        InputError: as for `read_manifests`.
    """
    return read_manifests(path)[0]


def read_manifests(path: str | os.PathLike[str]) -> tuple[Manifest, ...]:
    """Reads the manifests of all variants, at least one.

    Raises:
        InputError: the file is missing, is no Kintune executable, is damaged, or is of another format.
    """
    path = Path(path)
    with _reading(path) as archive:
        return _contents(archive, path).manifests


def write_package(path: str | os.PathLike[str], variants: Sequence[Variant], weights: npt.NDArray[np.uint8]) -> None:
    """Write a file for CPUs, whole or not at all: it is renamed into place once it is on the disk.

    There is at least one variant, and all have as many plans.  `weights` is the content of `weights.bin`.

    Raises:
        InputError: it cannot be written there; nothing is left behind then.
    """
    with _replacing(Path(path)) as file:
        _write_plans(file, variants, weights)


def write_with_thread_counts(
    source: str | os.PathLike[str], path: str | os.PathLike[str], counts: Sequence[Mapping[int, int]]
) -> None:
    """Write what the file `source` holds to `path`, with the most threads of kernels' calls replaced.

    `counts` has those of each plan of the first variant, by place, as for `with_thread_counts`; further plans stay as
    they are.  The two paths may be the same.

    Raises:
        InputError: the source cannot be read, or `path` not be written.
        ValueError: a plan calls no kernel at such a place.
    """
    package = Package.open(source)
    first, *others = package.variants
    plans = list(first.plans)
    for number, of_plan in enumerate(counts):
        plan, library = plans[number]
        plans[number] = EncodedPlan(with_thread_counts(plan, of_plan, checksum), library)
    write_package(path, [first._replace(plans=tuple(plans)), *others], package.weights)


def package_in_memory(variants: Sequence[Variant], weights: npt.NDArray[np.uint8]) -> int:
    """Returns the descriptor of a file without a name, in memory, with what `write_package` would write."""
    descriptor = os.memfd_create("kintune-executable")
    with os.fdopen(descriptor, "w+b", closefd=False) as file:
        _write_plans(file, variants, weights)
    return descriptor


def copy_package(source: IO[bytes], path: str | os.PathLike[str]) -> None:
    """Write what an opened file holds to another path, whole or not at all.

    Raises:
        InputError: as for `write_package`.
    """
    source.seek(0)
    with _replacing(Path(path)) as file:
        shutil.copyfileobj(source, file, _CHUNK)


def write_vm_package(
    path: str | os.PathLike[str], manifest: Manifest, library: bytes, weights: Sequence[Block]
) -> None:
    """Write a file for the virtual machine, as `write_package` does.

    Raises:
        InputError: as for `write_package`.
    """
    offsets, content = pack_weights(weights)
    slots = tuple(_Slot(b.shape, b.dtype, at, b.data.nbytes) for at, b in zip(offsets, weights, strict=True))
    with _replacing(Path(path)) as file:
        _write(file, _Contents(FORMAT_VERSION, manifest, slots), {_VM_LIBRARY: library}, content)


def _write_plans(file: IO[bytes], variants: Sequence[Variant], weights: npt.NDArray[np.uint8]) -> None:
    first, *others = (variant.manifest for variant in variants)
    plans = [plan for variant in variants for plan in variant.plans]
    members: dict[str, bytes] = {}
    for number, plan in enumerate(plans):
        members |= {f"plan{number}.bin": plan.plan, f"lib{number}.so": plan.library}
    _write(file, _Contents(FORMAT_VERSION, first, plans=len(plans), others=tuple(others)), members, weights)


def _write(file: IO[bytes], contents: _Contents, members: Mapping[str, bytes], weights: npt.NDArray[np.uint8]) -> None:
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        parts: dict[str, bytes | memoryview] = {_MANIFEST: msgspec.json.encode(contents), **members}
        for name, content in (parts | {_WEIGHTS: weights.data}).items():
            info = zipfile.ZipInfo(name)  # without the time of day: the same content gives the same bytes
            info.external_attr = 0o644 << 16
            info.extra = _padding(file.tell() + _LOCAL_HEADER.size + len(name) + _ZIP64_EXTRA)
            view = memoryview(content).cast("B")
            with archive.open(info, "w", force_zip64=True) as member:
                for start in range(0, len(view), _CHUNK):
                    member.write(view[start : start + _CHUNK])


@contextmanager
def _reading(path: Path) -> Iterator[zipfile.ZipFile]:
    """The archive, opened; whatever is wrong with it becomes an InputError of one line."""
    try:
        with open(path, "rb") as file:
            start = file.read(_LOCAL_HEADER.size + len(_MANIFEST))
            if not start.startswith(b"PK\x03\x04") or not start.endswith(_MANIFEST.encode()):
                raise InputError(f"{path}: not a Kintune executable; `kintune tune MODEL --output FILE.kt` writes one")
            with zipfile.ZipFile(file) as archive:
                yield archive
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None
    except IsADirectoryError:
        raise InputError(f"{path}: a directory, not a Kintune executable") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from error
    except (zipfile.BadZipFile, KeyError, EOFError, ValueError, NotImplementedError, RuntimeError, zlib.error) as error:
        raise _damaged(path, str(error).strip("'\"") or type(error).__name__) from error


def _damaged(path: Path, what: str) -> InputError:
    return InputError(f"{path}: truncated or damaged ({what}); copy it again, or build it again")


def _contents(archive: zipfile.ZipFile, path: Path) -> _Contents:
    if archive.getinfo(_MANIFEST).file_size > _MANIFEST_LIMIT:
        raise _damaged(path, f"{_MANIFEST} is too large")
    text = archive.read(_MANIFEST)
    try:
        version = msgspec.json.decode(text, type=_Header).format
        if version != FORMAT_VERSION:
            raise InputError(
                f"{path}: written in format {version}, this Kintune reads format {FORMAT_VERSION};"
                " `kintune compile MODEL --output FILE.kt` makes a new one from the records, without measuring"
            )
        return msgspec.json.decode(text, type=_Contents)
    except msgspec.MsgspecError as error:
        raise InputError(f"{path}: not a Kintune executable: {_MANIFEST}: {error}") from error


def _map_member(archive: zipfile.ZipFile, path: Path, name: str) -> npt.NDArray[np.uint8]:
    """A member's bytes as a private, copy-on-write view of the file; its checksum is verified."""
    info, file = archive.getinfo(name), archive.fp
    if file is None or info.compress_type != zipfile.ZIP_STORED or info.file_size != info.compress_size:
        raise _damaged(path, f"{name} is not stored plainly")
    if info.file_size == 0:
        return np.empty(0, np.uint8)
    file.seek(info.header_offset)
    header = file.read(_LOCAL_HEADER.size)
    if len(header) != _LOCAL_HEADER.size or not header.startswith(b"PK\x03\x04"):
        raise _damaged(path, f"{name} has no header")
    name_length, extra_length = _LOCAL_HEADER.unpack(header)[-2:]
    start = info.header_offset + _LOCAL_HEADER.size + name_length + extra_length
    data = np.frombuffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY), np.uint8)
    data = data[start : start + info.file_size]
    checksum = 0
    for at in range(0, len(data), _CHUNK):
        checksum = zlib.crc32(data[at : at + _CHUNK].data, checksum)
    if len(data) != info.file_size or checksum != info.CRC:
        raise _damaged(path, f"bad checksum of {name}")
    return data


def _padding(position: int) -> bytes:
    """Returns a zip extra field that moves the data after a header at `position` to the next page."""
    field = struct.Struct("<HH")
    filler = -(position + field.size) % PAGE
    return field.pack(_PADDING_ID, filler) + bytes(filler)


def _aligned(position: int, alignment: int) -> int:
    return position + -position % alignment


@contextmanager
def _replacing(path: Path) -> Iterator[IO[bytes]]:
    """A temporary file beside `path` that takes its place at the end, or is removed on failure."""
    if path.exists() and not path.is_file():
        raise InputError(f"{path}: cannot be written: not a regular file")
    temporary = path.with_name(f".{path.name}.{os.urandom(4).hex()}")
    try:
        with open(temporary, "xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror or error}") from error
    finally:
        temporary.unlink(missing_ok=True)
