"""A service with a Ray cluster whose node sees nothing of the service's directory: its mount namespace hides it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kintune.service.client import Client
from kintune.testing.serving import serving
from tests.support.apart import node_apart, why_not_apart
from tests.support.tools import require

ray_utils = require("ray.cluster_utils")

pytestmark = [
    pytest.mark.tvm,
    pytest.mark.slow,
    pytest.mark.timeout(1200),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]

NETWORK = Path(__file__).parents[2] / "benchmarks/one_layer.onnx"


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Any]:
    if reason := why_not_apart():
        pytest.skip(reason)
    (tmp_path / "data").mkdir()
    cluster = ray_utils.Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    with node_apart(cluster.address, tmp_path / "data", tmp_path / "said", "--num-cpus=1"):
        yield cluster
    cluster.shutdown()


def test_a_model_is_tuned_on_a_node_that_does_not_see_it(cluster: Any, tmp_path: Path) -> None:
    options = ("--engine", cluster.address, "--device", "cpu:1")
    with serving(tmp_path / "data", *options) as service, Client(service.url) as client:
        model = client.upload(NETWORK)["id"]
        job = client.submit(model, trials=16)["id"]
        found = client.wait(job)
        story = (service.data / "engine.log").read_text(errors="replace")
        assert found["state"] == "done", (found, service.log()[-3000:], story[-6000:])
        client.download(job, tmp_path / "net.kt")
    assert (tmp_path / "net.kt").stat().st_size > 0
    assert "started by ray-" in story
