"""A whole run on a GPU, if only one on paper: what it takes is the driver, the runtime library and the compiler."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kintune.service.client import Client
from kintune.testing.serving import serving
from tests.support.paper_gpu import build_paper_gpu

if TYPE_CHECKING:
    from tests.acceptance.conftest import Place

pytestmark = [pytest.mark.tvm, pytest.mark.slow]


def test_a_network_is_tuned_for_a_gpu_and_proven_on_it(empty_place: Place, tmp_path: Path) -> None:
    (tmp_path / "paper").mkdir()
    gpu = build_paper_gpu(tmp_path / "paper")
    command = empty_place.tune("--device", "cuda", "--trials", 6, "--json", "report.json", **gpu)
    assert command.wait() == 0, command.err
    report = json.loads((empty_place.folder / "report.json").read_text())
    assert report["max_rel_error"] < 1e-3
    assert report["latency_ms"]["tuned"] > 0
    assert report["latency_ms"]["onnxruntime"] is None
    assert "runs on the CPU here" in report["skipped"]["onnxruntime"]
    ((kind,),) = empty_place.query("SELECT json FROM device_types")
    assert json.loads(str(kind))["model"] == "Paper GPU"


def test_a_service_tunes_on_its_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "paper").mkdir()
    for name, value in build_paper_gpu(tmp_path / "paper").items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("KINTUNE_LOCK_DIR", str(tmp_path / "locks"))
    network = Path(__file__).parents[2] / "benchmarks/one_layer.onnx"
    with (
        serving(tmp_path / "data", "--device", "cuda:0", "--device-name", "own-gpu") as service,
        Client(service.url) as client,
    ):
        job = client.submit(client.upload(network)["id"], trials=6, device="own-gpu")["id"]
        found = client.wait(job)
        assert found["state"] == "done", (found, service.log())
        report = client.report(job)
    assert report["trials"] >= 6
    assert report["within_tolerance"] is True
    assert report["latency_ms"]["tuned"]
