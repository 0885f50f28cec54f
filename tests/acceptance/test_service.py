"""A service with real processes, which are really killed."""

from __future__ import annotations

import contextlib
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import onnx
import psutil
import pytest

from kintune.hardware.cores import physical_cores
from kintune.runtime.package import read_manifest
from kintune.service.client import Client
from kintune.testing.serving import Serving, serving
from tests.support.quantisable import write_inputs, write_network

pytestmark = [pytest.mark.tvm, pytest.mark.timeout(600)]

NETWORK = Path(__file__).parents[2] / "benchmarks/one_layer.onnx"
CORES = physical_cores()
DEVICE = f"cpu:{CORES[-1]}" if len(CORES) > 1 else "cpu"  # more cores would wait for one that other tests have


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Serving]:
    with serving(tmp_path / "data", "--device", DEVICE) as running:
        yield running


def parts(service: Serving, module: str) -> list[psutil.Process]:
    """The processes of the service that run this module."""
    found = []
    for child in psutil.Process(service.process.pid).children(recursive=True):
        with contextlib.suppress(psutil.Error):
            if module in child.cmdline():
                found.append(child)
    return found


def events(service: Serving) -> list[tuple[str, int, str, int, str, str]]:
    """Everything that is committed."""
    with contextlib.closing(sqlite3.connect(service.data / "records.sqlite", timeout=30)) as connection:
        query = "SELECT run_id, seq, stage, idx, status, checksum FROM events ORDER BY run_id, seq"
        return connection.execute(query).fetchall()


def wait_for_event(service: Serving, kind: str) -> None:
    """Until a stage of this kind has had a result."""
    deadline = time.monotonic() + 120
    while not any(stage.startswith(kind) for _, _, stage, *_ in events(service)):
        assert time.monotonic() < deadline, service.log()
        time.sleep(0.02)


def test_a_job_outlives_everything_that_works_on_it(service: Serving) -> None:
    with Client(service.url) as client:
        job = client.submit(client.upload(NETWORK)["id"], trials=12)["id"]
        seen = set()
        for kind, module in (
            ("prepare", "kintune.service.orchestrator.process"),
            ("build", "kintune.service.web.process"),
            ("profile", "kintune.service.orchestrator.process"),
            ("profile", "kintune.tuning.job.process"),
            ("confirm", "kintune.service.orchestrator.process"),
        ):
            wait_for_event(service, kind)
            seen |= set(events(service))
            for process in parts(service, module):
                process.kill()
            service.wait_until()
        found = client.wait(job)
        assert found["state"] == "done"
        assert client.report(job)["trials"] >= 12
        after = events(service)
        assert seen <= set(after)
        well = [(run, stage, index) for run, _, stage, index, status, _ in after if status == "ok"]
        assert len(well) == len(set(well))


def test_a_model_that_cannot_be_imported_fails_its_job_with_a_reason(service: Serving, tmp_path: Path) -> None:
    model = onnx.load(NETWORK)
    model.graph.node[0].op_type = "NoSuchOperator"
    onnx.save(model, tmp_path / "odd.onnx")
    with Client(service.url) as client:
        job = client.submit(client.upload(tmp_path / "odd.onnx")["id"], trials=8)["id"]
        states = [data["state"] for kind, data in client.watch(job) if kind in ("job", "changed")]
        assert states[-1] == "failed"
        assert "NoSuchOperator" in client.job(job)["reason"]


@pytest.mark.slow  # tests/tuning/job/test_job_resuming.py resumes anywhere
def test_a_cancelled_job_goes_on_where_it_was(service: Serving, tmp_path: Path) -> None:
    with Client(service.url) as client:
        job = client.submit(client.upload(NETWORK)["id"], trials=40)["id"]
        wait_for_event(service, "profile")
        client.cancel(job)
        assert [data["state"] for kind, data in client.watch(job) if kind == "job"][-1] == "cancelled"
        measured = len([1 for _, _, stage, *_ in events(service) if stage.startswith("profile")])
        again = client.retry(job)
        assert client.wait(again["id"])["state"] == "done"
        assert len({run for run, *_ in events(service)}) == 1
        assert len([1 for _, _, stage, *_ in events(service) if stage.startswith("profile")]) >= measured
        client.download(again["id"], tmp_path / "net.kt")
        assert (tmp_path / "net.kt").stat().st_size > 0


def test_known_records_answer_without_tuning(service: Serving) -> None:
    with Client(service.url) as client:
        model = client.upload(NETWORK)["id"]
        first = client.wait(client.submit(model, trials=8)["id"])
        assert not first["reason"].startswith("already met")
        again = client.wait(client.submit(model, until=1000.0)["id"])
        assert again["reason"] == f"already met by what is known (the result of job {first['id']})"
        other = client.wait(client.submit(model, until=1000.0, device="local-cpu", seed=1, trials=1)["id"])
        assert other["reason"].startswith("already met")


def test_nothing_outlives_the_supervisor_and_the_next_one_goes_on(tmp_path: Path) -> None:
    with serving(tmp_path / "data", "--device", DEVICE) as service:
        begun = psutil.Process(service.process.pid).children(recursive=True)
        assert len(begun) >= 2
        service.process.kill()
        _, alive = psutil.wait_procs(begun, timeout=40)
        assert not alive
    with serving(tmp_path / "data", "--device", DEVICE) as service, Client(service.url) as client:
        job = client.submit(client.upload(NETWORK)["id"], search=False)
        client.wait(job["id"])


@pytest.mark.slow
@pytest.mark.parametrize("wanted", [{"trials": 8}, {"search": False}], ids=["tuned", "compiled"])
def test_a_job_quantises_its_model_with_inputs_that_were_handed_in(
    service: Serving, tmp_path: Path, wanted: dict[str, Any]
) -> None:
    write_network(tmp_path / "net.onnx")
    write_inputs(tmp_path / "samples", 4)
    with Client(service.url) as client:
        inputs = [each["id"] for each in client.upload_inputs(tmp_path / "samples")]
        model = client.upload(tmp_path / "net.onnx")["id"]
        job = client.submit(model, precision="auto", calibrate=inputs, max_error=0.1, **wanted)["id"]
        ended = client.wait(job)
        assert ended["state"] == "done", f"{ended['reason']}\n{service.log()}"
        report = client.report(job)
        executable = client.download(job, tmp_path / "net.kt")
    assert report["within_tolerance"]
    narrow = read_manifest(executable).narrow
    if any("was not quantised" in note for note in report["notes"]):
        return  # on a processor without products of bytes
    assert (report["quantised"]["int8"], report["quantised"]["held_back"]) == (4, 2)
    assert 0 < report["norm_error"] < 0.1
    assert narrow is not None
    assert narrow.quantised is not None
    assert narrow.quantised.int8 == 4
