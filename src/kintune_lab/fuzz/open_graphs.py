"""ONNX graphs with open extents as subjects: a drawn graph that takes other extents, too, with inputs at several."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from onnx import NodeProto, ValueInfoProto

from kintune.models.onnx_nodes import subgraphs, used_tensors
from kintune_lab.fuzz.evaluation import Evaluator, Refused, Value, extents_of
from kintune_lab.fuzz.graph import DrawnGraph
from kintune_lab.fuzz.known import expected_of, undefined
from kintune_lab.fuzz.onnx_graphs import OnnxGraphs
from kintune_lab.fuzz.subject import ModelPart, Values
from kintune_lab.fuzz.values import draw_ordinary

__all__ = ["OpenGraphs"]

_NAMES = ("n", "m")
_SECOND = 0.3  # share of the graphs that have a second open extent
_STEPS = 0.2  # share of the ranges that have a step
_STEP = 2


class OpenGraphs(OnnxGraphs):
    """The graphs of a seed with open extents.

    All axes of inputs that have one drawn extent become one open dimension.  Nodes that onnxruntime does not run at
    other extents are left out, and what depends on them.  The sets of inputs are at both ends of the ranges, at the
    drawn extents and at two between.
    """

    def draw(self, number: int) -> None:
        """As `Subject.draw`."""
        super().draw(number)
        for node in self._drawn.nodes:
            _without_shapes(node)
        rng = np.random.default_rng((self._seed, number, 2))
        self._ranges = {extent: _range(rng, extent) for extent in _opened(self._drawn, self._evaluator, rng)}
        points = _points(rng, self._ranges)
        others = [_evaluated(self._drawn, self._evaluator, rng, point) for point in points]
        self._sets: list[Values] = [self._drawn.values, *others]
        self._columns = {
            (extent, *(point[extent] for point in points)): (name, self._ranges[extent])
            for name, extent in zip(_NAMES, self._ranges, strict=False)
        }
        is_run = [all(name in each for each in others for name in node.output if name) for node in self._drawn.nodes]
        self._drawn.nodes = [node for node, kept in zip(self._drawn.nodes, is_run, strict=True) if kept]

    def sets(self, wanted: int) -> list[Values]:
        """As `Subject.sets`; one for each of the extents, however many are `wanted`."""
        return self._sets

    def part(self, kept: Sequence[int]) -> ModelPart:
        """As `Subject.part`; parts whose inputs have other extents than the open ones are refused."""
        part = super().part(kept)
        graph = part.content.model.graph
        shapes = [text for value in graph.input if (text := self._open(value))]
        if not shapes:
            raise Refused("no input has an open extent")
        for value in graph.output:
            value.type.tensor_type.ClearField("shape")
        return replace(part, shapes=tuple(shapes))

    def listing(self, part: ModelPart) -> str:
        """As `Subject.listing`, with the shapes."""
        return "\n".join([*(f"--shape '{each}'" for each in part.shapes), super().listing(part)])

    def _open(self, value: ValueInfoProto) -> str:
        """Name the open axes of an input; returns its shape as `parse_ref` takes it, "" if all extents are known.

        Raises:
            Refused: an extent changes, and is not an open one.
        """
        dims, spelled = value.type.tensor_type.shape.dim, []
        for axis, dim in enumerate(dims):
            column = tuple(np.shape(each[value.name])[axis] for each in self._sets)
            if len(set(column)) == 1:
                spelled.append(str(dim.dim_value))
            elif column in self._columns:
                dim.dim_param, extents = self._columns[column]
                step = f":{extents.step}" if extents.step > 1 else ""
                spelled.append(f"{{{extents[0]}..{extents[-1]}{step}}}")
            else:
                raise Refused(f"an extent of {value.name} depends on an open one")
        return f"{value.name}={'x'.join(spelled)}" if any("." in each for each in spelled) else ""


def _without_shapes(node: NodeProto) -> None:
    """Remove the shapes that the bodies of a node declare."""
    for graph in subgraphs(node):
        for value in (*graph.input, *graph.output):
            if value.type.WhichOneof("value") == "tensor_type":
                value.type.tensor_type.ClearField("shape")
        for inner in graph.node:
            _without_shapes(inner)


def _opened(drawn: DrawnGraph, evaluator: Evaluator, rng: np.random.Generator) -> list[int]:
    """The extents of inputs that become open: those with which most nodes run and have other extents, if any do."""
    inputs = [drawn.values[name] for name, leaf in drawn.leaves.items() if not leaf.constant]
    extents = sorted({extent for value in inputs for extent in np.shape(value) if extent > 1})

    def changed(*opened: int) -> int:
        values = _evaluated(drawn, evaluator, rng, {extent: 2 * extent for extent in opened})
        return sum(
            any(extents_of(values[name]) != extents_of(drawn.values[name]) for name in node.output if name in values)
            for node in drawn.nodes
        )

    found = sorted(((changed(extent), extent) for extent in extents), reverse=True)
    chosen = [extent for number, extent in found if number][: 1 + (rng.random() < _SECOND)]
    return chosen if len(chosen) < 2 or changed(*chosen) >= found[0][0] else chosen[:1]


def _range(rng: np.random.Generator, extent: int) -> range:
    """From about a third of an extent, at least 2, to twice of it; the extent is in it."""
    step = _STEP if extent > 2 * _STEP and rng.random() < _STEPS else 1
    below = (extent - max(extent // 3, 2)) // step
    return range(extent - below * step, 2 * extent + 1, step)


def _points(rng: np.random.Generator, ranges: Mapping[int, range]) -> list[dict[int, int]]:
    """By drawn extent another one: the least and the greatest, and two between."""
    drawn = [{extent: int(rng.choice(extents)) for extent, extents in ranges.items()} for _ in range(2)]
    return [{e: extents[0] for e, extents in ranges.items()}, {e: extents[-1] for e, extents in ranges.items()}, *drawn]


def _evaluated(
    drawn: DrawnGraph, evaluator: Evaluator, rng: np.random.Generator, extents: Mapping[int, int]
) -> dict[str, Value]:
    """Values of tensors whose inputs have other `extents`, without those that cannot be computed or are undefined."""
    values: dict[str, Value] = {}
    for name, leaf in drawn.leaves.items():
        first = np.asarray(drawn.values[name])
        shape = tuple(extents.get(extent, extent) for extent in first.shape)
        values[name] = first if leaf.constant else draw_ordinary(rng, first.dtype.name, shape, leaf.role)
    for node in drawn.nodes:
        with contextlib.suppress(Refused, ValueError, IndexError):
            if values.keys() >= set(used_tensors(node)) and not undefined(node, values):
                values |= expected_of(evaluator, node, values)[0]
    return values
