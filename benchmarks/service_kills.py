"""Kills processes of a running service at random, and checks that nothing is lost, doubled or left hanging.

    python benchmarks/service_kills.py --kills 100

Small networks are tuned meanwhile.  Before each kill, all committed data is noted.  At the end it must still be
there, unchanged, each event once, and every job must have ended.  Results go to `notebook/results/`.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import datetime
import json
import random
import sqlite3
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import psutil
from onnx import TensorProto, helper

from kintune.service.client import Client
from kintune.service.client_connection import ServiceError
from kintune.testing.serving import serving

RESULTS = Path(__file__).parents[1] / "notebook/results" / "service_kills.json"
PARTS = {
    "kintune.service.orchestrator.process": "orchestrator",
    "kintune.service.web.process": "web",
    "kintune.tuning.job.process": "job",
    "kintune.workers.build_worker": "build worker",
    "kintune.workers.device_worker": "device worker",
}
OVER = ("done", "failed", "cancelled")


def main() -> None:
    """Kill, check, write the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--at-once", type=int, default=4, help="jobs that are under way")
    parser.add_argument("--trials", type=int, default=48)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    draw = random.Random(options.seed)
    with tempfile.TemporaryDirectory() as name, serving(Path(name) / "data") as service, Client(service.url) as client:
        process = psutil.Process(service.process.pid)
        killed: collections.Counter[str] = collections.Counter()
        jobs: list[str] = []
        noted: dict[tuple[Any, ...], str] = {}
        begun = time.monotonic()
        while sum(killed.values()) < options.kills:
            with contextlib.suppress(ServiceError):  # the web is being started again: longer than a client waits
                keep_busy(client, Path(name), jobs, options.at_once, options.trials)
            time.sleep(draw.uniform(0.3, 5.0))
            noted |= committed(Path(name) / "data" / "records.sqlite")
            victim = choose(process, draw)
            if victim is not None:
                killed[victim] += 1
                print(f"{time.monotonic() - begun:6.0f} s  kill {sum(killed.values()):3}: {victim}", flush=True)
        endings = collections.Counter(state_at_the_end(client, job) for job in jobs)
        after = committed(Path(name) / "data" / "records.sqlite")
        lost = [key for key, checksum in noted.items() if after.get(key) != checksum]
        document = {
            "date": datetime.date.today().isoformat(),
            "options": vars(options),
            "seconds": round(time.monotonic() - begun, 1),
            "killed": dict(killed),
            "jobs": dict(endings),
            "committed": len(after),
            "lost_or_changed": len(lost),
            "doubled": doubled(Path(name) / "data" / "records.sqlite"),
        }
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    RESULTS.write_text(json.dumps(document, indent=1) + "\n")
    print(json.dumps(document, indent=1))
    sys.exit(bool(lost) or bool(document["doubled"]) or set(endings) != {"done"})


def keep_busy(client: Client, place: Path, jobs: list[str], at_once: int, trials: int) -> None:
    """Submit small jobs until `at_once` are under way."""
    open_jobs = [job for job in client.jobs(limit=200) if job["state"] not in OVER]
    for _ in range(at_once - len(open_jobs)):
        number = len(jobs)
        path = place / f"net{number}.onnx"
        onnx.save(network(32 + 16 * (number % 5), number), path)
        model = client.upload(str(path))
        jobs.append(client.submit(model["id"], trials=trials, seed=number)["id"])


def state_at_the_end(client: Client, job: str) -> str:
    """Wait until a job is over; "hangs" if that takes a quarter of an hour."""
    deadline = time.monotonic() + 900
    state = ""
    while state not in OVER:
        if time.monotonic() > deadline:
            return "hangs"
        time.sleep(1)
        with contextlib.suppress(ServiceError):
            state = str(client.job(job)["state"])
    return state


def choose(service: psutil.Process, draw: random.Random) -> str | None:
    """Kill one process of the service, of a kind drawn at random; returns the kind."""
    found: dict[str, list[psutil.Process]] = {}
    for child in service.children(recursive=True):
        with contextlib.suppress(psutil.Error):
            line = " ".join(child.cmdline())
            for module, part in PARTS.items():
                if module in line:
                    found.setdefault(part, []).append(child)
    if not found:
        return None
    part = draw.choice(sorted(found))
    with contextlib.suppress(psutil.Error):
        draw.choice(found[part]).kill()
        return part
    return None


def committed(records: Path) -> dict[tuple[Any, ...], str]:
    """All acknowledged events and measurements, with their checksums."""
    if not records.exists():
        return {}
    with contextlib.closing(sqlite3.connect(records, timeout=30)) as connection:
        try:
            events = connection.execute("SELECT run_id, seq, checksum FROM events").fetchall()
            facts = connection.execute("SELECT device_type, compiler, workload, candidate, times_us FROM measurements")
            measured = {("measurement", *row[:4]): row[4].hex() for row in facts}
        except sqlite3.OperationalError:  # not made yet
            return {}
    return {("event", run, seq): checksum for run, seq, checksum in events} | measured


def doubled(records: Path) -> int:
    """The number of items of a stage that have succeeded more than once."""
    twice = "SELECT 1 FROM events WHERE status = 'ok' GROUP BY run_id, stage, idx HAVING count(*) > 1"
    query = f"SELECT count(*) FROM ({twice})"
    with contextlib.closing(sqlite3.connect(records)) as connection:
        return int(connection.execute(query).fetchone()[0])


def network(width: int, seed: int) -> onnx.ModelProto:
    """Two dense layers."""
    draw = np.random.default_rng(seed)
    weights = [
        helper.make_tensor(name, TensorProto.FLOAT, [width, width], draw.normal(size=width * width).astype(np.float32))
        for name in ("a", "b")
    ]
    nodes = [helper.make_node("MatMul", ["x", "a"], ["h"]), helper.make_node("MatMul", ["h", "b"], ["y"])]
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [16, width]) for name in ("x", "y")]
    graph = helper.make_graph(nodes, f"net{seed}", values[:1], values[1:], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


if __name__ == "__main__":
    main()
