"""What can be told of `deploy/` without a cluster: the files are what Ray takes, and agree with the code."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
from copy import copy
from pathlib import Path
from typing import Any

import pytest

from kintune.cli.serve import command as serve
from kintune.workers.fleet.content_cache import CACHE_VARIABLE, MOST_BYTES
from kintune.workers.fleet.ray_cluster import DEVICE_RESOURCE, ray_address
from tests.support.tools import require

require("ray")  # which brings yaml
yaml = importlib.import_module("yaml")
pytestmark = pytest.mark.needs("ray")

DEPLOY = Path(__file__).parents[3] / "deploy"


def test_ray_takes_the_cluster_configuration() -> None:
    util = importlib.import_module("ray.autoscaler._private.util")
    config = yaml.safe_load((DEPLOY / "ray-cluster.yaml").read_text())
    util.validate_config(util.prepare_config(config))


def manifests() -> dict[str, dict[str, Any]]:
    """The documents of the manifest, by kind."""
    return {each["kind"]: each for each in yaml.safe_load_all((DEPLOY / "kuberay.yaml").read_text())}


def containers(spec: dict[str, Any]) -> list[dict[str, Any]]:
    groups = [spec["headGroupSpec"], *spec["workerGroupSpecs"]]
    return [container for group in groups for container in group["template"]["spec"]["containers"]]


def test_the_manifest_is_consistent() -> None:
    manifest = manifests()["RayCluster"]
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
    manifest = manifests()["RayCluster"]
    (said,) = (
        group["rayStartParams"]["resources"]
        for group in manifest["spec"]["workerGroupSpecs"]
        if "resources" in group["rayStartParams"]
    )
    resources = json.loads(json.loads(said))  # quoted once more, for the shell in which the operator starts Ray
    assert all(DEVICE_RESOURCE.fullmatch(name) for name in resources)


def test_only_the_service_has_a_volume_that_stays() -> None:
    found = manifests()
    pods = {"service": found["Deployment"]["spec"]["template"]["spec"]}
    spec = found["RayCluster"]["spec"]
    pods["head"] = spec["headGroupSpec"]["template"]["spec"]
    pods.update({group["groupName"]: group["template"]["spec"] for group in spec["workerGroupSpecs"]})
    claim = found["PersistentVolumeClaim"]
    assert claim["spec"]["accessModes"] == ["ReadWriteOnce"]
    volumes = {name: pod.get("volumes", []) for name, pod in pods.items()}
    claims = {name for name, each in volumes.items() if any("persistentVolumeClaim" in volume for volume in each)}
    assert claims == {"service"}
    for group in spec["workerGroupSpecs"]:
        (container,) = group["template"]["spec"]["containers"]
        (mount,) = container["volumeMounts"]
        assert {"name": CACHE_VARIABLE, "value": mount["mountPath"]} in container["env"]
        (volume,) = volumes[group["groupName"]]
        assert volume["name"] == mount["name"]
        assert int(volume["emptyDir"]["sizeLimit"].removesuffix("Gi")) << 30 > MOST_BYTES


def test_the_service_s_command_is_one_that_runs_here(tmp_path: Path) -> None:
    """With a command in place of `kintune` that takes the same options, and does nothing."""
    (container,) = manifests()["Deployment"]["spec"]["template"]["spec"]["containers"]
    fake = tmp_path / "kintune"
    fake.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    fake.chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    said = subprocess.run(
        [*container["command"], *container["args"]], env=environment, check=True, capture_output=True, text=True
    )
    name, *arguments = said.stdout.splitlines()
    assert name == "serve"
    context = copy(serve).make_context("serve", arguments)  # a command keeps the first help option that it makes
    assert context.params["device"] == f"cpu:{max(os.sched_getaffinity(0))}"
    address = ray_address(context.params["engine"])
    cluster = manifests()["RayCluster"]["metadata"]["name"]
    assert address == f"ray://{cluster}-head-svc:10001"


def test_nodes_have_probes_of_their_own_that_work_with_what_is_in_the_image() -> None:
    """The operator's would restart them again and again: they need what the image does not have."""
    spec = manifests()["RayCluster"]["spec"]
    (head,), workers = containers({**spec, "workerGroupSpecs": []}), containers(spec)[1:]
    for container in (head, *workers):
        assert container["livenessProbe"] == container["readinessProbe"]
    assert head["livenessProbe"]["tcpSocket"]["port"] == 6379  # Ray's own
    for worker in workers:
        *shell, script = worker["livenessProbe"]["exec"]["command"]
        for name, found in (("sh", True), ("nobody", False)):
            done = subprocess.run([*shell, script.replace("raylet", name)], check=False)
            assert (done.returncode == 0) is found


def test_the_cluster_of_machines_installs_the_runtime_too() -> None:
    """No registry has it."""
    (install,) = yaml.safe_load((DEPLOY / "ray-cluster.yaml").read_text())["setup_commands"]
    assert " ~/kintune/runtime " in install
    assert "--constraint ~/kintune/constraints.txt" in install
