"""Profiles an executable: its runs, its kernels and onnxruntime's nodes are timed in turns, each in its own process."""

from __future__ import annotations

import os
import statistics
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack
from typing import NamedTuple

import msgspec
import numpy as np

from kintune.core.device import Peak
from kintune.core.execution_plan import Copy, ExecutionPlan, KernelCall
from kintune.core.kernel_call import CallRecord, title_of
from kintune.core.model import Combination, Constant, ModelRef
from kintune.errors import EngineError, InputError, ModelError
from kintune.hardware.cores import choose_cores
from kintune.hardware.cpu import inspect_machine
from kintune.models.constants import store_constant
from kintune.models.graph_file import open_graph
from kintune.models.onnx_path import onnx_path_of
from kintune.models.shapes import fit_constants
from kintune.models.source_graph import GraphNode, onnx_graph
from kintune.profiling.limits import bound_of
from kintune.profiling.matching import compare
from kintune.profiling.peak import measure_peak_apart
from kintune.profiling.profile import ComparedGroup, NodeProfile, OnnxProfile, Profile, ProfiledCall
from kintune.runtime.executable import Executable
from kintune.runtime.inputs import load_fitting
from kintune.runtime.package import Manifest, Package
from kintune.runtime.plan_format import decode_plan
from kintune.validate.baseline_process import BaselineProcess
from kintune.validate.baseline_protocol import BaselineContext, BaselineTurn, KernelTimes, ProfileNodesTurn, ProfileTurn
from kintune.validate.baselines import KINTUNE
from kintune.validate.baselines.baseline import BaselineModel
from kintune.validate.baselines.node_times import NodeTimes
from kintune_runtime.library import checksum

__all__ = ["ProfileRequest", "profile_executable"]

_ROUNDS = 5
_NEARLY_ALL = 0.8
_WARM_SECONDS = 0.02  # untimed, at the start of a turn
_PREPARE_SECONDS = 300.0
_TURN_SECONDS = 120.0


class ProfileRequest(NamedTuple):
    """What to profile: the file, and an `.npz` file of inputs (None: drawn).

    `model` is the model to run in onnxruntime beside it, if any.  `threads` is 0 for those it was tuned for.  Runs are
    repeated up to `runs` times, and end after `seconds` for each thing that is timed.
    """

    path: str
    inputs: str | None = None
    model: ModelRef | None = None
    threads: int = 0
    runs: int = 50
    seconds: float = 3.0


class _Original(NamedTuple):
    """The user's ONNX file: its path, the values of inputs that are constants, and its nodes."""

    path: str
    constants: dict[str, Constant]
    graph: tuple[GraphNode, ...]


class _Times(NamedTuple):
    """What was timed: whole runs in milliseconds, calls, and the same of onnxruntime, with what went wrong there."""

    runs_ms: Sequence[float]
    calls: Mapping[int, float]
    timeline: tuple[tuple[int, float, float], ...]
    onnx_ms: Sequence[float] = ()
    nodes: NodeTimes | None = None
    problem: str = ""


