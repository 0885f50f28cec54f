"""The open dimensions of a model whose result runs with any extents in ranges.

Axes of inputs with the same name in the model's file have the same extent.  Where the file has no names, equal ranges
of several inputs go together, the first with the first, as alternatives do.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from kintune.core.execution_plan import OpenExtent
from kintune.core.model import Combination, ModelRef, Tensor, spell_shapes
from kintune.errors import ShapeError
from kintune.models.declared_inputs import declared_inputs
from kintune.models.graph_file import open_graph
from kintune.models.ref import ONNX, ZOO
from kintune.models.shapes import dimension_names

__all__ = ["OpenShapes", "open_shapes", "ranged_inputs"]


class OpenShapes(NamedTuple):
    """The open dimensions of the model `ref`, and which one each open axis of an input has."""

    ref: ModelRef
    dimensions: tuple[OpenExtent, ...]
    axes: dict[tuple[str, int], str]

    def at(self, extents: Mapping[str, int]) -> ModelRef:
        """The model with fixed shapes: those for these extents of the dimensions, counted in steps."""
        found = {each.name: each.extent(extents[each.name]) for each in self.dimensions}
        shapes = {
            name: tuple(found.get(self.axes.get((name, axis), ""), extent) for axis, extent in enumerate(shape))
            for name, shape in self.ref.shapes.items()
        }
        return self.ref.with_combinations([shapes])

    def ranged(self, inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """The inputs of the greatest extents, with the ranges of their extents.

        Raises:
            ShapeError: the model does not take the least extents.
        """
        (least,) = declared_inputs(self.at({each.name: each.steps(each.least) for each in self.dimensions}))
        by_name = {each.name: each for each in self.dimensions}
        made = []
        for tensor in inputs:
            own = [by_name.get(self.axes.get((tensor.name, axis), "")) for axis in range(len(tensor.shape))]
            ranges = tuple(
                (low, high, 0) if each is None else (each.least, each.greatest, each.step)
                for each, low, high in zip(own, least.shapes[tensor.name], tensor.shape, strict=True)
            )
            is_open = any(low < high for low, high, _ in ranges)
            made.append(msgspec.structs.replace(tensor, ranges=ranges) if is_open else tensor)
        return tuple(made)


def ranged_inputs(ref: ModelRef) -> tuple[Combination, ...]:
    """What `declared_inputs` returns, with the ranges of open extents.

    Raises:
        ModelError: as for `declared_inputs`; `ShapeError` as for `open_shapes`.
        OrderError: as for `declared_inputs`.
    """
    declared = declared_inputs(ref)
    if not ref.ranges:
        return declared
    (only,) = declared
    return (msgspec.structs.replace(only, inputs=open_shapes(ref, only.inputs).ranged(only.inputs)),)


def open_shapes(ref: ModelRef, inputs: Sequence[Tensor]) -> OpenShapes:
    """The open dimensions of a model with these inputs.

    Raises:
        ShapeError: the model has fixed inputs, a range is for a constant, or one dimension has two ranges.
    """
    if ref.kind == ZOO:
        raise ShapeError(f"zoo:{ref.source}: networks of the zoo have fixed shapes; ranges are for models in files")
    named = dimension_names(open_graph(Path(ref.source), own=ref.reads_other_files).graph) if ref.kind == ONNX else {}
    places = {tensor.name: place for place, tensor in enumerate(inputs)}
    dimensions: dict[str, OpenExtent] = {}
    axes: dict[tuple[str, int], str] = {}
    unnamed: dict[tuple[str, range], str] = {}
    for name, ranges in ref.ranges.items():
        if name not in places:
            raise ShapeError(f"{ref.source}: {name} is a constant, which has one shape; leave its range out")
        seen = Counter[range]()
        for axis, least, step in ranges:
            extents = range(least, ref.shapes[name][axis] + 1, step)
            called = (named.get(name) or {}).get(axis, "")
            if not called:
                seen[extents] += 1
                called = unnamed.setdefault((str(seen[extents]), extents), f"{name}[{axis}]")
            made = OpenExtent(called, places[name], axis, least, extents[-1], step)
            known = dimensions.setdefault(called, made)
            if (known.least, known.greatest, known.step) != (made.least, made.greatest, made.step):
                both = " and ".join(spell_shapes({"": (e,)})[1:] for e in (known.extents, made.extents))
                raise ShapeError(
                    f"{ref.source}: dimension {called} has the ranges {both}; it has one size, so give one"
                )
            axes[name, axis] = called
    return OpenShapes(ref, tuple(dimensions.values()), axes)
