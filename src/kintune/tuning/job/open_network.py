"""The network of a job whose result takes any shapes in ranges: lowered for a few, and for more where that is needed.

See `kintune.compiler.graph.open_plan`, which makes one plan of these.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TypeVar

import tvm

from kintune.compiler.graph.executable import build_open
from kintune.compiler.graph.generalise import Points
from kintune.compiler.graph.lower import Lowered
from kintune.compiler.graph.open_plan import LoweredPoint, MorePoints, check_open, is_open, modules_at
from kintune.compiler.programs.registry import program_named
from kintune.core.candidate import Candidate, Sketch
from kintune.core.execution_plan import OpenExtent
from kintune.core.model import Combination
from kintune.errors import BuildError, ModelError, cause_line
from kintune.models.declared_inputs import declared_inputs
from kintune.models.importer import load
from kintune.models.model import ImportedModel
from kintune.models.open_shapes import OpenShapes
from kintune.runtime.executable import Executable
from kintune.runtime.manifest import Manifest
from kintune.search.processor import Processor
from kintune.search.sketch_program import program_of
from kintune.tuning.job.lowering import lower_network

__all__ = ["OpenNetwork", "drawn_extents", "first_points"]

_log = logging.getLogger(__name__)

_Made = TypeVar("_Made")

_SHARES = (0.31, 0.47, 0.13, 0.61)  # of a range, where its first points lie
_TURN = 2  # each dimension begins with another share, so that points tell dimensions apart
_MOST_POINTS = 16
_DRAWN = (0.0, 0.07, 0.29, 0.53, 0.83)  # of a range, in logarithm, where results are compared; its ends are besides


class OpenNetwork:
    """A network for all extents of the open dimensions of `shapes`.

    What follows from open extents, such as the places of a grid, is no constant where that makes it the same for all.
    `model` is then the model for the greatest extents as it was lowered.
    """

    def __init__(
        self, shapes: OpenShapes, shaped: Combination, lowered: Lowered, target: tvm.target.Target, conservative: bool
    ) -> None:
        """Lower it for the first points, and for more until all numbers have a formula.

        Raises:
            ModelError: the model cannot be imported or lowered for one of them, or is not the same for all extents.
        """
        self.shapes = shapes
        self._target = target
        self._conservative = conservative
        self.model: ImportedModel | None = None
        self._positions = False
        greatest = {each.name: each.steps(each.greatest) for each in shapes.dimensions}
        self._points = [LoweredPoint(greatest, lowered, shaped)]
        try:
            self._modules = self._checked()
        except BuildError as error:
            self._positions, self.model = True, load(shapes.at(greatest), positions=True)
            if not self.model.positions:
                raise ModelError(f"{shapes.ref.source}: {error}") from error
            _log.info(f"positions become weights, since {error}")
            self._points = [self._lowered_at(greatest, self.model)]
            try:
                self._modules = self._checked()
            except BuildError as again:
                raise ModelError(f"{shapes.ref.source}: {again}") from again

    def _checked(self) -> dict[str, list[list[tvm.IRModule]]]:
        """The modules at the first points and at those that are needed besides, at which the network is the same.

        Raises:
            BuildError: it is not.
            ModelError: it cannot be imported or lowered for one of them.
        """
        for extents in first_points(self.shapes.dimensions):
            self._add(extents)
        modules_at(self._points)
        self._with_points(lambda: check_open(self._points, self.shapes.dimensions, self._target))
        self._check_least()
        return modules_at(self._points)

    def _check_least(self) -> None:
        """Check that outputs have the shapes at the least extents that those at the points make expect.

        A slice to a fixed end has another shape at extents below that end, for example.

        Raises:
            BuildError: they have others, or the model cannot be imported.
        """
        least = {each.name: each.steps(each.least) for each in self.shapes.dimensions}
        if least in [point.extents for point in self._points]:
            return
        try:
            found = load(self.shapes.at(least), positions=self._positions).outputs
        except ModelError as error:  # a window is larger than the least image, for example
            said = f"it cannot be imported for {self._spelled(least)}: {error}"
            raise BuildError(f"the network is not the same for all extents: {said}; begin the ranges later") from error
        fits = Points([point.extents for point in self._points])
        for output, *others in zip(found, *(point.shaped.outputs for point in self._points), strict=True):
            shapes = [each.shape for each in others]
            formulas = [fits.formula(values) for values in zip(*shapes, strict=True)]
            wanted = [each and each.value(least) for each in formulas]
            if wanted != list(output.shape):
                said = f"{output.name} has the shape {list(output.shape)} for {self._spelled(least)}, not {wanted}"
                raise BuildError(f"the network is not the same for all extents: {said}; begin the ranges later")

    def _spelled(self, extents: Mapping[str, int]) -> str:
        return ", ".join(f"{each.name}={each.extent(extents[each.name])}" for each in self.shapes.dimensions)

    @property
    def lowered(self) -> Lowered:
        """The network as it is lowered for the greatest extents."""
        return self._points[-1].lowered

    def _add(self, extents: Mapping[str, int]) -> None:
        """Lower it for these extents, counted in steps, too; the greatest ones stay the last."""
        model = load(self.shapes.at(extents), positions=self._positions)
        self._points.insert(-1, self._lowered_at(extents, model))

    def _lowered_at(self, extents: Mapping[str, int], model: ImportedModel) -> LoweredPoint:
        lowered, conservative, _ = lower_network(model, self._target, conservative=self._conservative, any_size=True)
        if conservative != self._conservative:
            raise ModelError(f"{model.name}: the network is not lowered in the same way for all extents")
        return LoweredPoint(extents, lowered, Combination(model.inputs, model.outputs, model.checks))

    def openable(self, sketches: Sequence[Sketch], processor: Processor) -> list[Sketch]:
        """Those of the sketches whose first programs are written for any extents (see `is_open`)."""
        return [sketch for sketch in sketches if self._first_is_open(sketch, processor)]

    def _first_is_open(self, sketch: Sketch, processor: Processor) -> bool:
        if sketch.workload not in self._modules:
            return True
        if not (name := program_of(sketch)):
            return False
        program, variant = program_named(name)
        with suppress(BuildError):
            for decisions in program.rule(self._modules[sketch.workload][0][-1], variant, processor):
                return self.is_open(sketch, Candidate(sketch.workload, sketch.digest, decisions))
        return False

    def is_open(self, sketch: Sketch, candidate: Candidate) -> bool:
        """Whether a program is written for any extents, or its workload has the same always."""
        return is_open(sketch, candidate, self._modules.get(sketch.workload, ()))

    def build(self, chosen: Mapping[str, tuple[Sketch, Candidate]], manifest: Manifest, *, threads: int) -> Executable:
        """Compile it with these programs for its workloads at the greatest extents.

        Raises:
            BuildError: it cannot be compiled for any extents; the text says why.
        """
        drawn = [self._shapes_at(each) for each in drawn_extents(self.shapes.dimensions)]
        dimensions = self.shapes.dimensions
        return self._with_points(
            lambda: build_open(self._points, dimensions, chosen, self._target, manifest, drawn, threads=threads)
        )

    def _with_points(self, made: Callable[[], _Made]) -> _Made:
        """What `made` makes of the points, with as many more as it asks for."""
        while True:
            try:
                return made()
            except MorePoints as more:
                known = [dict(point.extents) for point in self._points]
                new = [
                    dict(each)
                    for at, each in enumerate(more.points)
                    if dict(each) not in known and each not in more.points[:at]
                ]
                if not new or len(known) + len(new) > _MOST_POINTS:
                    raise BuildError(
                        "the network is not the same for all extents: its numbers follow no rule"
                    ) from more
                for extents in new:
                    self._add_to_tell(extents)

    def _add_to_tell(self, extents: Mapping[str, int]) -> None:
        spelled = self._spelled(extents)
        _log.info(f"lowering the network for {spelled} as well: several rules give its numbers so far")
        try:
            self._add(extents)
        except Exception as error:
            raise BuildError(f"the network cannot be lowered for {spelled}: {cause_line(error)}") from error

    def _shapes_at(self, extents: Mapping[str, int]) -> dict[str, tuple[int, ...]]:
        """The shapes of all inputs for these extents."""
        return declared_inputs(self.shapes.at(extents))[0].shapes


def first_points(dimensions: Sequence[OpenExtent]) -> list[dict[str, int]]:
    """Extents, counted in steps, for which a network is lowered first, besides the greatest ones.

    They lie inside of the ranges as far as these have an inside: an extent of 1 is broadcast, and its loops are left
    out.
    """
    made: list[dict[str, int]] = []
    greatest = {each.name: each.steps(each.greatest) for each in dimensions}
    for at in range(len(_SHARES)):
        point = {}
        for number, each in enumerate(dimensions):
            share = _SHARES[(at + _TURN * number) % len(_SHARES)]
            last = len(each.extents) - 1
            point[each.name] = each.steps(each.extents[min(max(round(share * last), 1), last - 1)])
        if point not in made and point != greatest:
            made.append(point)
    return made


def drawn_extents(dimensions: Sequence[OpenExtent]) -> list[dict[str, int]]:
    """Extents, counted in steps, at which a result is compared: the ends of the ranges, and some between.

    Several dimensions are at different shares of their ranges.
    """
    made: list[dict[str, int]] = []
    for at in range(len(_DRAWN)):
        point = {}
        for number, each in enumerate(dimensions):
            share = _DRAWN[(at + number * (at > 0)) % len(_DRAWN)]
            extent = each.least * (each.greatest / each.least) ** share
            point[each.name] = each.steps(each.extents[round((extent - each.least) / each.step)])
        if point not in made:
            made.append(point)
    return made
