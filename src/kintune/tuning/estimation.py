"""Estimates before tuning: the time that tuning a model takes, and the latency that it can reach."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
from onnx import ModelProto, NodeProto, TensorProto, helper, shape_inference

from kintune.core.capabilities import capabilities_named
from kintune.core.config import JobSpec, Options
from kintune.core.device import DeviceDescription, Peak
from kintune.core.latency_target import COMPARED
from kintune.core.model import ModelRef
from kintune.core.quantiles import quantile
from kintune.core.report import FastestBaseline
from kintune.core.stage_requests import BaselineItem
from kintune.core.stage_results import Prepared
from kintune.core.workload import by_combination
from kintune.hardware.cores import choose_cores
from kintune.hardware.locks import cores_lock
from kintune.hardware.software import require_tried_versions
from kintune.models import zoo
from kintune.models.assumed_shapes import possible_inputs
from kintune.models.graph_file import open_graph
from kintune.models.onnx_path import onnx_path_of
from kintune.models.ref import EXPORTED, ONNX, ZOO
from kintune.models.zoo.network import OPSET, ZooNetwork
from kintune.records import MeasurementTally, Store
from kintune.tuning.forecast import Forecast, forecast, shares_reached
from kintune.tuning.peak import device_peak
from kintune.validate.baseline_timing import baseline_conditions, estimate_baselines_s, time_models
from kintune.validate.baselines import BaselineModel, make_baseline, run_on
from kintune.wire.worker_client import interview

__all__ = [
    "Estimate",
    "KnownDevice",
    "count_flops",
    "count_network_flops",
    "estimate_model",
    "prepare",
    "preparing",
    "weight_bytes",
]


_GUESS_S = 0.5  # seconds of a trial, if there are too few past runs


_OPTIONS = Options(trials=1)  # of a model whose subgraphs are looked at


_BRIEFLY = 0.3  # minutes of a run whose baselines are timed as briefly as here


_ENOUGH_TRIALS = 64  # trials of past runs needed to use their time


class KnownDevice(msgspec.Struct, frozen=True):
    """What the records have for a model on this device type.

    `workloads` of its distinct subgraphs have `measurements` in all.  `latency_ms` is the sum of the best times by
    occurrence, None unless every subgraph has one.
    """

    workloads: int = 0
    measurements: int = 0
    latency_ms: float | None = None


class Estimate(msgspec.Struct, frozen=True, kw_only=True):
    """An estimate of tuning a model.

    The model has `subgraphs` distinct subgraphs, of which `tunable` ones are tuned; `flops` are those of one run.
    `bound_ms` is a lower bound of the latency on this device, by the roofline of its `peak`.  `trials` take about
    `seconds`, estimated from past runs if `judged_by_runs`; in `baseline_seconds` of them, other runtimes are timed.
    With several `combinations` of shapes, FLOPs and latencies are those of one run with each.
    `forecast` says what tuning will likely reach.
    """

    schema_version: int = 1
    model: str
    model_digest: str
    subgraphs: int
    tunable: int
    flops: float
    weight_bytes: int
    target: str
    threads: int
    peak: Peak
    bound_ms: float
    known: KnownDevice
    trials: int
    seconds: float
    judged_by_runs: bool
    combinations: int = 1
    baseline_seconds: float = 0.0
    forecast: Forecast | None = None


def estimate_model(
    ref: ModelRef,
    *,
    target: str = "native",
    threads: int | None = None,
    trials: int = 1000,
    records: str | None = None,
    on_wait: Callable[[str], None] | None = None,
) -> Estimate:
    """Import and lower the model, measure the machine's peak unless it is known, and read the records.

    No records are created.  Waits until no other process times on the cores; `on_wait` is called with its description.

    Raises:
        InputError: model, target or records cannot be used.
    """
    require_tried_versions()
    if ref.kind != EXPORTED:  # opening one takes seconds
        possible_inputs(ref, _OPTIONS, capabilities_named(target))
    weights = weight_bytes(ref)
    cores = choose_cores(threads or 0)
    arguments = ("--target", target, "--threads", str(len(cores)))
    with _existing(records) as store, cores_lock(cores, on_wait):
        with interview("kintune.workers.device_worker", arguments) as device:
            about = msgspec.msgpack.decode(device.about, type=DeviceDescription)
            peak = device_peak(device, about, store)
        prepared = prepare(ref, about)
        tallies = {} if store is None else _tallies(store, about)
        known = _known(tallies, prepared)
        pace = None if store is None else _pace(store)
        workloads = () if store is None else store.workloads.list(on_damage=lambda _: None)
        shares, judged_by = shares_reached(workloads, tallies, peak)
        foretold = forecast(prepared.subgraphs, tallies, shares, judged_by, peak, about.cool_bytes)
        foretold = _beside_baseline(foretold, ref, prepared, about)
    baseline_seconds = _baselines_s(ref, about)
    networks = by_combination(prepared.subgraphs)
    flops = [sum(s.weight * s.flops for s in network) for network in networks]
    least_us = [sum(s.weight * peak.least_us(s.bound_flops, 0, s.narrowest) for s in network) for network in networks]
    cache = max((cache.size for cache in about.machine.caches), default=0)
    return Estimate(
        model=prepared.model_name,
        model_digest=prepared.model_digest,
        subgraphs=len(prepared.subgraphs),
        tunable=sum(subgraph.tunable for subgraph in prepared.subgraphs),
        flops=sum(flops),
        weight_bytes=weights,
        target=about.device_type.target,
        threads=about.device_type.threads,
        peak=peak,
        bound_ms=sum(max(each, peak.least_us(0, max(0, weights - cache))) for each in least_us) / 1e3,
        known=known,
        trials=trials,
        seconds=trials * (pace or _GUESS_S) + baseline_seconds,
        baseline_seconds=baseline_seconds,
        forecast=foretold,
        judged_by_runs=pace is not None,
        combinations=len(flops),
    )


@contextmanager
def _existing(records: str | None) -> Iterator[Store | None]:
    """Open the records if they exist, and yield None otherwise."""
    where = records or Store.default_location()
    if not Store.are_at(where):
        yield None
        return
    with Store.open(where, create=False) as store:
        yield store


def _tallies(store: Store, about: DeviceDescription) -> dict[str, MeasurementTally]:
    """Return what was measured on this device with this compiler, by workload."""
    here = about.device_type.digest, about.compiler
    return {
        tally.workload: tally for tally in store.measurements.tallies() if (tally.device_type, tally.compiler) == here
    }


def _known(tallies: Mapping[str, MeasurementTally], prepared: Prepared) -> KnownDevice:
    wanted = {subgraph.workload for subgraph in prepared.subgraphs}
    tallies = {workload: tally for workload, tally in tallies.items() if workload in wanted}
    best_us = [
        subgraph.weight * tally.best_us
        if (tally := tallies.get(subgraph.workload)) and tally.best_us is not None
        else math.inf
        for subgraph in prepared.subgraphs
    ]
    total_ms = sum(best_us) / 1e3
    return KnownDevice(
        workloads=len(tallies),
        measurements=sum(tally.measured for tally in tallies.values()),
        latency_ms=total_ms if best_us and math.isfinite(total_ms) else None,
    )


def _pace(store: Store) -> float | None:
    """Return the seconds of a trial in past runs, with all stages; None if there were too few."""
    measured = store.measurements.made_here()
    spent = sum(run.active_seconds for run in store.runs.list(on_damage=lambda _: None))
    return spent / measured if measured >= _ENOUGH_TRIALS and spent > 0 else None


def _beside_baseline(foretold: Forecast, ref: ModelRef, prepared: Prepared, about: DeviceDescription) -> Forecast:
    """Time other runtimes on an ONNX model for a short while; returns the forecast with the fastest, if any runs."""
    if ref.kind not in (ONNX, ZOO) or not run_on(about.device_type):
        return foretold
    item = BaselineItem(
        combinations=tuple(combination.inputs for combination in prepared.combinations),
        onnx=os.fspath(onnx_path_of(ref)),
        constants=ref.constants,
    )
    conditions = baseline_conditions(about.device_type.threads, minutes=_BRIEFLY, combinations=len(item.combinations))
    timed = time_models(conditions, item)
    fastest = FastestBaseline.of(timed.together_ms(), None)
    if fastest is None:
        return foretold
    times = sorted(timed.each[0][fastest.name])
    spread = quantile(times, 0.9) / max(quantile(times, 0.1), 1e-9)
    return msgspec.structs.replace(foretold, baseline=fastest, spread=spread)


def _baselines_s(ref: ModelRef, about: DeviceDescription) -> float:
    """Return the estimated seconds in which other runtimes are timed before the search."""
    files = BaselineModel(onnx=ref.source) if ref.kind in (ONNX, ZOO) else BaselineModel(exported=ref.source)
    ran = [name for name in COMPARED if run_on(about.device_type) and make_baseline(name).unavailable(files) is None]
    count = len(ref.combinations)
    conditions = baseline_conditions(about.device_type.threads, combinations=count)
    return estimate_baselines_s(conditions, len(ran), count)


Shapes = dict[str, tuple[int, ...]]


def count_flops(model: ModelProto) -> float:
    """Return the operations of one run: two for each multiplication of convolutions and matrix products, no others.

    Shapes must be fixed; a node whose shapes cannot be inferred is not counted, nor are the bodies of control flow.
    """
    inferred = shape_inference.infer_shapes(model, data_prop=True)
    graph = inferred.graph
    shapes: Shapes = {tensor.name: tuple(tensor.dims) for tensor in graph.initializer}
    for value in (*graph.input, *graph.value_info, *graph.output):
        dims = value.type.tensor_type.shape.dim
        if value.type.tensor_type.HasField("shape") and all(dim.HasField("dim_value") for dim in dims):
            shapes[value.name] = tuple(dim.dim_value for dim in dims)
    return float(sum(_multiplications(node, shapes) * 2 for node in graph.node))


def count_network_flops(network: ZooNetwork) -> float:
    """Return the operations of one run of a zoo network, from its structure alone: no weights are drawn."""
    weights = [helper.make_tensor_value_info(w.name, TensorProto.FLOAT, w.shape) for w in network.weights]
    inputs = [helper.make_tensor_value_info(name, kind, shape) for name, kind, shape in network.inputs]
    outputs = [helper.make_tensor_value_info(name, kind, shape) for name, kind, shape in network.outputs]
    graph = helper.make_graph(network.nodes, network.name, [*inputs, *weights], outputs, network.constants)
    return count_flops(helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)]))


def _multiplications(node: NodeProto, shapes: Shapes) -> int:
    count = _COUNTERS.get(node.op_type)
    if count is None or node.domain not in ("", "ai.onnx") or not all(i in shapes for i in node.input[:2]):
        return 0
    output = shapes.get(node.output[0])
    return 0 if output is None else count(node, shapes[node.input[0]], shapes[node.input[1]], output)


def _of_convolution(_: NodeProto, _data: tuple[int, ...], weight: tuple[int, ...], output: tuple[int, ...]) -> int:
    """Each output element sums over the weight's input channels and window; groups are in the weight's shape."""
    return math.prod(output) * math.prod(weight[1:])


def _of_transposed(_: NodeProto, data: tuple[int, ...], weight: tuple[int, ...], _output: tuple[int, ...]) -> int:
    """Each input element is spread over the weight's output channels and window."""
    return math.prod(data) * math.prod(weight[1:])


