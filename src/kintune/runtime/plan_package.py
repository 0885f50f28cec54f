"""The `.kt` file of format 2: one zip that holds a manifest, execution plans with their kernels, and packed weights.

Members, all stored without compression, each at a multiple of `PAGE`, in this order:

    manifest.json   `Manifest`, so that the first bytes of a file say what it is
    planN.bin       an execution plan (`kintune.runtime.plan_format`), from 0 on
    libN.so         the kernels of that plan
    weights.bin     the weights of all plans one after another, each at a multiple of `ALIGNMENT`

The runtime (`kintune_runtime`) maps the file: processes that open the same file share its memory.  Plans hold the
checksums of themselves, their kernels and the weights; the manifest has the zip's own CRC-32.  This module does not
import TVM.
"""

from __future__ import annotations

import os
import secrets
import struct
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from kintune.errors import InputError
from kintune.runtime.package import ALIGNMENT, PAGE, Block, Manifest

__all__ = ["FORMAT_VERSION", "Variant", "pack_weights", "package_in_memory", "write_package"]

FORMAT_VERSION = 2
"""Raised when an older Kintune could no longer read what a newer one writes."""

_MANIFEST, _WEIGHTS = "manifest.json", "weights.bin"
_CHUNK = 16 << 20  # bytes handled at a time
_PADDING_ID = 0x4B54  # the extra field that pads a zip header, "KT"
_LOCAL_HEADER = struct.Struct("<4s5H3L2H")
_ZIP64_EXTRA = 20  # bytes that `force_zip64` adds to a local header


class _Contents(msgspec.Struct, frozen=True):
    """The whole of `manifest.json`."""

    format: int
    executable: Manifest


class Variant(NamedTuple):
    """An encoded execution plan, and the shared library of its kernels."""

    plan: bytes
    library: bytes


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
    path: str | os.PathLike[str], manifest: Manifest, variants: Sequence[Variant], weights: npt.NDArray[np.uint8]
) -> None:
    """Write a file for CPUs, whole or not at all: it is renamed into place once it is on the disk.

    `weights` is the content of `weights.bin`, which all plans share.

    Raises:
        InputError: it cannot be written there; nothing is left behind then.
    """
    with _replacing(Path(path)) as file:
        _write(file, _Contents(FORMAT_VERSION, manifest), _members_of(variants), weights)


def package_in_memory(manifest: Manifest, variants: Sequence[Variant], weights: npt.NDArray[np.uint8]) -> IO[bytes]:
    """Returns a file without a name, in memory, with what `write_package` would write."""
    file = os.fdopen(os.memfd_create("kintune-executable"), "w+b")
    _write(file, _Contents(FORMAT_VERSION, manifest), _members_of(variants), weights)
    file.flush()
    return file


def _members_of(variants: Sequence[Variant]) -> dict[str, bytes]:
    members: dict[str, bytes] = {}
    for number, variant in enumerate(variants):
        members |= {f"plan{number}.bin": variant.plan, f"lib{number}.so": variant.library}
    return members


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
