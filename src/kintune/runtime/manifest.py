"""`manifest.json`: what a `.kt` file is and what it needs; any process can read it, without TVM."""

from __future__ import annotations

import math
import os
import zipfile
from pathlib import Path

import msgspec

from kintune.core.capabilities import Capabilities, capabilities_of
from kintune.core.dtypes import numpy_dtype
from kintune.core.hybrid import Hybrid
from kintune.core.kernel_bounds import KernelBounds
from kintune.core.kernel_call import CallRecord
from kintune.core.model import Combination, IndexCheck, Tensor
from kintune.core.quantisation import Quantised
from kintune.errors import InputError
from kintune.runtime.stored_zip import MANIFEST, damaged, reading

__all__ = [
    "FORMAT_VERSION",
    "Contents",
    "Manifest",
    "Narrow",
    "WeightSlot",
    "contents_of",
    "read_manifest",
    "read_manifests",
]

FORMAT_VERSION = 2
"""Raised when an older Kintune could no longer read what a newer one writes."""

_MOST_THREADS = 4096
_LARGEST_TENSOR = 1 << 40  # elements; models that are imported now have inputs of fewer
_LARGEST_INTEGER = 1 << 63

_MANIFEST_LIMIT = 64 << 20  # bytes, far above any real manifest: bounds the allocation when the length is damaged


class Narrow(msgspec.Struct, frozen=True):
    """Which subgraphs compute narrower than the model's types.

    `precisions` has "bf16" or the like by the subgraph's title.  `max_error` was allowed at the outputs, as a share of
    their norm; `error` is what was measured on inputs that the choice had not seen, None before it was measured.
    `quantised` says how many products compute on integers, where the model was quantised for that.
    `kept_tensors` counts the tensors between kernels that are kept in bf16, those of all plans.
    """

    precisions: dict[str, str]
    max_error: float
    error: float | None = None
    quantised: Quantised | None = None
    kept_tensors: int = 0


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """What an executable is and what it needs.

    `inputs` and `outputs` are named and shaped as in the model, in its order.  `target` is the compiler's target as
    JSON; `machine` (as `platform.machine()` says) and `isa` (see `hardware.instruction_set`) are what a CPU must
    offer; `threads` ran each kernel when it was chosen.  `chosen` maps workload digests to candidate digests.
    `cpu` is the name of the CPU on which it was tuned, as the system says it; empty where that is not known.
    `created` is UTC in ISO 8601; `kintune` and `tvm` are the versions that built it.  `checks` says what results after
    the outputs are for (see `kintune.runtime.inputs`).  Where it runs with several combinations of shapes, these are of
    the first, and `more` has the others, in the order of the plans.  `hybrid` says what runs where in a result that
    runs partly in onnxruntime (see `kintune.runtime.hybrid_package`).  `calls` says of each plan what its kernel calls
    compute; it is empty in files of earlier versions, and in those for a GPU.  `narrow` says what computes narrower
    than the model's types; None where nothing does.  With `keep_denormals`, denormal numbers are not flushed to zero.
    `bounds` says of each plan which kernels are known to stay inside of their buffers; like `calls`, it may be empty.
    `exporter` names what exported the program of PyTorch to the ONNX graph that it was made of; empty of other models.
    Where extents of inputs are open, `drawn` has some of the shapes that they may have, at which results are compared.
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
    hybrid: Hybrid | None = None
    calls: tuple[tuple[CallRecord, ...], ...] = ()
    narrow: Narrow | None = None
    keep_denormals: bool = False
    bounds: tuple[KernelBounds, ...] = ()
    exporter: str = ""
    drawn: tuple[dict[str, tuple[int, ...]], ...] = ()

    @property
    def capabilities(self) -> Capabilities:
        """What the devices that it was built for can do."""
        return capabilities_of(self.target, self.isa, self.threads)

    @property
    def combinations(self) -> tuple[Combination, ...]:
        """All combinations of shapes in order, at least one."""
        return (Combination(self.inputs, self.outputs, self.checks), *self.more)


class WeightSlot(msgspec.Struct, frozen=True):
    """The place of a weight in `weights.bin`."""

    shape: tuple[int, ...]
    dtype: str
    offset: int
    nbytes: int


class Contents(msgspec.Struct, frozen=True):
    """The whole of `manifest.json`.

    `plans` is the number of plans of a file for CPUs, `weights` are those of a file for the virtual machine.
    `executable` is the first variant, `others` are those after it.
    """

    format: int
    executable: Manifest
    weights: tuple[WeightSlot, ...] = ()
    plans: int = 0
    others: tuple[Manifest, ...] = ()

    @property
    def manifests(self) -> tuple[Manifest, ...]:
        """Those of all variants, in the file's order."""
        return (self.executable, *self.others)