def _of_product(_: NodeProto, left: tuple[int, ...], _right: tuple[int, ...], output: tuple[int, ...]) -> int:
    return math.prod(output) * left[-1]


def _of_gemm(node: NodeProto, left: tuple[int, ...], _right: tuple[int, ...], output: tuple[int, ...]) -> int:
    transposed = any(attribute.name == "transA" and attribute.i for attribute in node.attribute)
    return math.prod(output) * left[0 if transposed else 1]


_Counter = Callable[[NodeProto, tuple[int, ...], tuple[int, ...], tuple[int, ...]], int]


_COUNTERS: dict[str, _Counter] = {
    "Conv": _of_convolution,
    "ConvTranspose": _of_transposed,
    "Gemm": _of_gemm,
    "MatMul": _of_product,
}


Prepare = Callable[[ModelRef], Prepared]


def prepare(ref: ModelRef, about: DeviceDescription) -> Prepared:
    """Import and lower the model as a job on this device would; returns its subgraphs.

    Raises:
        InputError: the model cannot be used.
        EngineError: its import crashes.
    """
    with TemporaryDirectory(prefix="kintune-estimate-") as directory, interview("kintune.tuning.job.process") as job:
        spec = JobSpec(
            run_id="estimate",
            model=ref,
            device_type=about.device_type,
            protocol=about.protocol,
            options=_OPTIONS,
            output=os.path.join(directory, "estimate"),
        )
        return msgspec.msgpack.decode(job.first_work("estimate", msgspec.msgpack.encode(spec)), type=Prepared)


@contextmanager
def preparing(
    *, target: str = "native", threads: int | None = None, on_wait: Callable[[str], None] | None = None
) -> Iterator[Prepare]:
    """Yield a function that prepares models one after the other, while the cores are locked.

    `on_wait` is called with a description of the process that holds the lock.

    Raises:
        InputError: the target or the number of threads is not possible.
    """
    require_tried_versions()
    cores = choose_cores(threads or 0)
    with cores_lock(cores, on_wait):
        with interview("kintune.workers.device_worker", ("--target", target, "--threads", str(len(cores)))) as device:
            about = msgspec.msgpack.decode(device.about, type=DeviceDescription)
        yield lambda ref: prepare(ref, about)


def weight_bytes(ref: ModelRef) -> int:
    """Return the bytes of the model's weights as stored; for an exported program, the size of its file.

    Raises:
        ModelError: the model cannot be used.
    """
    if ref.kind == ZOO:
        return zoo.build(ref.source, **ref.options).nbytes
    if ref.kind == ONNX:
        return sum(values.nbytes for values in open_graph(Path(ref.source), own=ref.reads_other_files).weights.values())
    return Path(ref.source).stat().st_size
