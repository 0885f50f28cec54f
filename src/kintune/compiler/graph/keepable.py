"""Finds the functions of a network that can take tensors in bf16 instead of fp32, and makes such versions of them.

Kernels that compute in bf16 round the tensors that they read anyway.  Of the others, those that read each element about
once get conversions where they load and store, and so do Kintune's own depthwise convolutions.  Other sums read each
element many times, and would convert it as often.
"""

from __future__ import annotations

from collections.abc import Mapping

import tvm

from kintune.compiler.graph.kept_tensors import Keepable
from kintune.compiler.graph.lower import Lowered
from kintune.compiler.graph.pieces import JOINS, SLICES, pieces_of
from kintune.compiler.graph.workload import StandaloneWorkload
from kintune.compiler.programs.kept_parameters import is_reshape, keep, readable, writable
from kintune.compiler.programs.registry import keepable, program_named, write
from kintune.compiler.space.generator import default_schedule
from kintune.compiler.tir import SCHEDULED, without
from kintune.core.candidate import FULL_PRECISION, UNTUNED, Candidate, Sketch
from kintune.search.sketch_program import program_of

__all__ = ["COMPILED", "keepable_functions"]

COMPILED = "kintune.compiled"
"""The attribute of a function that is already compiled: the digest of its candidate."""

_READ_ONCE = frozenset({"elementwise", "pool", "reduction", "softmax"})
"""Operators that read each element once or a few times."""


def keepable_functions(
    lowered: Lowered, chosen: Mapping[str, tuple[Sketch, Candidate]], module: tvm.IRModule, target: tvm.target.Target
) -> dict[str, Keepable]:
    """Which parameters of each function of a network may be bf16, by the function's name.

    `module` has the functions with the `chosen` programs.

    Raises:
        BuildError: when this version of Kintune does not have a program that was chosen.
    """
    workloads = {workload.digest: workload for workload in lowered.workloads}
    found = {}
    for name, digest in lowered.functions.items():
        function = module[module.get_global_var(name)]
        choice = chosen.get(digest)
        known = None if choice is None else _of_program(workloads[digest], *choice)
        found[name] = known or _of_any(workloads[digest], function, target)
    return found


def _of_program(workload: StandaloneWorkload, sketch: Sketch, candidate: Candidate) -> Keepable | None:
    """The parameters that a program of Kintune's own can take in bf16; None without such, or if it can take none."""
    program = program_of(sketch) if candidate.sketch != UNTUNED else ""
    positions = keepable(program, workload.module) if program else frozenset()

    def written(kept: frozenset[int]) -> tvm.tirx.PrimFunc:
        function = write(program, workload.module, candidate.decisions, kept)["main"]
        return function.without_attr("global_symbol").with_attr(SCHEDULED, True)

    rounded = keepable(program, workload.module, rounded=True) if positions else positions
    is_narrow = positions and program_named(program)[0].precision != FULL_PRECISION
    return Keepable(positions, written, is_narrow=bool(is_narrow), rounded=rounded) if positions else None


def _of_any(workload: StandaloneWorkload, function: tvm.tirx.PrimFunc, target: tvm.target.Target) -> Keepable:
    """The parameters that any other function can take in bf16."""

    def written(kept: frozenset[int]) -> tvm.tirx.PrimFunc:
        return without(keep(function, kept), "global_symbol", COMPILED)

    if pieces_of(function, SLICES) or pieces_of(function, JOINS):
        return Keepable(frozenset(), written)
    if is_reshape(function):
        return Keepable(frozenset(), written, passes=True)
    if workload.operator not in _READ_ONCE:
        return Keepable(frozenset(), written)
    if SCHEDULED not in (function.attrs or {}):
        function = default_schedule(tvm.IRModule({"main": function}), target)["main"]
    last = len(function.params) - 1
    positions = {position for position in range(last) if readable(function, position)}
    return Keepable(frozenset(positions | ({last} if writable(function, last) else set())), written)