class _Header(msgspec.Struct, frozen=True):
    """The part of `manifest.json` that every format version has."""

    format: int


def read_manifest(path: str | os.PathLike[str]) -> Manifest:
    """Reads the manifest alone, that of the first variant.

    Raises:
        InputError: as for `read_manifests`.
    """
    return read_manifests(path)[0]


def read_manifests(path: str | os.PathLike[str], place: str = "") -> tuple[Manifest, ...]:
    """Reads the manifests of all variants, at least one.

    The file is opened at `place`, by default at `path`; `path` is for messages.

    Raises:
        InputError: the file is missing, is no Kintune executable, is damaged, or is of another format.
    """
    path = Path(path)
    with reading(path, place) as archive:
        return contents_of(archive, path).manifests


def contents_of(archive: zipfile.ZipFile, path: Path) -> Contents:
    """Reads the manifest of an opened archive; `path` is for messages.

    Raises:
        InputError: it is none, damaged, or of another format.
    """
    if archive.getinfo(MANIFEST).file_size > _MANIFEST_LIMIT:
        raise damaged(path, f"{MANIFEST} is too large")
    text = archive.read(MANIFEST)
    try:
        version = msgspec.json.decode(text, type=_Header).format
        if version != FORMAT_VERSION:
            raise InputError(
                f"{path}: written in format {version}, this Kintune reads format {FORMAT_VERSION};"
                " `kintune compile MODEL --output FILE.kt` makes a new one from the records, without measuring"
            )
        contents = msgspec.json.decode(text, type=Contents)
    except msgspec.MsgspecError as error:
        raise InputError(f"{path}: not a Kintune executable: {MANIFEST}: {error}") from error
    if problem := next(filter(None, map(_problem, contents.manifests)), ""):
        raise damaged(path, f"{MANIFEST}: {problem}")
    return contents


def _problem(manifest: Manifest) -> str:
    """What cannot be in a manifest, and no checksum tells; empty where nothing is wrong."""
    if not 1 <= manifest.threads <= _MOST_THREADS:
        return f"{manifest.threads} threads"
    try:
        msgspec.json.decode(manifest.target, type=dict)
    except msgspec.MsgspecError:
        return f"target {manifest.target}"
    for combination in manifest.combinations:
        for tensor in combination.inputs:
            if min(tensor.shape, default=0) < 0 or math.prod(tensor.shape) > _LARGEST_TENSOR:
                return f"input {tensor.name} of shape {tensor.shape}"
            kind = _kind_of(tensor.dtype)
            if not kind or (tensor.values == "bytes" and kind not in "iu"):
                return f"input {tensor.name} of {tensor.values or 'type'} {tensor.dtype}"
            if (
                tensor.bounds is not None
                and not -_LARGEST_INTEGER <= tensor.bounds[0] <= tensor.bounds[1] < _LARGEST_INTEGER
            ):
                return f"input {tensor.name} with indices from {tensor.bounds[0]} to {tensor.bounds[1]}"
    return ""


def _kind_of(dtype: str) -> str:
    """The kind of an input's elements, as numpy names it; empty where there are none of this type."""
    try:
        return numpy_dtype(dtype).kind
    except (AttributeError, TypeError, ValueError):
        return ""
