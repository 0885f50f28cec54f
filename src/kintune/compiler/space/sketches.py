"""The sketches of a workload: those that MetaSchedule's schedule rules generate, turned into values, and those of our
own programs.
"""

from __future__ import annotations

import json
import math
from typing import Any

import tvm
from tvm.s_tir import ScheduleError
from tvm.s_tir import meta_schedule as ms

from kintune.compiler.faults import left_out
from kintune.compiler.kernels.contraction import narrow_sums
from kintune.compiler.kernels.cutting import has_prologue
from kintune.compiler.programs.program import Program, pattern_of
from kintune.compiler.programs.registry import applicable, name_of
from kintune.compiler.space.generator import load_intrinsics, space_generator
from kintune.compiler.tir import plain_schedule
from kintune.core.candidate import (
    FULL_PRECISION,
    Axis,
    Choice,
    Decision,
    Location,
    NamedChoice,
    Sketch,
    Tile,
    digest_of,
)
from kintune.runtime.target import architecture_of

__all__ = ["generate_sketches", "is_schedulable", "parse_trace", "whole_sketch"]

_LOCATIONS = 24  # an upper bound for the number of loops a producer can be computed at


def generate_sketches(
    workload: str, module: tvm.IRModule, target: tvm.target.Target, precisions: frozenset[str] = frozenset()
) -> tuple[Sketch, ...]:
    """All sketches of `module` (its one function is `main`) for `target`, without duplicates: ours, then the rules'.

    `workload` is the digest that the sketches will name.  MetaSchedule's rules make sketches of what a schedule can
    change.  Functions of a pattern, and sums of products of bytes or with blockwise quantised weights, have none of
    these if they have some of our own: a schedule could only compute them in wider types.  Nor have sums with a
    prologue, which a schedule would store.  Sketches of programs that compute with shorter numbers are among them only
    where their precision, such as "bf16", is one of `precisions`.  A program that fails is logged and left out.
    """
    found: dict[str, Sketch] = {}
    for program, variant, _ in applicable(module, target, precisions):
        with left_out(f"program {program.name} fails"):
            sketch = whole_sketch(workload, module, program, variant)
            found.setdefault(sketch.digest, sketch)
    main = module["main"]
    if not (found and (pattern_of(main) or narrow_sums(main) or has_prologue(main))):
        found.update(_by_rules(workload, module, target))
    return tuple(found.values())


def whole_sketch(workload: str, module: tvm.IRModule, program: Program, variant: str) -> Sketch:
    """The sketch of a program.

    Raises:
        BuildError: the program does not compute the workload `module`, or there is no such variant of it.
    """
    content = {"program": name_of(program, variant)}
    if program.precision != FULL_PRECISION:
        content["precision"] = program.precision
    return _sketch(workload, [], [], program.axes(module, variant), content)


def _by_rules(workload: str, module: tvm.IRModule, target: tvm.target.Target) -> dict[str, Sketch]:
    """The sketches that MetaSchedule's rules make of a module, by digest.

    There are none where a rule fails, as on some norms that read bytes; the error is logged.
    """
    if not is_schedulable(module):
        return {}
    load_intrinsics(architecture_of(target))
    context = ms.TuneContext(
        module, target=target, space_generator=space_generator(target), rand_state=1, num_threads=1
    )
    names = _LoopNames(module)
    found: dict[str, Sketch] = {}
    with left_out("the compiler's schedule rules fail"):
        for schedule in context.generate_design_space():
            sketch, _ = _parse(workload, schedule.trace, names)
            found.setdefault(sketch.digest, sketch)
    return found


def is_schedulable(module: tvm.IRModule) -> bool:
    """Whether `main` consists of blocks under one root, which schedules can change; plain loops do not."""
    try:
        plain_schedule(module).get_sblock("root", func_name="main")
    except ScheduleError:
        return False
    return True


def parse_trace(workload: str, module: tvm.IRModule, trace: tvm.s_tir.Trace) -> tuple[Sketch, tuple[Decision, ...]]:
    """A trace of MetaSchedule's as a sketch and its decisions; what post-processors added is left out.

    Raises:
        NotImplementedError: the trace samples in a way that has no axis.
    """
    return _parse(workload, trace, _LoopNames(module))


def _parse(workload: str, trace: tvm.s_tir.Trace, names: _LoopNames) -> tuple[Sketch, tuple[Decision, ...]]:
    simplified = trace.simplified(remove_postproc=True)
    instructions, decided = (_plain(part) for part in simplified.as_json(remove_postproc=True))
    sampled = [index for index, _ in decided]
    axes = tuple(_axis(instructions, index, decision, names) for index, decision in decided)
    decisions = tuple(tuple(value) if isinstance(value, list) else (value,) for _, value in decided)
    return _sketch(workload, instructions, sampled, axes, {}), decisions


def _sketch(
    workload: str, instructions: list[Any], sampled: list[int], axes: tuple[Axis, ...], origin: dict[str, str]
) -> Sketch:
    """A sketch of instructions on the workload; or of a program of our own without any, which `origin` names."""
    content: dict[str, Any] = {"insts": instructions, "sampled": sampled, **origin}
    if named := [axis.names for axis in axes if isinstance(axis, NamedChoice)]:  # whatever values they may have
        content["names"] = named
    encoded = json.dumps(content, separators=(",", ":")).encode()
    return Sketch(workload, digest_of(workload.encode(), encoded), encoded, axes)


def _axis(instructions: list[Any], index: int, decision: Any, names: _LoopNames) -> Axis:
    kind, inputs, attributes, _ = instructions[index]
    if kind == "SamplePerfectTile":
        return Tile(math.prod(decision), len(decision), attributes[1], names.of(instructions, inputs[0], len(decision)))
    if kind == "SampleCategorical":
        return Choice(tuple(int(v) for v in attributes[0]), tuple(float(p) for p in attributes[1]))
    if kind == "SampleComputeLocation":
        return Location(_LOCATIONS)
    raise NotImplementedError(f"a sketch samples by {kind}, which has no axis yet")


class _LoopNames:
    """Names loops for people and for rules: 's' (spatial) or 'r' (reduction), the position, the block's axis name."""

    def __init__(self, module: tvm.IRModule) -> None:
        self._schedule = plain_schedule(module)

    def of(self, instructions: list[Any], loop: str, parts: int) -> str:
        """The name of the loop variable `loop` of an instruction list, from the block whose loops it was taken from."""
        blocks = {str(out[0]): str(attrs[0]) for kind, _, attrs, out in instructions if kind == "GetSBlock"}
        for kind, inputs, _, outputs in instructions:
            if kind == "GetLoops" and loop in outputs:
                position = int(outputs.index(loop))
                axes = self._axes(blocks.get(inputs[0], ""))
                if len(axes) == len(outputs):
                    return axes[position]
        return f"{'s' if parts > 2 else 'r'}?:"

    def _axes(self, block: str) -> list[str]:
        try:
            variables = self._schedule.get(self._schedule.get_sblock(block, func_name="main")).iter_vars
        except Exception:  # a block that only exists after another instruction (rfactor)
            return []
        data_parallel = 0
        return [
            f"{'s' if int(var.iter_type) == data_parallel else 'r'}{position}:{var.var.name}"
            for position, var in enumerate(variables)
        ]


def _plain(value: Any) -> Any:
    """TVM containers and immediates as plain JSON values."""
    if value is None or isinstance(value, str | bool | int | float):
        return value
    if type(value).__name__ in ("IntImm", "FloatImm"):
        return value.value
    return [_plain(item) for item in value]
