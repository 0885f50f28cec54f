"""From a candidate to a program: replay on MetaSchedule's schedules, then post-process.

A sketch of a program of our own is what that program writes, and is not scheduled.

This is the only place that turns decisions into TVM schedules.  Replay is deterministic: the same (workload, sketch,
decisions) give the same program.  A decision that the sketch cannot honour (a compute location that does not exist
under the other decisions) is replaced by the same substitute each time; `Replayed.candidate` has it.
"""

from __future__ import annotations

import json
import math
from typing import Any, NamedTuple

import tvm
from tvm.s_tir import Schedule
from tvm.s_tir import meta_schedule as ms

from kintune.compiler.faults import as_build_error
from kintune.compiler.programs.registry import program_named, write
from kintune.compiler.space.generator import default_schedule, load_intrinsics, space_generator
from kintune.compiler.space.weights import LAYOUT_FREE, weight_positions
from kintune.core.candidate import UNTUNED, Candidate, Choice, Decision, Sketch, Tile, fits
from kintune.errors import BuildError
from kintune.runtime.target import architecture_of

__all__ = [
    "LAYOUT_FREE",
    "Replayed",
    "Replayer",
    "apply_candidate",
    "load_workload",
    "save_workload",
    "weight_positions",
]

_REPLAY_SEED = 1  # only consulted where a decision is impossible, so that its substitute is always the same


class Replayed(NamedTuple):
    """A replayed candidate: the schedule, post-processed, and the candidate with the decisions really taken."""

    schedule: Schedule
    candidate: Candidate


def load_workload(module: bytes) -> tvm.IRModule:
    """The IRModule that `save_workload` serialised; its one function is `main`."""
    return tvm.ir.load_json(module.decode())


def save_workload(module: tvm.IRModule) -> bytes:
    """Serialise a workload (TVM's own JSON; stable for one compiler version)."""
    return str(tvm.ir.save_json(module)).encode()


class Replayer:
    """Replays candidates of one workload on one target.

    Keep one where many candidates of a workload are replayed: the post-processors are set up once.
    """

    def __init__(self, module: tvm.IRModule, target: tvm.target.Target) -> None:
        self.module = module
        load_intrinsics(architecture_of(target))
        self.context = ms.TuneContext(
            module, target=target, space_generator=space_generator(target), rand_state=_REPLAY_SEED, num_threads=1
        )
        self._postprocessors = list(self.context.space_generator.postprocs)
        self._instructions: dict[str, Any] = {}

    def __call__(self, sketch: Sketch, candidate: Candidate) -> Replayed:
        """Replay and post-process.

        Raises:
            BuildError: the decisions make no valid program; the message is one line.
        """
        replayed = self._replay(sketch, candidate)
        if "program" in self._instructions[sketch.digest]:
            return replayed
        with as_build_error():
            replayed.schedule.enter_postproc()
            for postprocessor in self._postprocessors:
                if not postprocessor.apply(replayed.schedule):
                    raise BuildError(f"rejected by {type(postprocessor).__name__}")
        return replayed

    def settle(self, sketch: Sketch, candidate: Candidate) -> Candidate:
        """The candidate with the decisions that a replay takes, in half the time: nothing is post-processed.

        A post-processor may still reject the candidate.

        Raises:
            BuildError: the decisions make no schedule.
        """
        return self._replay(sketch, candidate).candidate

    def _replay(self, sketch: Sketch, candidate: Candidate) -> Replayed:
        instructions = self._instructions.get(sketch.digest)
        if instructions is None:
            instructions = self._instructions[sketch.digest] = json.loads(sketch.trace)
        with as_build_error():
            module = self._written(sketch, instructions, candidate)
            schedule = Schedule(module, seed=_REPLAY_SEED, debug_mask=0, error_render_level="none")
            if "program" in instructions:
                return Replayed(schedule, candidate)
            tvm.s_tir.Trace.apply_json_to_schedule(
                [instructions["insts"], _encode(instructions, sketch, candidate.decisions)], schedule
            )
            taken = _decode(instructions, sketch, schedule.trace)
        return Replayed(schedule, Candidate(candidate.workload, candidate.sketch, taken))

    def _written(self, sketch: Sketch, instructions: dict[str, Any], candidate: Candidate) -> tvm.IRModule:
        """The module that the instructions change: the workload, or what a program of our own writes for it."""
        program, decisions = instructions.get("program", ""), candidate.decisions
        if not program:
            return self.module
        try:
            program_named(program)
        except BuildError as error:
            raise BuildError(f"{candidate.digest}: {error}") from error
        if not fits(sketch.axes, decisions):
            raise BuildError(f"the decisions {decisions} do not answer the axes of sketch {sketch.digest}")
        return write(program, self.module, decisions)


def apply_candidate(
    module: tvm.IRModule, sketch: Sketch | None, candidate: Candidate, target: tvm.target.Target
) -> tvm.IRModule:
    """The scheduled, post-processed program of one candidate, weight-layout rewriting blocks included.

    `sketch` None, or a candidate of the `UNTUNED` sketch, gives the workload with its default schedule.

    Raises:
        BuildError: the candidate cannot be replayed.
    """
    if sketch is None or candidate.sketch == UNTUNED:
        return default_schedule(module, target)
    return Replayer(module, target)(sketch, candidate).schedule.mod


def _encode(instructions: dict[str, Any], sketch: Sketch, decisions: tuple[Decision, ...]) -> list[Any]:
    """Decisions as MetaSchedule's JSON wants them: [instruction index, factors or index]."""
    if len(decisions) != len(sketch.axes):
        raise BuildError(f"sketch {sketch.digest} has {len(sketch.axes)} open decisions, got {len(decisions)}")
    for axis, decision in zip(sketch.axes, decisions, strict=True):
        if isinstance(axis, Tile) and (len(decision) != axis.parts or math.prod(decision) != axis.extent):
            raise BuildError(f"factors {decision} do not make {axis.extent} in {axis.parts} parts")
    return [
        [index, list(decision) if isinstance(axis, Tile) else decision[0]]
        for index, axis, decision in zip(instructions["sampled"], sketch.axes, decisions, strict=True)
    ]


def _decode(instructions: dict[str, Any], sketch: Sketch, trace: Any) -> tuple[Decision, ...]:
    """The decisions that a replayed trace really holds, in the order of the sketch's axes."""
    sampled = [decision for inst in trace.insts if (decision := trace.decisions.get(inst)) is not None]
    taken: list[Decision] = []
    for axis, decision in zip(sketch.axes, sampled, strict=True):
        if isinstance(axis, Tile):
            taken.append(tuple(int(f) for f in decision))
        else:
            value = int(decision)
            taken.append((value % len(axis.values) if isinstance(axis, Choice) else value,))
    return tuple(taken)
