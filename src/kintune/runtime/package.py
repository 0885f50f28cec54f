"""The `.kt` file: one zip that holds a manifest, a shared library and the packed weights.

Members, all stored without compression and in this order:

    manifest.json   `Manifest` and the place of each weight, so that the first bytes of a file say what it is
    lib.so          the compiled network
    weights.bin     the weights one after another, each at a multiple of `ALIGNMENT`, the member itself at one of `PAGE`

Weights are mapped, not read: processes that open the same file share their memory.  The zip's own CRC-32 of each member
is the checksum.  It does not import TVM, so any process can read a manifest.
"""

from __future__ import annotations

import mmap
import os
import secrets
import struct
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from kintune.core.model import IndexCheck, Tensor
from kintune.errors import InputError

__all__ = [
    "ALIGNMENT",
    "FORMAT_VERSION",
    "LOCAL_HEADER",
    "PAGE",
    "ZIP64_EXTRA",
    "Block",
    "Manifest",
    "Package",
    "aligned",
    "page_padding",
    "read_manifest",
    "replacing",
    "write_package",
]

FORMAT_VERSION = 1
"""Raised when an older Kintune could no longer read what a newer one writes."""

ALIGNMENT = 64
"""Bytes; what compiled kernels assume of every tensor."""

PAGE = 4096
"""Bytes; the granularity at which files are mapped."""

_MANIFEST, _LIBRARY, _WEIGHTS = "manifest.json", "lib.so", "weights.bin"
_MANIFEST_LIMIT = 64 << 20  # bytes, far above any real manifest: bounds the allocation when the length is damaged
_CHUNK = 16 << 20  # bytes handled at a time
_PADDING_ID = 0x4B54  # the extra field that pads a zip header, "KT"

LOCAL_HEADER = struct.Struct("<4s5H3L2H")
"""The beginning of a zip member, before its name."""

ZIP64_EXTRA = 20
"""Bytes that `force_zip64` adds to a local header."""


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """What an executable is and what it needs.

    `inputs` and `outputs` are named and shaped as in the model, in its order.  `target` is the compiler's target as
    JSON; `machine` (as `platform.machine()` says) and `isa` (see `hardware.instruction_set`) are what a CPU must
    offer; `threads` ran each kernel when it was chosen.  `chosen` maps workload digests to candidate digests.
    `created` is UTC in ISO 8601; `kintune` and `tvm` are the versions that built it.  `checks` says what results after
    the outputs are for (see `kintune.runtime.inputs`).
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
    """The whole of `manifest.json`."""

    format: int
    executable: Manifest
    weights: tuple[_Slot, ...]


class _Header(msgspec.Struct, frozen=True):
    """The part of `manifest.json` that every format version has."""

    format: int


class Package(NamedTuple):
    """An opened `.kt` file: the shared library's bytes, and the weights as views of the mapped file."""

    manifest: Manifest
    library: bytes
    weights: tuple[Block, ...]

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> Package:
        """Open and verify a file; every byte of it is read once, the weights stay mapped.

        Raises:
            InputError: the file is missing, is no Kintune executable, is damaged, or is of another format.
        """
        path = Path(path)
        with _reading(path) as archive:
            contents = _contents(archive, path)
            library = archive.read(_LIBRARY)
            mapped = _map_member(archive, path, _WEIGHTS)
        weights = []
        for slot in contents.weights:
            data = mapped[slot.offset : slot.offset + slot.nbytes]
            if slot.offset < 0 or len(data) != slot.nbytes:
                raise _damaged(path, f"{_WEIGHTS} is shorter than its table says")
            weights.append(Block(slot.shape, slot.dtype, data))
        return cls(contents.executable, library, tuple(weights))


def read_manifest(path: str | os.PathLike[str]) -> Manifest:
    """Reads the manifest alone.

    Raises:
        InputError: as for `Package.open`.
    """
    path = Path(path)
    with _reading(path) as archive:
        return _contents(archive, path).executable


def write_package(path: str | os.PathLike[str], manifest: Manifest, library: bytes, weights: Sequence[Block]) -> None:
    """Write a file, whole or not at all: it is renamed into place once it is on the disk.

    Raises:
        InputError: it cannot be written there; nothing is left behind then.
    """
    path = Path(path)
    slots, end = [], 0
    for block in weights:
        offset = aligned(end, ALIGNMENT)
        slots.append(_Slot(block.shape, block.dtype, offset, block.data.nbytes))
        end = offset + block.data.nbytes
    contents = msgspec.json.encode(_Contents(FORMAT_VERSION, manifest, tuple(slots)))
    with replacing(path) as file, zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr(_info(_MANIFEST), contents)
        archive.writestr(_info(_LIBRARY), library)
        info = _info(_WEIGHTS)
        info.extra = page_padding(file.tell() + LOCAL_HEADER.size + len(_WEIGHTS) + ZIP64_EXTRA)
        with archive.open(info, "w", force_zip64=True) as member:
            position = 0
            for slot, block in zip(slots, weights, strict=True):
                member.write(bytes(slot.offset - position))
                for start in range(0, slot.nbytes, _CHUNK):
                    member.write(block.data[start : start + _CHUNK].data)
                position = slot.offset + slot.nbytes


@contextmanager
def _reading(path: Path) -> Iterator[zipfile.ZipFile]:
    """The archive, opened; whatever is wrong with it becomes an InputError of one line."""
    try:
        with open(path, "rb") as file:
            start = file.read(LOCAL_HEADER.size + len(_MANIFEST))
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
                " build it again with this version, or use the one that wrote it"
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
    header = file.read(LOCAL_HEADER.size)
    if len(header) != LOCAL_HEADER.size or not header.startswith(b"PK\x03\x04"):
        raise _damaged(path, f"{name} has no header")
    name_length, extra_length = LOCAL_HEADER.unpack(header)[-2:]
    start = info.header_offset + LOCAL_HEADER.size + name_length + extra_length
    data = np.frombuffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY), np.uint8)
    data = data[start : start + info.file_size]
    checksum = 0
    for at in range(0, len(data), _CHUNK):
        checksum = zlib.crc32(data[at : at + _CHUNK].data, checksum)
    if len(data) != info.file_size or checksum != info.CRC:
        raise _damaged(path, f"bad checksum of {name}")
    return data


def _info(name: str) -> zipfile.ZipInfo:
    """Returns a member's entry without the time of day, so that the same content gives the same bytes."""
    info = zipfile.ZipInfo(name)
    info.external_attr = 0o644 << 16
    return info


def page_padding(position: int) -> bytes:
    """Returns a zip extra field that moves the data after a header at `position` to the next page."""
    field = struct.Struct("<HH")
    filler = -(position + field.size) % PAGE
    return field.pack(_PADDING_ID, filler) + bytes(filler)


def aligned(position: int, alignment: int) -> int:
    """Returns the next multiple of `alignment` from `position` on."""
    return position + -position % alignment


@contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """A temporary file beside `path` that takes its place at the end, or is removed on failure.

    Raises:
        InputError: it cannot be written there.
    """
    if path.exists() and not path.is_file():
        raise InputError(f"{path}: cannot be written: not a regular file")
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
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
