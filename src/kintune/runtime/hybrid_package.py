"""The `.kt` file of a result that runs partly in onnxruntime.

It is a zip as that of `kintune.runtime.package`.  Its members, each at a multiple of `PAGE`, in this order:

    manifest.json   a `Manifest` with `hybrid`; inputs and outputs are those of the whole model
    graph.onnx      the host graph: an ONNX file in which each region is one node, with the weights of all other nodes
    regionN.kt      from 0 on: an ordinary file for CPUs, with the plans of that region for each combination of shapes
    marked.onnx     only until the result is published: the whole graph, in which nodes say to which region they belong

The node of region N is the operator `RegionN` of the domain `kintune.DIGEST`, where DIGEST is the first 16 digits of
the model's digest.  onnxruntime cannot infer the shapes that a region writes: the graph's `value_info` should have
them.  `libkintune_onnx.so` registers these operators, and maps the file.  This module does not import TVM.
"""

from __future__ import annotations

import os
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, NamedTuple

import msgspec

from kintune.core.kernel_bounds import KernelBounds
from kintune.errors import InputError, OrderError
from kintune.runtime.manifest import FORMAT_VERSION, Contents, Manifest, contents_of
from kintune.runtime.stored_zip import (
    MANIFEST,
    Content,
    check_members,
    damaged,
    read_member,
    reading,
    replacing,
    write_members,
)
from kintune_runtime.source import file_in_memory

__all__ = [
    "GRAPH",
    "HybridPackage",
    "hybrid_in_memory",
    "kernel_bounds",
    "kernel_manifests",
    "operator_domain",
    "read_marked",
    "region_name",
    "write_hybrid",
]

GRAPH = "graph.onnx"
"""The name of the member with the host graph."""

_MARKED = "marked.onnx"

_DIGEST_DIGITS = 16
_LARGEST_GRAPH = (1 << 31) - 1  # bytes of one protobuf message


class HybridPackage(NamedTuple):
    """An opened file: its manifest, the host graph, and the regions' files."""

    manifest: Manifest
    graph: bytes
    regions: tuple[memoryview, ...]

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> HybridPackage:
        """Open and verify a file.

        Raises:
            InputError: the file is missing, is no Kintune executable, does not run in onnxruntime, is damaged, or is of
                another format.
        """
        path = Path(path)
        with reading(path) as archive:
            manifest = contents_of(archive, path).executable
            if manifest.hybrid is None:
                raise InputError(f"{path}: does not run in onnxruntime; `kintune.open` opens it")
            names = set(archive.namelist())
            members = [GRAPH, *(region_name(number) for number in range(len(manifest.hybrid.regions)))]
            if missing := [name for name in members if name not in names]:
                raise damaged(path, f"it has no {missing[0]}")
            regions = tuple(read_member(archive, path, name).data for name in members[1:])
            return cls(manifest, archive.read(GRAPH), regions)

    def region(self, number: int) -> bytes:
        """The bytes of a region's file, from 0 on."""
        return bytes(self.regions[number])


def kernel_bounds(path: str | os.PathLike[str]) -> tuple[KernelBounds, ...]:
    """What a file of any kind says of the bounds of its kernels: of each plan, those of the first variant.

    Of one that runs partly in onnxruntime, these are the plans of its regions, one region after another.

    Raises:
        InputError: the file is missing, is no Kintune executable, is damaged, or is of another format.
    """
    return tuple(bounds for manifest in kernel_manifests(path) for bounds in manifest.bounds)


def kernel_manifests(path: str | os.PathLike[str]) -> list[Manifest]:
    """The manifests in a file of any kind that tell of kernels: its own, or those of its regions, one after another.

    Raises:
        InputError: as for `kernel_bounds`.
    """
    path = Path(path)
    with reading(path) as archive:
        manifest = contents_of(archive, path).executable
        if manifest.hybrid is None:
            return [manifest]
        found = []
        for number in range(len(manifest.hybrid.regions)):
            with archive.open(region_name(number)) as file, zipfile.ZipFile(file) as region:
                check_members(region, path, archive.getinfo(region_name(number)).file_size)
                found.append(contents_of(region, path).executable)
        return found


def operator_domain(model_digest: str) -> str:
    """The domain of the operators of a model."""
    return f"kintune.{model_digest[:_DIGEST_DIGITS]}"


def region_name(number: int) -> str:
    """The name of a region's member."""
    return f"region{number}.kt"


def read_marked(path: str | os.PathLike[str]) -> bytes:
    """The whole graph of a file that is not published yet; empty where it has none.

    Raises:
        InputError: as for `HybridPackage.open`.
    """
    with reading(Path(path)) as archive:
        return archive.read(_MARKED) if _MARKED in archive.namelist() else b""


def write_hybrid(
    path: str | os.PathLike[str], manifest: Manifest, graph: bytes, regions: Sequence[Path | bytes], marked: bytes = b""
) -> None:
    """Write a file, whole or not at all: it is renamed into place once it is on the disk.

    `manifest.hybrid` says what runs where; `regions` are the files of its regions, or their contents.  `marked` is the
    whole graph, where regions may still go back to onnxruntime.

    Raises:
        InputError: a region's file cannot be read, or the graph is too large.
        StorageError: the file cannot be written there; nothing is left behind then.
        OrderError: the manifest has no `hybrid`, or one with another number of regions.
    """
    _check(manifest, graph, regions)
    with replacing(Path(path)) as file:
        _write(file, manifest, graph, regions, marked)


def hybrid_in_memory(manifest: Manifest, graph: bytes, regions: Sequence[Path | bytes]) -> int:
    """Returns the descriptor of a file without a name, in memory, with what `write_hybrid` would write.

    Raises:
        InputError: as for `write_hybrid`.
        OrderError: as for `write_hybrid`.
    """
    _check(manifest, graph, regions)
    return file_in_memory(lambda file: _write(file, manifest, graph, regions))


def _check(manifest: Manifest, graph: bytes, regions: Sequence[Path | bytes]) -> None:
    if manifest.hybrid is None or len(manifest.hybrid.regions) != len(regions):
        told = "no manifest of regions" if manifest.hybrid is None else f"one of {len(manifest.hybrid.regions)}"
        raise OrderError(f"{manifest.model_name}: {len(regions)} files of regions are given, and {told}")
    if len(graph) > _LARGEST_GRAPH:
        raise InputError(
            f"{manifest.model_name}: the nodes left to onnxruntime have {len(graph) / 1e9:.1f} GB of weights, and an"
            f" ONNX file without files beside it holds at most {_LARGEST_GRAPH / 1e9:.1f} GB"
        )


def _write(
    file: IO[bytes], manifest: Manifest, graph: bytes, regions: Sequence[Path | bytes], marked: bytes = b""
) -> None:
    def members() -> Iterator[tuple[str, Content]]:
        yield MANIFEST, msgspec.json.encode(Contents(FORMAT_VERSION, manifest))
        yield GRAPH, graph
        for number, region in enumerate(regions):
            yield region_name(number), region if isinstance(region, bytes) else _content(region)
        if marked:
            yield _MARKED, marked

    write_members(file, members())


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from error
