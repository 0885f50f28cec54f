"""A real Ray cluster of two nodes on this machine; jobs live on both."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kintune.core.knowledge import TrainingConditions
from kintune.records import Store
from kintune.scheduler.policies import Sequential
from kintune.scheduler.scheduler import RetryLimits, Scheduler
from kintune.transfer.refresh_job import RefreshSpec
from kintune.workers.engine.job_run import JobEnd, JobEnding, JobLaunch
from kintune.workers.engine.local import LocalEngine
from kintune.workers.engine.process import Anywhere
from kintune.workers.fleet.agent_registry import Admitted
from kintune.workers.fleet.backlog import Backlog
from kintune.workers.fleet.growth import Growth
from kintune.workers.fleet.messages import Join
from kintune.workers.fleet.ray_cluster import Growing, RayCluster
from tests.support.journal import MemoryJournal
from tests.support.tools import require

ray_utils = require("ray.cluster_utils")

pytestmark = [pytest.mark.timeout(300), pytest.mark.filterwarnings("ignore::ResourceWarning")]


JOB = "kintune.transfer.refresh_job"


@pytest.fixture
def cluster() -> Iterator[Any]:
    cluster = ray_utils.Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    cluster.add_node(num_cpus=1)
    yield cluster
    cluster.shutdown()


def test_jobs_and_their_stages_run_on_the_nodes(cluster: Any, tmp_path: Path) -> None:
    records = tmp_path / "records.sqlite"
    Store.open(str(records)).close()
    spec = msgspec.msgpack.encode(RefreshSpec(str(records), TrainingConditions("d", "c", "f")))
    journal = MemoryJournal()
    log = tmp_path / "engine.log"
    engine = LocalEngine(
        Scheduler(Sequential(), RetryLimits(resources_may_join=True)), journal, {}, (), log=log, elsewhere={"build"}
    )
    with engine:
        ends: dict[str, JobEnding] = {}
        here: list[str] = []

        def admit(join: Join) -> list[Admitted]:
            here.append(join.name)
            if len(here) == 2:
                threading.Timer(1.0, add).start()  # once the engine knows both
            return [Admitted(device.type) for device in join.devices]

        def add() -> None:
            for n in range(2):
                engine.add(JobLaunch(f"j{n}", Anywhere(JOB), spec))

        def ended(job: str, end: JobEnd) -> None:
            ends[job] = end.ending
            if len(ends) == 2:
                engine.leave()

        with closing(RayCluster(cluster.address, engine, admit)):
            engine.serve(on_end=ended)
    assert ends == {"j0": JobEnding.FINISHED, "j1": JobEnding.FINISHED}
    said = log.read_text()
    nodes = {line.split("started by ")[1].split(":")[0] for line in said.splitlines() if "started by ray-" in line}
    assert len(nodes) == 2


@pytest.fixture
def growing_cluster(tmp_path: Path) -> Iterator[None]:
    """A cluster without a core, whose autoscaler has up to two nodes of one core to give."""
    node = {
        "resources": {"CPU": 1, "object_store_memory": 10**8},
        "node_config": {},
        "min_workers": 0,
        "max_workers": 2,
    }
    config = {
        "cluster_name": "growing",
        "max_workers": 2,
        "provider": {"type": "fake_multinode"},
        "available_node_types": {
            "node": node,
            "ray.head.default": {"resources": {"CPU": 0}, "node_config": {}, "max_workers": 0},
        },
        "head_node_type": "ray.head.default",
        "upscaling_speed": 1.0,
        "idle_timeout_minutes": 0.05,
        **{name: {} for name in ("auth", "docker", "file_mounts")},
        **{name: [] for name in ("initialization_commands", "setup_commands", "head_setup_commands")},
        **{name: [] for name in ("worker_setup_commands", "head_start_ray_commands", "worker_start_ray_commands")},
        **{name: [] for name in ("cluster_synced_files", "rsync_exclude", "rsync_filter")},
        "file_mounts_sync_continuously": False,
    }
    file = tmp_path / "cluster.json"
    file.write_text(json.dumps(config))
    ray = str(Path(sys.executable).with_name("ray"))
    environment = {**os.environ, "AUTOSCALER_UPDATE_INTERVAL_S": "1", "RAY_FAKE_CLUSTER": "1"}
    subprocess.run(
        [ray, "start", "--head", "--num-cpus=0", f"--autoscaling-config={file}"], env=environment, check=True
    )
    yield
    subprocess.run([ray, "stop", "--force"], check=True)


@pytest.mark.slow
@pytest.mark.usefixtures("growing_cluster")
def test_a_cluster_grows_for_those_that_wait(tmp_path: Path) -> None:
    records = tmp_path / "records.sqlite"
    Store.open(str(records)).close()
    spec = msgspec.msgpack.encode(RefreshSpec(str(records), TrainingConditions("d", "c", "f")))
    backlog = Backlog()
    engine = LocalEngine(
        Scheduler(Sequential(), RetryLimits(resources_may_join=True)),
        MemoryJournal(),
        {},
        (),
        elsewhere={"build"},
        observe=backlog,
    )
    with engine:
        ends: list[JobEnding] = []

        def ended(job: str, end: JobEnd) -> None:
            ends.append(end.ending)
            if len(ends) == 2:
                engine.leave()

        growth = Growth(after_s=5.0, most=2)
        park = RayCluster("", engine, lambda join: [], growing=Growing(backlog, growth))
        with closing(park):
            for n in range(2):
                engine.add(JobLaunch(f"j{n}", Anywhere(JOB), spec))
            engine.serve(on_end=ended)
            assert ends == [JobEnding.FINISHED] * 2
            assert growth.asked
