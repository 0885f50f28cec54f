from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from onnx import ModelProto, NodeProto, TensorProto, helper

from kintune.core.candidate import Candidate
from kintune.core.config import JobSpec
from kintune.core.device import Cache, DeviceDescription, Machine, Peak
from kintune.core.measurement_protocol import DeviceType, MeasurementProtocol
from kintune.core.outcome import Outcome, Status
from kintune.core.report import FastestBaseline
from kintune.core.stage_results import BaselineLatencies, Prepared
from kintune.core.workload import Subgraph
from kintune.errors import InputError
from kintune.models import zoo
from kintune.models.ref import parse_ref
from kintune.records import Measurement, Store
from kintune.tuning import estimation as module
from kintune.tuning.estimation import count_flops, count_network_flops, estimate_model, preparing
from tests.support.fake_interview import FakeInterview

ZOO = parse_ref("zoo:mobilenet_v1_0.5")

PEAK = Peak(gflops=100.0, gbytes_per_s=10.0, threads=2, read_gbytes_per_s=12.0, narrow_gflops={})

MACHINE = Machine("a CPU", "x86_64", 2, 2, 2, 2, 1 << 34, (Cache(3, "unified", 1 << 20),), ())

DEVICE = DeviceType(target="{}", model="a CPU", isa=(), threads=2, protocol="1-cold")

ABOUT = DeviceDescription(DEVICE, MeasurementProtocol(threads=2), (), MACHINE, "tvm 0.27")

CONV = Subgraph("conv", "a" * 32, 3, 1e8, "conv2d", "conv2d", True)

SOFTMAX = Subgraph("softmax", "b" * 32, 1, 1e3, "softmax", "softmax", False)

PREPARED = Prepared("mobilenet", "d" * 32, (), (), (CONV, SOFTMAX), {}, ())


class JobInterview(FakeInterview):
    """Answers as a device worker and as a job process do."""

    def __init__(self) -> None:
        super().__init__(ABOUT, peak=PEAK)
        self.specs: list[JobSpec] = []

    def first_work(self, job: str, spec: bytes) -> bytes:
        self.specs.append(msgspec.msgpack.decode(spec, type=JobSpec))
        return msgspec.msgpack.encode(PREPARED)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> JobInterview:
    fake = JobInterview()
    monkeypatch.setattr(module, "interview", fake)
    monkeypatch.setattr(module, "time_models", lambda conditions, item: BaselineLatencies(({"onnxruntime": (9.0,)},)))
    monkeypatch.setattr(module, "onnx_path_of", lambda ref: "net.onnx")
    return fake


def add_measurement(store: Store, subgraph: Subgraph, time_us: float, run: str | None = None) -> None:
    store.workloads.add(subgraph, b"a program")
    store.measurements.add(
        Measurement(
            device_type=store.devices.add(DEVICE),
            compiler=ABOUT.compiler,
            candidate=Candidate.untuned(subgraph.workload),
            outcome=Outcome(Status.OK, (time_us,)),
            run_id=run,
        )
    )


def test_subgraphs_count_as_often_as_they_occur(asked: JobInterview) -> None:
    estimate = estimate_model(ZOO)
    assert estimate.flops == 3e8 + 1e3
    assert (estimate.subgraphs, estimate.tunable) == (2, 1)
    assert estimate.weight_bytes == 4 * 1_331_592 + 4 * 2 * 5472  # parameters, and the batch norms' statistics
    assert estimate.bound_ms == pytest.approx(3.0, rel=1e-3)
    assert asked.specs[0].model == ZOO


def test_without_records_nothing_is_known_and_nothing_created(asked: JobInterview, tmp_path: Path) -> None:
    estimate = estimate_model(ZOO, trials=100, records=str(tmp_path / "records.sqlite"))
    assert (estimate.known.measurements, estimate.known.latency_ms, estimate.judged_by_runs) == (0, None, False)
    assert list(tmp_path.iterdir()) == []


