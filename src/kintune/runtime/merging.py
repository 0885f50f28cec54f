"""Merges files of one model, tuned on different machines, into one that runs on all of them.

The runtime picks the variant that suits the CPU when it opens the file.  Weights that several variants hold are stored
once.  Kernels are not looked into, so files for machines of any kind can be merged on any other.  This module does not
import TVM.
"""

from __future__ import annotations

import bisect
import hashlib
import os
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from kintune.core.execution_plan import ExecutionPlan, PlannedTensor
from kintune.core.failure_report import remove_report
from kintune.core.model import Tensor
from kintune.errors import InputError
from kintune.files import check_readable, check_writable
from kintune.runtime.package import (
    ALIGNMENT,
    EncodedPlan,
    Manifest,
    Package,
    PackageVariant,
    read_manifest,
    write_package,
)
from kintune.runtime.plan_format import StoredPlan, decode_plan
from kintune_runtime.library import checksum

__all__ = ["Merged", "merge"]


class Merged(NamedTuple):
    """A merged file: the manifests of its variants, in the file's order, and sizes in bytes.

    `input_nbytes` are the sizes of the files that it was made of; `shared_nbytes` of weights are stored once where
    several variants hold them.
    """

    path: Path
    variants: tuple[Manifest, ...]
    nbytes: int
    input_nbytes: tuple[int, ...]
    shared_nbytes: int


def merge(paths: Sequence[str | os.PathLike[str]], output: str | os.PathLike[str]) -> Merged:
    """Write one file with the variants of all files, in their order, whole or not at all.

    The files hold the same model with the same inputs, outputs and combinations of shapes.  Merged files may be merged
    again.

    Raises:
        InputError: fewer than two files are given; one is missing, damaged, of another format, not for a CPU, or of
            another model; two have a variant for the same CPU; the output is one of them.
        StorageError: the output cannot be written.
    """
    if len(paths) < 2:
        raise InputError(f"a merge needs two files or more, {len(paths)} given")
    target = check_writable(output, "the output")
    given = [check_readable(path, "the file") for path in paths]
    for path in given:
        if target.exists() and target.samefile(path):
            raise InputError(f"the output {output} is one of the files that are merged; name another one")
    variants = [variant for path in given for variant in _read(path)]
    for number, variant in enumerate(variants):
        _check_same_model(variants[0], variant)
        _check_another_cpu(variants[:number], variant)
    shared, weights, made = _combined(variants)
    write_package(target, made, weights)
    with suppress(OSError):
        remove_report(target)  # it is of what lay there before
    return Merged(
        target,
        tuple(variant.manifest for variant in variants),
        target.stat().st_size,
        tuple(path.stat().st_size for path in given),
        shared,
    )


class _Source(NamedTuple):
    """A variant of a file that is merged; `weights` is the content of that file's `weights.bin`."""

    path: Path
    manifest: Manifest
    plans: tuple[StoredPlan, ...]
    libraries: tuple[bytes, ...]
    weights: npt.NDArray[np.uint8]

    @property
    def cpu(self) -> tuple[str, tuple[str, ...], str]:
        """What tells it from other variants."""
        return self.plans[0].machine, self.plans[0].isa, self.plans[0].cpu


def _read(path: Path) -> list[_Source]:
    hybrid = read_manifest(path).hybrid
    if hybrid is not None:
        raise InputError(
            f"{path}: {hybrid.summary}: a file for several CPUs cannot have that; keep a file for each of them"
        )
    package = Package.open(path)
    sources = []
    for number, (manifest, plans) in enumerate(package.variants):
        try:
            stored = tuple(decode_plan(plan.plan, checksum) for plan in plans)
        except ValueError as error:
            raise _damaged(path, str(error)) from error
        for plan, (_, library) in zip(stored, plans, strict=True):
            if plan.variant != number:
                raise _damaged(path, "its plans are in another order than its manifest says")
            if plan.library_checksum != checksum(library):
                raise _damaged(path, "a plan is for other kernels")
        sources.append(_Source(path, manifest, stored, tuple(plan.library for plan in plans), package.weights))
    return sources


def _damaged(path: Path, what: str) -> InputError:
    return InputError(f"{path}: damaged ({what}); copy it again, or build it again")


def _check_same_model(first: _Source, other: _Source) -> None:
    one, two = first.manifest, other.manifest
    if one.model_digest != two.model_digest:
        raise InputError(
            f"{first.path} and {other.path} are of different models: {one.model_name} ({one.model_digest[:12]}) and"
            f" {two.model_name} ({two.model_digest[:12]})"
        )
    if len(first.plans) != len(other.plans):
        raise InputError(
            f"{first.path} has {len(first.plans)} combinations of shapes, {other.path} has {len(other.plans)}; build"
            " them for the same shapes"
        )
    for mine, theirs in zip(first.plans, other.plans, strict=True):
        for kind, ours, others in (
            ("inputs", mine.plan.inputs, theirs.plan.inputs),
            ("outputs", mine.plan.outputs, theirs.plan.outputs),
        ):
            if _told(ours) != _told(others):
                raise InputError(
                    f"{first.path} and {other.path} have different {kind}: {_told(ours)} and {_told(others)}; build"
                    " them for the same shapes"
                )


