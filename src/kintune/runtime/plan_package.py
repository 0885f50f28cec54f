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
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from kintune.runtime.package import (
    ALIGNMENT,
    LOCAL_HEADER,
    ZIP64_EXTRA,
    Block,
    Manifest,
    aligned,
    page_padding,
    replacing,
)

__all__ = ["FORMAT_VERSION", "Variant", "pack_weights", "package_in_memory", "write_package"]

FORMAT_VERSION = 2
"""Raised when an older Kintune could no longer read what a newer one writes."""

_MANIFEST, _WEIGHTS = "manifest.json", "weights.bin"
_CHUNK = 16 << 20  # bytes handled at a time


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
        offsets.append(aligned(end, ALIGNMENT))
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
    with replacing(Path(path)) as file:
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
            info.extra = page_padding(file.tell() + LOCAL_HEADER.size + len(name) + ZIP64_EXTRA)
            view = memoryview(content).cast("B")
            with archive.open(info, "w", force_zip64=True) as member:
                for start in range(0, len(view), _CHUNK):
                    member.write(view[start : start + _CHUNK])
