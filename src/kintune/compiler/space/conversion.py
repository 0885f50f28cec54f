"""Candidates of earlier programs as candidates of today's, where each named decision says the same."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import tvm

from kintune.compiler.programs.earlier import EARLIER, named_axes
from kintune.compiler.programs.registry import PROGRAMS, program_named
from kintune.compiler.space.sketches import whole_sketch
from kintune.core.candidate import Axis, Decision, NamedChoice, Sketch, fits
from kintune.errors import BuildError
from kintune.search.sketch_program import program_of

__all__ = ["converted", "is_of_today"]


def is_of_today(name: str) -> bool:
    """Whether this Kintune writes the program and variant `name`, such as "tiled.2:16x32"."""
    try:
        return bool(program_named(name))
    except BuildError:
        return False


def converted(
    sketch: Sketch, decided: Sequence[tuple[Decision, ...]], module: tvm.IRModule
) -> tuple[Sketch, list[tuple[Decision, ...] | None]]:
    """The sketch of today that an earlier one of the workload `module` corresponds to, and decisions of that in it.

    They are None where today's program has no such values.

    Raises:
        BuildError: no program of today corresponds to that of the sketch.
    """
    name = program_of(sketch)
    axes = named_axes(name, module, sketch.axes)
    known, _, variant = name.partition(":")
    earlier = EARLIER[known]
    program = next((each for each in PROGRAMS if each.name == earlier.now), None)
    if program is None:
        raise BuildError(f"there is no program {earlier.now}")
    found = whole_sketch(sketch.workload, module, program, variant.removesuffix("deep"))  # today an axis
    picked = (_picked(sketch.axes, axes, each) for each in decided)
    return found, [None if values is None else _decided({**earlier.implied, **values}, found) for values in picked]


def _picked(
    axes: Sequence[Axis], named: Sequence[NamedChoice], decisions: tuple[Decision, ...]
) -> dict[str, int] | None:
    """The value of each name; None where the decisions do not answer the axes."""
    if not fits(tuple(axes), decisions):
        return None
    values: dict[str, int] = {}
    for axis, of_names, decision in zip(axes, named, decisions, strict=True):
        values.update(zip(of_names.names, of_names.values[decision[0]] if axis != of_names else decision, strict=True))
    return values


def _decided(values: Mapping[str, int], target: Sketch) -> tuple[Decision, ...] | None:
    """The decisions by which `target` has these values; None where it has other names, or one cannot be picked."""
    wanted = [axis for axis in target.axes if isinstance(axis, NamedChoice)]
    if {name for axis in wanted for name in axis.names} != set(values):
        return None
    found = tuple(tuple(values[name] for name in axis.names) for axis in wanted)
    return found if all(each in axis.values for axis, each in zip(wanted, found, strict=True)) else None