def _told(tensors: Iterable[Tensor]) -> str:
    return ", ".join(f"{t.name} {t.dtype}{list(t.shape)}" for t in tensors) or "none"


def _check_another_cpu(before: Iterable[_Source], variant: _Source) -> None:
    for other in before:
        if other.cpu == variant.cpu:
            machine, isa, cpu = variant.cpu
            raise InputError(
                f"{other.path} and {variant.path} are for the same CPU: {cpu or machine} with"
                f" {' '.join(isa) or 'no extensions'}; leave one out"
            )


class _Block(msgspec.Struct):
    """Weights that lie together: where they will lie, whose they are, and where they are now."""

    data: npt.NDArray[np.uint8]
    variants: list[int]
    offset: int = 0


class _Part(NamedTuple):
    """The bytes from `start` on of a file's weights, and the block that they are in."""

    start: int
    block: _Block


def _combined(sources: Sequence[_Source]) -> tuple[int, npt.NDArray[np.uint8], list[PackageVariant]]:
    """The bytes of weights that were saved, the content of `weights.bin`, and the variants that refer to it."""
    blocks: dict[tuple[int, bytes], _Block] = {}
    parts_of = []
    for number, source in enumerate(sources):
        parts = []
        for start, end in _extents(source):
            data = source.weights[start:end]
            block = blocks.setdefault((data.nbytes, hashlib.sha256(data.data).digest()), _Block(data, []))
            block.variants.append(number)
            parts.append(_Part(start, block))
        parts_of.append(parts)
    weights = _laid_out(blocks.values())
    total = sum(len(source.plans) for source in sources)
    made: list[PackageVariant] = []
    for number, (source, parts) in enumerate(zip(sources, parts_of, strict=True)):
        start = min((part.block.offset for part in parts), default=0)
        end = max((part.block.offset + part.block.data.nbytes for part in parts), default=start)
        sum_of_weights = checksum(weights[start:end])
        first = number * len(source.plans)
        plans = [
            plan._replace(
                plan=_moved(plan, parts, start), weights_offset=start, weights_bytes=end - start,
                weights_checksum=sum_of_weights, number=first + place, total=total, variant=number,
            )
            for place, plan in enumerate(source.plans)
        ]  # fmt: skip
        encoded = [plan.encoded(checksum) for plan in plans]
        made.append(PackageVariant(source.manifest, tuple(map(EncodedPlan, encoded, source.libraries))))
    held = sum(block.data.nbytes * len(block.variants) for block in blocks.values())
    return held - sum(block.data.nbytes for block in blocks.values()), weights, made


def _extents(source: _Source) -> list[tuple[int, int]]:
    """The parts of `weights.bin` that a variant's tensors lie in, in order; tensors that overlap share one."""
    spans = []
    for stored in source.plans:
        for tensor in _weights_of(stored.plan):
            start = stored.weights_offset + tensor.offset
            end = start + tensor.nbytes
            inside = tensor.offset + tensor.nbytes <= stored.weights_bytes and end <= source.weights.nbytes
            if start % ALIGNMENT or not inside:
                raise _damaged(source.path, "a tensor lies outside of the weights")
            spans.append((start, end))
    merged: list[tuple[int, int]] = []
    for start, end in sorted(spans):
        if merged and start < merged[-1][1]:
            merged[-1] = merged[-1][0], max(end, merged[-1][1])
        else:
            merged.append((start, end))
    return merged


def _weights_of(plan: ExecutionPlan) -> list[PlannedTensor]:
    return [tensor for tensor in plan.tensors if tensor.place == "weights" and tensor.nbytes]


def _laid_out(blocks: Iterable[_Block]) -> npt.NDArray[np.uint8]:
    """Gives every block its place, and returns the content of `weights.bin`.

    The runtime reads a variant's weights from its first block to its last, so those that two variants share lie
    between those of the one and those of the other.
    """
    end, ordered = 0, sorted(blocks, key=lambda block: sum(block.variants) / len(block.variants))
    for block in ordered:
        block.offset = end + -end % ALIGNMENT
        end = block.offset + block.data.nbytes
    content = np.zeros(end, np.uint8)
    for block in ordered:
        content[block.offset : block.offset + block.data.nbytes] = block.data
    return content


def _moved(stored: StoredPlan, parts: Sequence[_Part], base: int) -> ExecutionPlan:
    """The plan with its weights where they lie from now on, counted from `base`."""
    starts = [part.start for part in parts]

    def moved(tensor: PlannedTensor) -> PlannedTensor:
        if tensor.place != "weights":
            return tensor
        if not tensor.nbytes:
            return msgspec.structs.replace(tensor, offset=0)
        at = stored.weights_offset + tensor.offset
        part = parts[bisect.bisect_right(starts, at) - 1]
        return msgspec.structs.replace(tensor, offset=part.block.offset + at - part.start - base)

    return msgspec.structs.replace(stored.plan, tensors=tuple(map(moved, stored.plan.tensors)))
