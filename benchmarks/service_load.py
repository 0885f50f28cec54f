"""Measures the load of many clients on the web part of a service: page times, and CPU time of polling and watching.

    python benchmarks/service_load.py

The database holds 10 000 jobs.  Pages are requested one after the other.  Then 200 clients poll their job every five
seconds while 20 viewers follow a job, whose events this script sends every half second in place of the orchestrator.
Results go to `notebook/results/service_load.json`.
"""

from __future__ import annotations

import argparse
import asyncio
import collections
import datetime
import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import httpx
import msgspec
import psutil
from sqlalchemy import insert

from kintune.core.report import ProgressReport
from kintune.service.database import open_database
from kintune.service.job_request import JobRequest
from kintune.service.model_store import Findings, ModelStore
from kintune.service.orchestrator.events import EventBus, Progressed
from kintune.service.schema import jobs, steps
from kintune.service.settings import ServiceSettings
from kintune.service.users import Users
from kintune.testing.serving import serving

RESULTS = Path(__file__).parents[1] / "notebook/results" / "service_load.json"


def main() -> None:
    """Fill the database, time pages and clients, write the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--pollers", type=int, default=200)
    parser.add_argument("--viewers", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--pages", type=int, default=40, help="how often each page is asked for")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        settings = ServiceSettings(data=name)
        ids = fill(settings, options.jobs)
        with serving(Path(name), "--part", "web", ready="/healthz") as service:
            (web,) = psutil.Process(service.process.pid).children()
            load = asyncio.run(crowd(settings, web, service.url, ids, options))
            pages = asyncio.run(time_pages(service.url, ids, options.pages))
    document = {
        "date": datetime.date.today().isoformat(),
        "options": vars(options),
        "pages_ms": pages,
        "share_of_a_core": load,
    }
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    RESULTS.write_text(json.dumps(document, indent=1) + "\n")
    print(json.dumps(document, indent=1))


def fill(settings: ServiceSettings, count: int) -> list[str]:
    """Add jobs of one user, all but the last hundred over; returns their ids."""
    database = open_database(settings.service_database)
    now = time.time()
    user = Users(database).local(now).user
    library = ModelStore(database)
    model = library.add(user, "net.onnx", "0" * 64, 1000, now, None).id
    library.found(model, Findings(operators={"MatMul": 2}, parameters=1000))
    wanted = msgspec.json.encode(JobRequest(minutes=1.0)).decode()
    ids = [f"{number:012x}" for number in range(count)]
    with database.transaction() as connection:
        for number, id in enumerate(ids):
            state = "done" if number < count - 100 else "tuning"
            at = now - 10.0 * (count - number)
            row = {
                "id": id,
                "owner": user,
                "model": model,
                "wanted": wanted,
                "priority": 1.0,
                "share": False,
                "minutes": 1.0,
            }
            row |= {"state": state, "reason": "converged", "created": at, "started": at}
            connection.execute(insert(jobs).values(**row))
            connection.execute(insert(steps).values(job=id, seq=0, state="queued", reason="", at=at))
    database.close()
    return ids


async def time_pages(url: str, ids: list[str], count: int) -> dict[str, dict[str, float]]:
    """Milliseconds from request to answer, as a client beside the server sees them."""
    found = {}
    async with httpx.AsyncClient(base_url=url, timeout=60) as client:
        for path in ("/", f"/jobs/{ids[0]}", "/models", "/resources", "/compare", "/api/v1/jobs?limit=50", "/metrics"):
            times = []
            for _ in range(count):
                begun = time.perf_counter()
                answer = await client.get(path)
                answer.raise_for_status()
                times.append(1e3 * (time.perf_counter() - begun))
            times.sort()
            found[path] = {"median": statistics.median(times), "worst": times[-1]}
    return found


async def crowd(
    settings: ServiceSettings, web: psutil.Process, url: str, ids: list[str], options: argparse.Namespace
) -> dict[str, float]:
    """The share of a core that the web process uses without and with all clients."""
    limits = httpx.Limits(max_connections=None)
    idle = await share(web, 10.0)
    async with httpx.AsyncClient(base_url=url, timeout=None, limits=limits) as client:
        bus = EventBus(settings.socket, lambda: None)
        tasks = [
            asyncio.create_task(poll(client, ids[-1 - n % 100], n / options.pollers)) for n in range(options.pollers)
        ]
        seen: collections.Counter[int] = collections.Counter()
        tasks += [asyncio.create_task(view(client, ids[-1], seen, n)) for n in range(options.viewers)]
        tasks.append(asyncio.create_task(tell(bus, ids[-1])))
        await asyncio.sleep(10.0)
        seen.clear()
        busy = await share(web, options.seconds)
        news = dict(seen)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        bus.close()
    if options.viewers and (len(news) < options.viewers or min(news.values()) < options.seconds):
        raise SystemExit(f"not all viewers were told what there was: {news}")
    return {"idle": idle, "busy": busy}


async def share(process: psutil.Process, seconds: float) -> float:
    """The CPU seconds a second that a process uses, over so many `seconds`."""
    before, begun = process.cpu_times(), time.monotonic()
    await asyncio.sleep(seconds)
    after = process.cpu_times()
    return float(after.user + after.system - before.user - before.system) / (time.monotonic() - begun)


async def poll(client: httpx.AsyncClient, job: str, phase: float) -> None:
    """One client."""
    await asyncio.sleep(5 * phase)
    while True:
        (await client.get(f"/api/v1/jobs/{job}")).raise_for_status()
        await asyncio.sleep(5)


async def view(client: httpx.AsyncClient, job: str, seen: collections.Counter[int], number: int) -> None:
    """One viewer, who counts events."""
    async with client.stream("GET", f"/api/v1/jobs/{job}/events") as answer:
        async for line in answer.aiter_lines():
            seen[number] += line.startswith("event: progressed")


async def tell(bus: EventBus, job: str) -> None:
    """Send events of a job under way."""
    trials: Any = 0
    while True:
        trials += 1
        bus.publish(Progressed(job, ProgressReport("profile", trials=trials, best_ms=5.0, untuned_ms=9.0)))
        await asyncio.sleep(0.5)


if __name__ == "__main__":
    main()