def profile_executable(
    request: ProfileRequest, measure_peak: Callable[[str, int], Peak | None] = measure_peak_apart
) -> Profile:
    """Profiles an executable for this machine's CPU.  `measure_peak` measures that of a target with so many threads.

    Raises:
        InputError: a file cannot be used, or is for a GPU or another CPU; the inputs do not fit.
        TargetError: more threads are asked for than there are cores.
        EngineError: the network does not run.
    """
    package = Package.open(request.path)
    opened = Executable.open(request.path)
    manifest, variant = opened.manifest, opened.variant.number
    opened.close()
    wanted = request.threads or min(manifest.threads, len(choose_cores(0)))
    cores = choose_cores(wanted)
    number = 0 if request.inputs is None else load_fitting(manifest.combinations, request.inputs)[0]
    plan = decode_plan(package.variants[variant].plans[number].plan, checksum).plan
    combination = manifest.combinations[number]
    original = None if request.model is None else _original(request.model, combination)
    peak = measure_peak(manifest.target, len(cores))
    times = _time(request, original, combination, cores)
    calls, prefix = _calls(plan, _records(manifest, number), times, len(cores), peak)
    notes = []
    onnx = None
    if times.problem:
        notes.append(f"onnxruntime: {times.problem}")
    elif times.nodes is not None and original is not None:
        names = [tensor.name for tensor in combination.inputs]
        groups = compare(calls, times.nodes.nodes, original.graph, names)
        onnx, calls = _beside(times, groups, calls)
        if not groups:
            notes.append("none of onnxruntime's nodes is one of this network's: is it the same model?")
    if peak is None:
        notes.append("the machine's peak could not be measured (see kintune doctor), so no limits are named")
    if not manifest.calls:
        notes.append("the file does not say what its kernels compute: an earlier version wrote it; compile it again")
    if len(manifest.combinations) > 1:
        notes.append(f"it runs with {len(manifest.combinations)} combinations of shapes; --input chooses another one")
    kernels_us = sum(call.us for call in calls)
    p10, median, p90 = (float(np.quantile(times.runs_ms, q)) for q in (0.1, 0.5, 0.9))
    copies = [operation for operation in plan.operations if isinstance(operation, Copy)]
    return Profile(
        executable=str(request.path),
        model=manifest.model_name,
        cpu=inspect_machine().cpu,
        threads=len(cores),
        shapes=combination.shapes,
        runs=len(times.runs_ms),
        run_ms=median,
        p10_ms=p10,
        p90_ms=p90,
        kernels_ms=kernels_us / 1e3,
        gap_ms=median - kernels_us / 1e3,
        copies=len(copies),
        copied_bytes=sum(plan.tensors[copy.source].nbytes for copy in copies),
        peak=peak,
        prefix=prefix,
        calls=calls,
        onnxruntime=onnx,
        timeline=times.timeline,
        notes=tuple(notes),
    )


def _original(ref: ModelRef, combination: Combination) -> _Original:
    """What to run in onnxruntime.

    Raises:
        ModelError: it is no ONNX file, or has other inputs than the executable.
    """
    path = onnx_path_of(ref)
    file = open_graph(path, own=True)
    values = fit_constants(str(path), file.graph, ref.constants)
    theirs = [value.name for value in file.graph.graph.input if value.name not in values]
    own = [tensor.name for tensor in combination.inputs]
    if sorted(theirs) != sorted(own):
        raise ModelError(
            f"{path}: has the inputs {', '.join(theirs) or 'none'}, the executable {', '.join(own) or 'none'}; "
            "name the model that it was made of, and --constant for inputs that were fixed"
        )
    constants = {name: store_constant(name, array, typed=True) for name, array in values.items()}
    return _Original(str(path), constants, onnx_graph(file.graph.graph))


def _records(manifest: Manifest, number: int) -> dict[int, CallRecord]:
    """What each call of a plan computes, by its place."""
    return {record.place: record for record in manifest.calls[number]} if manifest.calls else {}


