"""A real Ray cluster whose only node that works has file systems of its own: files come and go through Ray."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import closing
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kintune.core.messages import Work
from kintune.core.stage import Demand, Stage
from kintune.scheduler.policies import Sequential
from kintune.scheduler.scheduler import RetryLimits, Scheduler
from kintune.workers.engine.job_run import JobEnd, JobLaunch
from kintune.workers.engine.local import LocalEngine
from kintune.workers.engine.process import Anywhere
from kintune.workers.fleet import ray_objects
from kintune.workers.fleet.ray_cluster import RayCluster
from tests.support.apart import node_apart, why_not_apart
from tests.support.journal import MemoryJournal
from tests.support.script import Act, Deed, Plot
from tests.support.scripted_job import Told
from tests.support.tools import require

ray_utils = require("ray.cluster_utils")

pytestmark = [pytest.mark.timeout(300), pytest.mark.filterwarnings("ignore::ResourceWarning")]

JOB = "tests.support.scripted_job"
MODEL = b"weights" * 500_000


@pytest.fixture
def service(tmp_path: Path) -> Path:
    directory = tmp_path / "service"
    directory.mkdir()
    return directory


APART = [pytest.param(kind, marks=pytest.mark.slow) for kind in ("its own address", "ray://")]  # as root


@pytest.fixture(params=[*APART, "shared"])
def address(request: pytest.FixtureRequest, tmp_path: Path, service: Path) -> Iterator[str]:
    """The address of the cluster, which a front reaches as one of its machines or from outside.

    Its node sees nothing of the service's directory, unless that is shared.
    """
    if request.param != "shared" and (reason := why_not_apart()):
        pytest.skip(reason)
    head: dict[str, Any] = {"num_cpus": 0, "include_dashboard": False}
    if request.param == "ray://":
        if find_spec("grpc") is None:
            pytest.skip("ray:// takes what `ray[client]` brings")
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            head["ray_client_server_port"] = free.getsockname()[1]
    cluster: Any = ray_utils.Cluster(initialize_head=True, head_node_args=head)
    if request.param == "shared":
        cluster.add_node(num_cpus=1)
        yield cluster.address
        cluster.shutdown()
        return
    with node_apart(cluster.address, service, tmp_path / "said", "--num-cpus=1"):
        port = head.get("ray_client_server_port")
        yield cluster.address if port is None else f"ray://127.0.0.1:{port}"
    cluster.shutdown()


def own(job: str, kind: str, deed: Deed) -> Work:
    return Work(Stage(kind, job, kind, Demand(cores=1), affinity=job), "job", b"", (deed.encode(),), 60)


# Ray's client, which hangs up at the end, sets results of futures that are cancelled.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_files_reach_a_node_once_and_results_come_back(
    address: str, service: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    shared = request.node.callspec.params["address"] == "shared"
    monkeypatch.setattr(ray_objects, "_PART", 1 << 20)  # so that there are several
    model, log = service / "model.onnx", tmp_path / "engine.log"
    model.write_bytes(MODEL)
    outputs = {f"j{n}": str(service / f"j{n}.kt") for n in range(2)}
    engine = LocalEngine(
        Scheduler(Sequential(), RetryLimits(resources_may_join=True)),
        MemoryJournal(),
        {},
        (),
        log=log,
        elsewhere={"build"},
    )
    ends: dict[str, JobEnd] = {}

    def ended(job: str, end: JobEnd) -> None:
        ends[job] = end
        if len(ends) == len(outputs):
            engine.leave()

    with engine:
        for job, output in outputs.items():
            reading = own(job, "read", Deed(Act.READ, text=str(model)))
            making = own(job, "make", Deed(Act.MAKE, text=output))
            plot = Plot(((reading,), (making,))).encode()
            engine.add(JobLaunch(job, Anywhere(JOB), plot, files=(str(model),), output=output))
        with closing(RayCluster(address, engine, lambda join: [], programs={JOB})) as nodes:
            put: list[str] = []
            read = nodes._objects._read
            monkeypatch.setattr(nodes._objects, "_read", lambda path: put.append(path) or read(path))
            engine.serve(on_end=ended)
    for job, output in outputs.items():
        finished = ends[job].finished
        assert finished is not None, (ends[job], log.read_text()[-2000:])
        told = msgspec.msgpack.decode(finished.summary, type=Told)
        assert told.events[0].payload == MODEL
        assert Path(output).read_text() == output
    assert put == ([] if shared else [str(model)])  # the second job found it on the node
