"""What can be told of `deploy/` without a cluster: the files are what Ray takes, and agree with the code."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

import pytest

from kintune.workers.fleet.ray_cluster import DEVICE_RESOURCE
from tests.support.tools import require

require("ray")  # which brings yaml
yaml = importlib.import_module("yaml")
pytestmark = pytest.mark.needs("ray")

DEPLOY = Path(__file__).parents[3] / "deploy"


def test_ray_takes_the_cluster_configuration() -> None:
    util = importlib.import_module("ray.autoscaler._private.util")
    config = yaml.safe_load((DEPLOY / "ray-cluster.yaml").read_text())
    util.validate_config(util.prepare_config(config))


def containers(spec: dict[str, Any]) -> list[dict[str, Any]]:
    groups = [spec["headGroupSpec"], *spec["workerGroupSpecs"]]
    return [container for group in groups for container in group["template"]["spec"]["containers"]]


def test_the_manifest_is_consistent() -> None:
    manifest = yaml.safe_load((DEPLOY / "kuberay.yaml").read_text())
    assert (manifest["apiVersion"], manifest["kind"]) == ("ray.io/v1", "RayCluster")
    spec = manifest["spec"]
    assert spec["enableInTreeAutoscaling"]
    assert {container["image"] for container in containers(spec)} == {"kintune:ray"}
    for container in containers(spec):
        limits = container["resources"]["limits"]
        assert int(limits["cpu"]) > 0
        assert container["resources"].get("requests", limits) == limits
    for group in spec["workerGroupSpecs"]:
        assert group["minReplicas"] <= group["replicas"] <= group["maxReplicas"]


def test_devices_are_named_as_the_park_looks_for_them() -> None:
    manifest = yaml.safe_load((DEPLOY / "kuberay.yaml").read_text())
    (said,) = (
        group["rayStartParams"]["resources"]
        for group in manifest["spec"]["workerGroupSpecs"]
        if "resources" in group["rayStartParams"]
    )
    resources = json.loads(json.loads(said))  # quoted once more, for the shell in which the operator starts Ray
    assert all(DEVICE_RESOURCE.fullmatch(name) for name in resources)
