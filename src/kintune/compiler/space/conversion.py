"""Candidates of earlier programs as candidates of today's, where each named decision says the same."""

from __future__ import annotations

from collections.abc import Sequence

import tvm

from kintune.compiler.programs.earlier import EARLIER, named_axes
from kintune.compiler.programs.registry import PROGRAMS, program_named
from kintune.compiler.space.sketches import whole_sketch
from kintune.core.candidate import Decision, NamedChoice, Sketch
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
    now = EARLIER[known].now
    program = next((each for each in PROGRAMS if each.name == now), None)
    found = whole_sketch(sketch.workload, module, program, variant) if program is not None else None
    if found is None:
        raise BuildError(f"no program {now} is written as a whole")
    has_places = any(not isinstance(axis, NamedChoice) for axis in sketch.axes)
    return found, [_renamed(axes, each, found, has_places=has_places) for each in decided]


def _renamed(
    axes: Sequence[NamedChoice], decisions: tuple[Decision, ...], target: Sketch, *, has_places: bool
) -> tuple[Decision, ...] | None:
    if len(decisions) != len(axes):
        return None
    values: dict[str, int] = {}
    for axis, decision in zip(axes, decisions, strict=True):
        if has_places:
            if len(decision) != 1 or not 0 <= decision[0] < len(axis.values):
                return None
            decision = axis.values[decision[0]]
        values.update(zip(axis.names, decision, strict=True))
    wanted = [axis for axis in target.axes if isinstance(axis, NamedChoice)]
    if {name for axis in wanted for name in axis.names} != set(values):
        return None
    found = tuple(tuple(values[name] for name in axis.names) for axis in wanted)
    return found if all(each in axis.values for axis, each in zip(wanted, found, strict=True)) else None
