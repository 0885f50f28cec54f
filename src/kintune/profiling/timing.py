"""Times a network in whole runs, its kernels, and onnxruntime beside it, each in a process of its own."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import NamedTuple

import msgspec

from kintune.core.call_times import KernelTimes
from kintune.core.model import Combination, Constant, ModelRef
from kintune.errors import EngineError, ModelError
from kintune.models.constants import store_constant
from kintune.models.graph_file import open_graph
from kintune.models.onnx_path import onnx_path_of
from kintune.models.shapes import contradicting, fit_constants
from kintune.models.source_graph import GraphNode, onnx_graph
from kintune.validate.baseline_process import BaselineProcess
from kintune.validate.baseline_protocol import BaselineContext, BaselineTurn, ProfileNodesTurn, ProfileTurn
from kintune.validate.baselines import KINTUNE
from kintune.validate.baselines.baseline import BaselineModel
from kintune.validate.baselines.node_times import NodeTimes
from kintune.validate.region_times import ROUNDS, middle_times

__all__ = ["ProfileRequest", "ProfiledFile", "Times", "read_original", "time_network"]

_WARM_SECONDS = 0.02  # untimed, at the start of a turn
_PREPARE_SECONDS = 300.0
_TURN_SECONDS = 120.0


class ProfileRequest(NamedTuple):
    """What to profile: the file, and an `.npz` file of inputs (None: drawn).

    `model` is the model to run in onnxruntime beside it, if any.  `threads` is 0 for those it was tuned for.  Runs are
    repeated up to `runs` times in `rounds` rounds, and end after `seconds` for each thing that is timed.
    """

    path: str
    inputs: str | None = None
    model: ModelRef | None = None
    threads: int = 0
    runs: int = 50
    seconds: float = 3.0
    rounds: int = ROUNDS


class ProfiledFile(NamedTuple):
    """The user's ONNX file: its path, the values of inputs that are constants, and its nodes."""

    path: str
    constants: dict[str, Constant]
    graph: tuple[GraphNode, ...]


class Times(NamedTuple):
    """What was timed: whole runs in milliseconds, calls in microseconds by place, and the calls of one run in order.

    `onnx_ms` and `nodes` are those of onnxruntime on the original, or `problem` says why they are missing.  Of a result
    that runs partly in onnxruntime, `own_nodes` are the nodes of its graph, and there are no calls.
    """

    runs_ms: Sequence[float]
    calls: Mapping[int, float]
    timeline: tuple[tuple[int, float, float], ...]
    onnx_ms: Sequence[float] = ()
    nodes: NodeTimes | None = None
    problem: str = ""
    own_nodes: NodeTimes | None = None


def read_original(ref: ModelRef, combination: Combination) -> ProfiledFile:
    """The user's ONNX file, to run in onnxruntime, with its nodes.

    Raises:
        ModelError: it is no ONNX file, or has other inputs than the executable, or other shapes.
    """
    path = onnx_path_of(ref)
    file = open_graph(path, own=True)
    values = fit_constants(str(path), file.graph, ref.constants)
    theirs = [value.name for value in file.graph.graph.input if value.name not in values]
    own = [tensor.name for tensor in combination.inputs]
    if sorted(theirs) != sorted(own):
        raise ModelError(
            f"{path}: has the inputs {', '.join(theirs) or 'none'}, the executable {', '.join(own) or 'none'}; "
            "name the model that it was made of with --model, and --constant for inputs that were fixed"
        )
    shapes = {tensor.name: tensor.shape for tensor in combination.inputs}
    if (apart := contradicting(str(path), file.graph, shapes)) is not None:
        raise ModelError(
            f"{path}: {apart} in the executable; name the model that it was made of, as in --model zoo:NAME?batch=8"
        )
    constants = {name: store_constant(name, array, typed=True) for name, array in values.items()}
    return ProfiledFile(str(path), constants, onnx_graph(file.graph.graph))


def time_network(
    request: ProfileRequest, original: ProfiledFile | None, combination: Combination, cores: Sequence[int], hybrid: bool
) -> Times:
    """Time everything in rounds; the processes are stopped while it is not their turn.

    Of a `hybrid`, which runs partly in onnxruntime, the nodes are timed after the rounds.

    Raises:
        EngineError: the network does not run.
    """

    def context(name: str) -> BaselineContext:
        subject = BaselineModel(os.path.abspath(request.path))
        if original is not None:
            subject = msgspec.structs.replace(subject, onnx=original.path, constants=original.constants)
        return BaselineContext(name, subject, combination.inputs, request.inputs, 0, len(cores), tuple(cores))

    runs = max(1, -(-request.runs // request.rounds))
    turn = BaselineTurn(runs, request.seconds / request.rounds, _WARM_SECONDS)
    profile_turn = ProfileTurn(len(cores), runs, request.seconds / request.rounds)
    runs_ms: list[float] = []
    onnx_ms: list[float] = []
    rounds: list[KernelTimes] = []
    nodes, problem = None, ""
    with ExitStack() as processes:
        own = processes.enter_context(BaselineProcess(KINTUNE, context(KINTUNE)))
        own.prepare(_PREPARE_SECONDS)
        other = None
        if original is not None:
            other = processes.enter_context(BaselineProcess("onnxruntime", context("onnxruntime")))
            try:
                other.prepare(_PREPARE_SECONDS)
            except EngineError as error:
                other, problem = None, str(error)
        for _ in range(request.rounds):
            runs_ms += own.turn(turn, _TURN_SECONDS)
            if not hybrid:
                rounds.append(own.profile_calls(profile_turn, _TURN_SECONDS))
            if other is None:
                continue
            try:
                onnx_ms += other.turn(turn, _TURN_SECONDS)
            except EngineError as error:
                other, problem = None, str(error)
        nodes_turn = ProfileNodesTurn(request.runs, request.seconds)
        own_nodes = own.profile_nodes(nodes_turn, _TURN_SECONDS) if hybrid else None
        if other is not None:
            try:
                nodes = other.profile_nodes(nodes_turn, _TURN_SECONDS)
            except EngineError as error:
                problem = str(error)
    kernels = middle_times(rounds)
    return Times(runs_ms, kernels.us, kernels.timeline, onnx_ms, nodes, problem, own_nodes)