def test_the_peak_is_measured_once_for_a_device_type(asked: JobInterview, tmp_path: Path) -> None:
    where = tmp_path / "records.sqlite"
    Store.open(where).close()
    assert estimate_model(ZOO, records=str(where)).peak == PEAK
    assert estimate_model(ZOO, records=str(where)).peak == PEAK
    assert asked.asked == ["peak"]
    with Store.open(where) as store:
        assert store.devices.peak(DEVICE.digest) == PEAK


def test_what_is_known_of_every_subgraph_adds_up(asked: JobInterview, tmp_path: Path) -> None:
    where = tmp_path / "records.sqlite"
    with Store.open(where) as store:
        add_measurement(store, CONV, 1000.0)
    partly = estimate_model(ZOO, records=str(where)).known
    assert (partly.workloads, partly.measurements, partly.latency_ms) == (1, 1, None)
    with Store.open(where) as store:
        add_measurement(store, SOFTMAX, 50.0)
    assert estimate_model(ZOO, records=str(where)).known.latency_ms == pytest.approx(3.05)


def test_past_runs_tell_how_long_a_trial_takes(
    asked: JobInterview, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = tmp_path / "records.sqlite"
    monkeypatch.setattr(module, "_ENOUGH_TRIALS", 2)
    with Store.open(where) as store:
        store.runs.create("r", key="k", model_name="m")
        store.runs.update("r", active_seconds=6.0)
        add_measurement(store, CONV, 1000.0, run="r")
        add_measurement(store, SOFTMAX, 50.0, run="r")
        add_measurement(store, msgspec.structs.replace(CONV, workload="c" * 32), 70.0)  # of another machine's run
    estimate = estimate_model(ZOO, trials=10, records=str(where))
    assert (estimate.seconds - estimate.baseline_seconds, estimate.judged_by_runs) == (30.0, True)
    assert 4.0 < estimate.baseline_seconds < 15.0  # onnxruntime is always there


def test_what_came_from_elsewhere_tells_nothing_of_the_pace_here(
    asked: JobInterview, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = tmp_path / "records.sqlite"
    monkeypatch.setattr(module, "_ENOUGH_TRIALS", 1)
    with Store.open(where) as store:
        store.runs.create("r", key="k", model_name="m")
        store.runs.update("r", active_seconds=6.0)
        add_measurement(store, CONV, 1000.0)
    assert not estimate_model(ZOO, trials=10, records=str(where)).judged_by_runs


PUBLISHED_GMACS = {"resnet18": 1.82, "resnet50": 4.09, "mobilenet_v2": 0.30, "vit_base": 17.6}

Shape = tuple["int | str", ...]


def model_of(node: NodeProto, output: Shape, **inputs: Shape) -> ModelProto:
    graph = helper.make_graph(
        [node],
        "one",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in inputs.items()],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, output)],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


@pytest.mark.parametrize(("name", "gmacs"), PUBLISHED_GMACS.items())
def test_the_zoo_counts_as_published(name: str, gmacs: float) -> None:
    assert count_network_flops(zoo.build(name)) / 2e9 == pytest.approx(gmacs, rel=0.02)


@pytest.mark.parametrize(
    ("operator", "attributes", "x", "w", "y", "multiplications"),
    [
        ("Conv", {}, (1, 4, 6, 6), (8, 4, 3, 3), (1, 8, 4, 4), 8 * 16 * 36),
        ("Conv", {"group": 4}, (1, 4, 6, 6), (4, 1, 3, 3), (1, 4, 4, 4), 4 * 16 * 9),
        ("ConvTranspose", {}, (1, 4, 2, 2), (4, 2, 3, 3), (1, 2, 4, 4), 16 * 2 * 9),
        ("MatMul", {}, (2, 3, 4), (4, 5), (2, 3, 5), 30 * 4),
        ("Gemm", {"transA": 1}, (4, 3), (4, 5), (3, 5), 15 * 4),
        ("Gemm", {}, (3, 4), (4, 5), (3, 5), 15 * 4),
        ("Add", {}, (4,), (4,), (4,), 0),
        ("MatMul", {}, ("n", 4), (4, 5), ("n", 5), 0),
    ],
)
def test_an_operator_counts_two_for_each_multiplication(
    operator: str, attributes: dict[str, int], x: Shape, w: Shape, y: Shape, multiplications: int
) -> None:
    node = helper.make_node(operator, ["x", "w"], ["y"], **attributes)
    assert count_flops(model_of(node, y, x=x, w=w)) == 2 * multiplications


