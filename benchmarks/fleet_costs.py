"""Measures the gain of a second device and the cost of the Ray engine, with mock jobs whose processes sleep.

    python benchmarks/fleet_costs.py            # both
    python benchmarks/fleet_costs.py --only devices

*Devices*: jobs limited by measuring, on one and two devices of a type.  *Ray*: the same jobs on the local engine with
two hosts of one core each, and on a Ray cluster of two nodes with one CPU each, on the same cores.  The setups take
turns.  Nothing else should run meanwhile.  Raw results go to `notebook/results/fleet_costs.json`.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import threading
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import msgspec

from kintune.hardware.cpu import inspect_machine
from kintune.scheduler.policies import policy
from kintune.scheduler.resources import Device, Host, Resource
from kintune.scheduler.scheduler import RetryLimits, Scheduler
from kintune.workers.engine.job_run import JobEnd, JobEnding, JobLaunch
from kintune.workers.engine.journal import MemoryJournal
from kintune.workers.engine.local import LocalEngine
from kintune.workers.engine.process import Anywhere, Command
from kintune.workers.fleet.agent_registry import Admitted, WorkerCommands
from kintune.workers.fleet.messages import Join
from kintune.workers.fleet.ray_cluster import RayCluster
from kintune_lab.simulate.mock_process import MOCK_WORKER
from kintune_lab.simulate.plan import MockJob, PlannedJob

RESULTS = Path(__file__).parents[1] / "notebook/results/fleet_costs.json"
WORKER, PROCESS = "kintune_lab.simulate.mock_worker", "kintune_lab.simulate.mock_process"
MOCK = WorkerCommands({MOCK_WORKER: WORKER}, {})
HOSTS = (Host("one", 1, 1 << 20), Host("two", 1, 1 << 20))


def jobs(profile_s: float, rounds: int) -> list[PlannedJob]:
    """Two jobs of `rounds` rounds."""
    shape = MockJob("type", rounds, 0.1, 0.4, profile_s, 0.1, inflight=3)
    return [shape.plan(f"job-{n}", known_as="mock") for n in range(2)]


def local(resources: tuple[Resource, ...], planned: list[PlannedJob]) -> float:
    """Seconds until all are done on the local engine."""
    commands = {MOCK_WORKER: python(WORKER)}
    with LocalEngine(Scheduler(policy("predictive")), MemoryJournal(), commands, resources) as engine:
        launches = [JobLaunch(job.id, python(PROCESS), msgspec.msgpack.encode(job)) for job in planned]
        start = time.monotonic()
        ends = engine.run(launches)
        seconds = time.monotonic() - start
    assert all(end.ending is JobEnding.FINISHED for end in ends.values()), ends
    return seconds


def on_ray(address: str, device: Device, planned: list[PlannedJob]) -> float:
    """Seconds on a Ray cluster whose nodes are hosts; the device is this machine's."""
    commands = {f"{MOCK_WORKER}@{device.id}": python(WORKER)}
    machine = Scheduler(policy("predictive"), RetryLimits(resources_may_join=True))
    engine = LocalEngine(machine, MemoryJournal(), commands, (device,), elsewhere={MOCK_WORKER})
    ends: dict[str, JobEnding] = {}
    here: list[str] = []
    began: list[float] = []

    def admit(join: Join) -> list[Admitted]:
        here.append(join.name)
        if len(here) == 2:
            threading.Timer(1.0, add).start()  # once the engine knows both
        return []

    def add() -> None:
        began.append(time.monotonic())
        for job in planned:
            engine.add(JobLaunch(job.id, Anywhere(PROCESS), msgspec.msgpack.encode(job)))

    def ended(job: str, end: JobEnd) -> None:
        ends[job] = end.ending
        if len(ends) == len(planned):
            engine.leave()

    with engine, closing(RayCluster(address, engine, admit, MOCK, programs=(PROCESS,))):
        engine.serve(on_end=ended)
        seconds = time.monotonic() - began[0]
    assert set(ends.values()) == {JobEnding.FINISHED}, ends
    return seconds


def python(module: str) -> Command:
    return Command((sys.executable, "-m", module))


def compare(setups: dict[str, Callable[[], float]], repeats: int) -> dict[str, list[float]]:
    """Seconds of each setup, run in turns."""
    found: dict[str, list[float]] = {name: [] for name in setups}
    for number in range(repeats):
        for name, run in setups.items():
            found[name].append(run())
            print(f"{number + 1}/{repeats} {name}: {found[name][-1]:.2f} s", flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=12, help="of each job; twice as many where devices are compared")
    parser.add_argument("--only", choices=("devices", "ray"))
    options = parser.parse_args()
    one, two = Device("first", "type"), Device("second", "type")
    raw: dict[str, object] = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    where = {"cpu": inspect_machine().cpu, "date": time.strftime("%Y-%m-%d")}  # of each part: they may be run apart
    if options.only != "ray":
        planned = jobs(1.0, 2 * options.rounds)
        found = compare(
            {"one device": lambda: local((*HOSTS, one), planned), "two": lambda: local((*HOSTS, one, two), planned)},
            options.repeats,
        )
        raw["devices"] = {**where, "rounds": 2 * options.rounds, "seconds": found}
        ratio = statistics.median(found["two"]) / statistics.median(found["one device"])
        print(f"two devices take {ratio:.3f} of the time that one takes (asked for: at most 0.55)")
    if options.only != "devices":
        from ray.cluster_utils import Cluster

        planned = jobs(0.4, options.rounds)
        cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
        cluster.add_node(num_cpus=1)
        found = compare(
            {"local": lambda: local((*HOSTS, one), planned), "ray": lambda: on_ray(cluster.address, one, planned)},
            options.repeats,
        )
        cluster.shutdown()
        raw["ray"] = {**where, "rounds": options.rounds, "seconds": found}
        ratio = statistics.median(found["ray"]) / statistics.median(found["local"])
        print(f"the Ray engine takes {ratio:.3f} of the local engine's time (asked for: at most 1.05)")
    RESULTS.write_text(json.dumps(raw, indent=1) + "\n")


if __name__ == "__main__":
    main()
