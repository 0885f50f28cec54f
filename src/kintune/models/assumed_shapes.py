"""Shapes of inputs whose extents neither the model's file nor the user names: ranges, by what each dimension is."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import NamedTuple

import msgspec

from kintune.core.capabilities import Capabilities
from kintune.core.config import Options
from kintune.core.model import AnyShape, Combination, ModelRef
from kintune.models.exported_program import declared_shapes
from kintune.models.graph_file import open_graph
from kintune.models.open_shapes import ranged_inputs
from kintune.models.ref import EXPORTED, ZOO
from kintune.models.shapes import ELEMENT_TYPES, Dimension, declared_shape

__all__ = ["assumed", "assumes_ranges", "narrower", "possible_inputs"]

_BATCH = range(1, 5)
_SIDES = range(32, 641, 32)  # pixels
_SAMPLES = range(512, 16385, 512)  # of sound
_STEPS = range(1, 513)  # characters, words, frames
_MOST_ELEMENTS = 1 << 22  # of an input for the greatest extents

_ONE, _SIDE, _FEW = 1, 224, 64
"""The extents in place of ranges where a network is not the same for all: of a batch, an image, and others."""

_SMALL = {_SIDES: 160, _SAMPLES: 4096, _STEPS: 16}
"""The least extents where a network is not the same for smaller ones, since a window does not fit, for example."""

_ROWS = (48, 32)
"""The rows of pixels of a line of text, as recognisers of text take them."""

_CHANNELS = (1, 3, 4)
_IS_BATCH = ("batch", "bs")
_IS_LENGTH = ("seq", "len", "time", "frame")
_IS_SIDE = ("height", "width")
_IS_SOUND = ("audio", "wav", "sample", "signal", "speech", "pcm")


class _Input(NamedTuple):
    """The declared dimensions of an input, with the ranges that the file names, and whether it holds whole numbers."""

    dimensions: tuple[Dimension, ...]
    named: Mapping[int, range]
    integers: bool


def assumes_ranges(ref: ModelRef, options: Options, device: Capabilities, *, calibrated: bool) -> bool:
    """Whether extents that nobody names become ranges: not for what takes fixed shapes."""
    fixed = calibrated or options.weights or options.other_shapes == "onnxruntime"
    return device.several_shapes and ref.kind != ZOO and not ref.more_shapes and not fixed


def assumed(ref: ModelRef) -> ModelRef:
    """The model with ranges for the inputs whose shapes are not known; the same one if there are none.

    Raises:
        ModelError: the file is damaged.
        OrderError: the model comes from PyTorch, and PyTorch is not installed.
    """
    inputs = _declared(ref)
    sizes: dict[str, int | range] = {}
    shapes = ref.any_shapes
    for name, shape in shapes.items():
        if name in inputs and len(shape) == len(inputs[name].dimensions):
            sizes.update(
                (each, extent)
                for each, extent in zip(inputs[name].dimensions, shape, strict=True)
                if isinstance(each, str) and each
            )
    found: dict[str, AnyShape] = {}
    for name, each in inputs.items():
        if name in ref.constants or name in shapes:
            continue
        if all(isinstance(one, int) or one in sizes for one in each.dimensions):
            continue
        found[name] = tuple(
            one if isinstance(one, int) else sizes.get(one) or _extents(name, each, axis)
            for axis, one in enumerate(each.dimensions)
        )
        sizes.update(
            (one, extent)
            for one, extent in zip(each.dimensions, found[name], strict=True)
            if isinstance(one, str) and one
        )
    if not found:
        return ref
    made = {name: _of_few(shape, inputs[name]) for name, shape in found.items()}
    return msgspec.structs.replace(ref.with_combinations([{**shapes, **made}]), assumed=tuple(made))


def narrower(ref: ModelRef) -> Iterator[ModelRef]:
    """The model with fewer of the extents that were assumed, those with most of them first, and last with one of each.

    Without small extents, or with one batch; then for images of lines of text, which have few rows.
    """
    one, few = partial(_fixed, only=_BATCH), partial(_fixed, only=None)
    lines = [partial(_line, rows=rows) for rows in _ROWS]
    tried: list[tuple[Callable[[AnyShape], AnyShape], ...]] = [(_larger,), (one,), (one, _larger)]
    tried += [*((line,) for line in lines), (few,), *((line, few) for line in lines)]
    seen = [ref.any_shapes]
    for changes in tried:
        shapes = ref.any_shapes
        for change in changes:
            shapes = {name: change(shape) for name, shape in shapes.items()}
        if shapes not in seen:
            seen.append(shapes)
            yield msgspec.structs.replace(ref.with_combinations([shapes]), assumed=ref.assumed)


def possible_inputs(
    ref: ModelRef, options: Options, device: Capabilities, *, calibrated: bool = False
) -> tuple[Combination, ...]:
    """What `ranged_inputs` returns for the model, with ranges for extents that nobody names where these become some.

    Raises:
        ModelError: as for `ranged_inputs`.
        OrderError: as for `ranged_inputs`.
    """
    return ranged_inputs(assumed(ref) if assumes_ranges(ref, options, device, calibrated=calibrated) else ref)


def _declared(ref: ModelRef) -> dict[str, _Input]:
    if ref.kind == EXPORTED:
        return {name: _Input(*each) for name, each in declared_shapes(ref).items()}
    file = open_graph(Path(ref.source), own=ref.reads_other_files)
    found = {}
    for value in file.graph.graph.input:
        if (dimensions := declared_shape(str(file.path), value)) is not None:
            kind = ELEMENT_TYPES[value.type.tensor_type.elem_type]
            found[value.name] = _Input(dimensions, {}, kind.startswith(("int", "uint")))
    return found


def _extents(name: str, of: _Input, axis: int) -> int | range:
    """The range of an open dimension, by its name and place."""
    called = str(of.dimensions[axis]).lower()
    rank = len(of.dimensions)
    if axis in of.named:
        return of.named[axis]
    is_first = axis == 0 and rank > 1 and not any(word in called for word in _IS_LENGTH)
    if is_first or any(word in called for word in _IS_BATCH):
        return _BATCH
    if (
        called in ("h", "w")
        or any(word in called for word in _IS_SIDE)
        or (rank == 4 and axis in _sides(of.dimensions))
    ):
        return _SIDES
    is_sound = any(word in text for word in _IS_SOUND for text in (called, name.lower()))
    return _SAMPLES if is_sound and not of.integers else _STEPS


def _sides(dimensions: tuple[Dimension, ...]) -> tuple[int, ...]:
    """The axes of height and width of an image."""
    if dimensions[1] in _CHANNELS:
        return 2, 3
    return (1, 2) if dimensions[3] in _CHANNELS else ()


def _of_few(shape: AnyShape, of: _Input) -> AnyShape:
    """The shape; where the greatest would have very many elements, with the batch fixed, or all extents."""
    for few in (shape, _fixed(shape, only=_BATCH)):
        most = math.prod(extent if isinstance(extent, int) else extent[-1] for extent in few)
        if of.named or most <= _MOST_ELEMENTS:
            return few
    return _fixed(shape)


def _usual(extents: range) -> int:
    """The extent in place of a range."""
    usual = _ONE if extents == _BATCH else _SIDE if extents.step == _SIDES.step else _FEW
    return min(max(usual, extents[0]), extents[-1])


def _line(shape: AnyShape, rows: int) -> AnyShape:
    """An image of so many rows and any width, in place of one whose height and width are open."""
    if shape.count(_SIDES) < 2:
        return shape
    first = shape.index(_SIDES)
    return (*shape[:first], rows, *shape[first + 1 :])


def _larger(shape: AnyShape) -> AnyShape:
    return tuple(range(_SMALL[extent], extent.stop, extent.step) if extent in _SMALL else extent for extent in shape)


def _fixed(shape: AnyShape, only: range | None = None) -> AnyShape:
    """The shape with an extent in place of each range, or of each that is this one."""
    return tuple(
        extent if isinstance(extent, int) or only not in (None, extent) else _usual(extent) for extent in shape
    )