@pytest.mark.tvm
def test_a_model_is_split_as_for_tuning_and_the_next_one_too(tmp_path: Path) -> None:
    from tests.support.tiny_network import make_tiny_network

    network = make_tiny_network(tmp_path)
    with preparing(threads=1) as prepare:
        first, again = (prepare(parse_ref(str(network.onnx))) for _ in range(2))
        (tmp_path / "bad.onnx").write_bytes(b"no model")
        with pytest.raises(InputError, match=r"bad\.onnx"):
            prepare(parse_ref(str(tmp_path / "bad.onnx")))
    assert first == again
    assert {subgraph.operator for subgraph in first.subgraphs if subgraph.tunable} == {"dense"}


def test_the_bound_is_that_of_the_program_with_the_least_arithmetic(
    asked: JobInterview, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = estimate_model(ZOO, records=str(tmp_path / "none.sqlite"))
    saving = msgspec.structs.replace(CONV, least_flops=CONV.flops / 4)
    monkeypatch.setattr("tests.tuning.test_estimation.PREPARED", msgspec.structs.replace(PREPARED, subgraphs=(saving,)))
    saved = estimate_model(ZOO, records=str(tmp_path / "none.sqlite"))
    assert saved.flops == 3e8
    assert saved.bound_ms == pytest.approx(plain.bound_ms / 4, rel=1e-3)


@pytest.mark.tvm
def test_a_target_that_cannot_be_is_refused() -> None:
    with pytest.raises(InputError), preparing(target="no such target", threads=1):
        pytest.fail("it did not refuse")


def test_of_several_combinations_one_run_with_each_is_estimated(
    asked: JobInterview, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = estimate_model(ZOO, records=str(tmp_path / "none.sqlite"))
    large = msgspec.structs.replace(CONV, workload="c" * 32, flops=2 * CONV.flops, each=(0, 3))
    each = (msgspec.structs.replace(CONV, each=(3, 0)), large)
    monkeypatch.setattr("tests.tuning.test_estimation.PREPARED", msgspec.structs.replace(PREPARED, subgraphs=each))
    both = estimate_model(ZOO, records=str(tmp_path / "none.sqlite"))
    assert (alone.combinations, both.combinations) == (1, 2)
    assert both.flops == 9 * CONV.flops
    assert both.bound_ms > 2 * alone.bound_ms


def test_the_likely_gain_is_foretold(asked: JobInterview) -> None:
    found = estimate_model(ZOO).forecast
    assert found is not None
    assert (found.baseline, found.judged_by) == (FastestBaseline("onnxruntime", 9.0), 0)
    assert 2.0 < found.low_ms < found.high_ms < 12.0


def test_a_network_that_stays_in_the_cache_is_foretold_to_be_faster(
    asked: JobInterview, monkeypatch: pytest.MonkeyPatch
) -> None:
    dense = Subgraph("dense", "e" * 32, 1, 1e5, "dense", "dense", True, weight_bytes=2e5, bytes=2.1e5)
    monkeypatch.setattr("tests.tuning.test_estimation.PREPARED", msgspec.structs.replace(PREPARED, subgraphs=(dense,)))
    cold = estimate_model(ZOO).forecast
    asked.about = msgspec.msgpack.encode(msgspec.structs.replace(ABOUT, cool_bytes=1 << 20))
    cool = estimate_model(ZOO).forecast
    assert cold is not None
    assert cool is not None
    assert cool.low_ms < cold.low_ms / 2