def _time(
    request: ProfileRequest, original: _Original | None, combination: Combination, cores: Sequence[int]
) -> _Times:
    """Time everything in rounds; the processes are stopped while it is not their turn."""

    def context(name: str) -> BaselineContext:
        subject = BaselineModel(os.path.abspath(request.path))
        if original is not None:
            subject = msgspec.structs.replace(subject, onnx=original.path, constants=original.constants)
        return BaselineContext(name, subject, combination.inputs, request.inputs, 0, len(cores), tuple(cores))

    runs = max(1, -(-request.runs // _ROUNDS))
    turn = BaselineTurn(runs, request.seconds / _ROUNDS, _WARM_SECONDS)
    profile_turn = ProfileTurn(len(cores), runs, request.seconds / _ROUNDS)
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
        for _ in range(_ROUNDS):
            runs_ms += own.turn(turn, _TURN_SECONDS)
            rounds.append(own.profile_calls(profile_turn, _TURN_SECONDS))
            if other is None:
                continue
            try:
                onnx_ms += other.turn(turn, _TURN_SECONDS)
            except EngineError as error:
                other, problem = None, str(error)
        if other is not None:
            try:
                nodes = other.profile_nodes(ProfileNodesTurn(request.runs, request.seconds), _TURN_SECONDS)
            except EngineError as error:
                problem = str(error)
    places = sorted({place for each in rounds for place in each.us})
    calls = {place: statistics.median(each.us[place] for each in rounds if place in each.us) for place in places}
    return _Times(runs_ms, calls, rounds[len(rounds) // 2].timeline, onnx_ms, nodes, problem)


def _calls(
    plan: ExecutionPlan, records: Mapping[int, CallRecord], times: _Times, threads: int, peak: Peak | None
) -> tuple[tuple[ProfiledCall, ...], str]:
    """The calls that ran, and what the names of all nodes begin with."""
    total = sum(times.calls.values())
    made = []
    for place, us in times.calls.items():
        operation = plan.operations[place]
        if not isinstance(operation, KernelCall):
            raise InputError(f"the plan calls no kernel at {place}: the file changed while it was profiled")
        record = records.get(place) or CallRecord(place=place, kernel=operation.kernel)
        used = min(operation.threads or threads, threads)
        limit, least_us, reached = bound_of(record, us, used, peak)
        made.append(
            ProfiledCall(
                place=place,
                kernel=record.kernel,
                title=title_of(record),
                nodes=record.nodes,
                operators=record.operators,
                inserted=record.inserted,
                threads=used,
                us=us,
                share=us / total if total else 0.0,
                gflops=record.flops / us / 1e3 if us else 0.0,
                gbytes_per_s=record.nbytes / us / 1e3 if us else 0.0,
                limit=limit,
                least_us=least_us,
                reached=reached,
            )
        )
    return _titled(made)


def _titled(calls: Sequence[ProfiledCall]) -> tuple[tuple[ProfiledCall, ...], str]:
    """The calls with titles that tell them apart where their operators do, and without the prefix of all names."""
    prefix = _common({node.name for call in calls for node in call.nodes})
    titles = [call.title for call in calls]
    done = []
    for call in calls:
        title = call.title
        if titles.count(title) > 1 and call.operators and not call.inserted:
            title = f"{title}: {' + '.join(call.operators)}"
        done.append(msgspec.structs.replace(call, title=title.replace(prefix, "") if prefix else title))
    return tuple(done), prefix


def _common(names: Collection[str]) -> str:
    """The folders that nearly all names begin with, with the slash at their end."""
    shared = ""
    while len(names) > 1:
        deeper = Counter(name[: at + 1] for name in names if (at := name.find("/", len(shared))) >= 0)
        found, count = max(deeper.items(), key=lambda item: item[1], default=("", 0))
        if not found.startswith(shared) or count < _NEARLY_ALL * len(names):
            break
        shared = found
    return shared


def _beside(
    times: _Times, groups: Sequence[ComparedGroup], calls: tuple[ProfiledCall, ...]
) -> tuple[OnnxProfile, tuple[ProfiledCall, ...]]:
    """What onnxruntime takes, and the calls with their groups."""
    if times.nodes is None:
        raise InputError("onnxruntime was not profiled")
    group_of_call = {place: number for number, group in enumerate(groups) for place in group.calls}
    group_of_node = {node: number for number, group in enumerate(groups) for node in group.nodes}
    first = min((node.start_us for node in times.nodes.nodes), default=0.0)
    nodes = tuple(
        NodeProfile(node.name, node.op, node.us, node.start_us - first, group_of_node.get(position, -1))
        for position, node in enumerate(times.nodes.nodes)
    )
    told = []
    for call in calls:
        number = group_of_call.get(call.place, -1)
        alone = number >= 0 and len(groups[number].calls) == 1
        theirs = groups[number].onnxruntime_us if alone else None
        told.append(msgspec.structs.replace(call, group=number, onnxruntime_us=theirs))
    onnx = OnnxProfile(
        version=times.nodes.version,
        run_ms=statistics.median(times.onnx_ms),
        nodes_us=sum(node.us for node in nodes),
        matched_us=sum(node.us for node in nodes if node.group >= 0),
        nodes=nodes,
        groups=tuple(groups),
    )
    return onnx, tuple(told)
