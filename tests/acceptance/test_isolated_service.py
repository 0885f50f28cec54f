"""A service that isolates: an ordinary job is done inside, and models that mean harm end as lines about themselves."""

from __future__ import annotations

import contextlib
import io
import pickle
import zipfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import psutil
import pytest
from onnx import TensorProto, helper, numpy_helper

from kintune.errors import KintuneError
from kintune.hardware.cores import physical_cores
from kintune.service.client import Client
from kintune.testing.serving import Serving, serving

pytestmark = [pytest.mark.tvm, pytest.mark.needs("isolation"), pytest.mark.timeout(900)]

NETWORK = Path(__file__).parents[2] / "benchmarks/one_layer.onnx"
CORES = physical_cores()
DEVICE = f"cpu:{CORES[-1]}" if len(CORES) > 1 else "cpu"
PROGRAMS = ("kintune.tuning.job.process", "kintune.workers.build_worker", "kintune.workers.device_worker")


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    data = tmp_path_factory.mktemp("service") / "data"
    with serving(data, "--device", DEVICE, "--isolation", "on") as running:
        yield running


def workers(service: Serving) -> list[str]:
    """The command lines of processes that work on jobs."""
    found = []
    for child in psutil.Process(service.process.pid).children(recursive=True):
        with contextlib.suppress(psutil.Error):
            line = " ".join(child.cmdline())
            if any(program in line for program in PROGRAMS):
                found.append(line)
    return found


def test_a_job_is_done_in_processes_that_are_confined(service: Serving) -> None:
    lines: set[str] = set()
    with Client(service.url) as client:
        job = client.submit(client.upload(NETWORK)["id"], trials=8)["id"]
        while client.job(job)["state"] not in ("done", "failed", "cancelled"):
            lines.update(workers(service))
        found = client.job(job)
    assert found["state"] == "done", found["reason"]
    for program in PROGRAMS:
        assert any(program in line for line in lines)
    assert all("kintune.wire.confined" in line for line in lines)
    assert not list((service.data / "work").iterdir())


def _model(
    nodes: Sequence[Any], weights: Sequence[TensorProto] = (), name: str = "x", shape: Sequence[int] = (4,)
) -> bytes:
    graph = helper.make_graph(
        list(nodes), "hostile", [helper.make_tensor_value_info(name, TensorProto.FLOAT, list(shape))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)], list(weights),
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    return bytes(model.SerializeToString())


def _external(location: str) -> bytes:
    weight = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[4], data_location=TensorProto.EXTERNAL)
    weight.external_data.append(onnx.StringStringEntryProto(key="location", value=location))
    return _model([helper.make_node("Add", ["x", "w"], ["y"])], [weight])


def _large(extent: int) -> bytes:
    shape = numpy_helper.from_array(np.array([extent, extent], np.int64), "shape")
    made = helper.make_node("ConstantOfShape", ["shape"], ["c"])
    summed = helper.make_node("ReduceSum", ["c"], ["s"], keepdims=0)
    return _model([made, summed, helper.make_node("Add", ["x", "s"], ["y"])], [shape])


def _nested(depth: int) -> bytes:
    """A graph in an attribute of a node of a graph, and so on."""
    content = b""
    for number in (6, 5, 1) * depth:  # GraphProto.node, NodeProto.attribute, AttributeProto.g
        content = bytes([number << 3 | 2]) + _varint(len(content)) + content
    return b"\x08\x09" + bytes([7 << 3 | 2]) + _varint(len(content)) + content


def _varint(number: int) -> bytes:
    """A number as protobuf writes it."""
    groups = []
    while number >= 128:
        groups.append(number & 127 | 128)
        number >>= 7
    return bytes([*groups, number])


def _damaged() -> bytes:
    weight = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[1 << 40, 1 << 40], raw_data=b"1234")
    return _model([helper.make_node("Add", ["x", "w"], ["y"])], [weight])


def _archive() -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("../../../etc/cron.d/kintune", b"0" * (64 << 20))
    return content.getvalue()


class _Command:
    def __reduce__(self) -> tuple[Callable[..., Any], tuple[str]]:
        return exec, ("raise SystemExit('unpickled')",)


HOSTILE: dict[str, Callable[[], bytes]] = {
    "weights in /etc/passwd, by a relative path": lambda: _external("../../../../../../etc/passwd"),
    "weights in /etc/passwd, by an absolute path": lambda: _external("/etc/passwd"),
    "weights in a file of the service": lambda: _external("../../settings.json"),
    "a weight of 2^80 elements": lambda: _damaged(),
    "an input of 2^60 elements": lambda: _model([helper.make_node("Relu", ["x"], ["y"])], shape=[1 << 30, 1 << 30]),
    "graphs in graphs, 10,000 deep": lambda: _nested(10_000),
    "an archive that leaves its folder, of 64 MB of zeros": lambda: _archive(),
    "a pickle that runs a command": lambda: pickle.dumps(_Command(), protocol=4),
    "an operator of an unknown library": lambda: _model([helper.make_node("Exec", ["x"], ["y"], domain="/bin/sh")]),
    "a constant of 2^40 elements": lambda: _large(1 << 20),
    "a constant of 2^62 elements": lambda: _large(1 << 31),
    "an input that is called like a path": lambda: _model(
        [helper.make_node("Relu", ["../../../../etc/passwd"], ["y"])], name="../../../../etc/passwd"
    ),
}


@pytest.mark.parametrize("what", HOSTILE, ids=lambda what: what.replace(" ", "-").replace("/", "_"))
def test_models_that_mean_harm_end_as_a_line(service: Serving, tmp_path: Path, what: str) -> None:
    """An input may be called as one likes: that model is tuned, and nothing is written elsewhere."""
    file = tmp_path / "model.onnx"
    file.write_bytes(HOSTILE[what]())
    harmless = what == "an input that is called like a path"
    with Client(service.url) as client:
        said = ""
        try:
            stored = client.upload(file)
            said = (stored["findings"] or {}).get("problem", "")
            if not said:
                assert client.wait(client.submit(stored["id"], trials=4)["id"])["state"] == "done"
        except KintuneError as error:
            said = str(error)
    assert bool(said) is not harmless
    assert "root:" not in said
    service.wait_until()
