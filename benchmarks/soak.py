"""Runs mock machines under constant faults; checks that jobs end, memory is flat, and no device idles while work waits.

    python benchmarks/soak.py                       # an hour
    python benchmarks/soak.py --minutes 3 --output /tmp/soak
    python benchmarks/soak.py --show                # prints and draws the last results

The engine with its scheduler, the registry, the agents, their connections and all processes are real; the jobs sleep
instead of tuning.  Five machines have twenty devices of two types, two more are hosts; each machine has an agent of its
own.  One and a half times as many jobs as devices are under way at any time, so that work always waits for a device.
Every ten seconds a fault is drawn from a seed.  When the time is over, no new job comes, and all jobs must end.  Raw
results go to `notebook/results/soak`.
"""

from __future__ import annotations

import argparse
import asyncio
import csv
import json
import os
import statistics
import sys
import tempfile
import threading
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any

import msgspec
from live.forgetful_journal import ForgetfulJournal
from live.idle_watch import LONG_S, IdleWatch
from live.mock_board import DEVICE, PROCESS, WORKER
from live.mock_fleet import MockMachine
from live.troubles import Troubles

from kintune.hardware.cpu import inspect_machine
from kintune.scheduler.policies import POLICIES, policy
from kintune.scheduler.scheduler import RetryLimits, Scheduler
from kintune.workers.engine.job_run import JobEnd, JobEnding, JobLaunch
from kintune.workers.engine.local import LocalEngine
from kintune.workers.engine.process import Anywhere
from kintune.workers.fleet.agent_registry import Admitted, AgentRegistry, WorkerCommands
from kintune.workers.fleet.messages import Join
from kintune.workers.fleet.sockets import PATH, SocketTransport, open_door
from kintune_lab.simulate.mock_process import MOCK_WORKER
from kintune_lab.simulate.plan import MockJob, PlannedJob

HERE = Path(__file__).parent
WORKERS = WorkerCommands({MOCK_WORKER: WORKER}, {MOCK_WORKER: DEVICE})
DEVICES = {"board": (4, 4, 4), "gpu": (4, 4)}
HOSTS = (8, 8)
SAMPLE_S = 10.0
QUARTERED = ("memory_mb", "agents_mb", "descriptors", "threads", "usable", "busy", "waiting")
LAST_S = 900.0  # for the jobs that are under way when the time is over


def main() -> None:
    """Run, draw the samples, and print a summary."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--every", type=float, default=10.0, help="seconds from one fault to the next")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--policy", choices=sorted(POLICIES), default="predictive")
    parser.add_argument("--output", type=Path, default=HERE.parent / "notebook/results/soak")
    parser.add_argument("--show", action="store_true", help="soak nothing; tell and draw what lies there")
    options = parser.parse_args()
    if options.show:
        draw(options.output)
    else:
        options.output.mkdir(parents=True, exist_ok=True)
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(HERE), os.environ.get("PYTHONPATH"))))
        with tempfile.TemporaryDirectory() as folder, (options.output / "agents.log").open("wb") as log:
            Soak(options, Path(folder), log).run()
        draw(options.output)
    print("\n".join(summary(json.loads((options.output / "soak.json").read_text()))))


class Soak:
    """One run: machines, jobs, faults and samples."""

    def __init__(self, options: argparse.Namespace, folder: Path, log: IO[bytes]) -> None:
        self._options = options
        self._log = log
        names = [(f"{kind}s-{n}", kind, count) for kind, counts in DEVICES.items() for n, count in enumerate(counts)]
        machines = [MockMachine(name, folder, type=kind, devices=count) for name, kind, count in names]
        machines += [MockMachine(f"host-{n}", folder, cores=cores) for n, cores in enumerate(HOSTS)]
        self._machines = {machine.name: machine for machine in machines}
        self._troubles = Troubles(machines, options.seed)
        self._watch = IdleWatch()
        self._journal = ForgetfulJournal()
        self._started = 0
        self._under_way: dict[str, int] = {}  # by job: the number of its items
        self._endings: Counter[str] = Counter()
        self._incomplete: list[str] = []
        self._samples: list[dict[str, Any]] = []
        self._began = time.monotonic()
        self._leaving = threading.Event()

    def run(self) -> None:
        """Run until all jobs are over, or take too long, and write the results."""
        at_once = 3 * sum(map(sum, DEVICES.values())) // 2
        machine = Scheduler(policy(self._options.policy), RetryLimits(resources_may_join=True))
        with ExitStack() as stack:
            self._engine = stack.enter_context(
                LocalEngine(
                    machine, self._journal, {}, (), elsewhere={MOCK_WORKER}, observe=self._watch.observe,
                    log=self._options.output / "engine.log",
                )
            )  # fmt: skip
            around = threading.Thread(target=asyncio.run, args=(self._run_loop(),))
            around.start()
            stack.callback(around.join)
            stack.callback(self._leaving.set)
            for _ in range(at_once):
                self._begin()
            self._engine.serve(on_end=self._ended)
            self._watch.finish(time.monotonic())
            self._write()

    @property
    def _seconds(self) -> float:
        return time.monotonic() - self._began

    @property
    def _over(self) -> bool:
        return bool(self._seconds > 60 * self._options.minutes)

    # -- in the engine's thread: jobs

    def _begin(self) -> None:
        job = planned(self._started, self._options.seed)
        self._started += 1
        self._under_way[job.id] = len(job.stages)
        self._engine.add(JobLaunch(job.id, Anywhere(PROCESS), msgspec.msgpack.encode(job)))

    def _ended(self, job: str, end: JobEnd) -> None:
        self._endings[end.ending.value] += 1
        had = self._journal.forget(job)
        if end.ending is not JobEnding.FINISHED or had != self._under_way[job]:
            self._incomplete.append(
                f"{job}: {end.ending.value} with {had} of {self._under_way[job]} items; {end.cause}"
            )
        del self._under_way[job]
        if not self._over:
            self._begin()
        elif not self._under_way:
            self._engine.leave()

    # -- in a thread with an event loop: agents, faults, samples

    async def _run_loop(self) -> None:
        try:
            await self._run_machines()
        finally:
            self._engine.leave()

    async def _run_machines(self) -> None:
        registry = AgentRegistry(self._engine, workers=WORKERS, places_jobs=True)
        attending: set[asyncio.Task[Any] | None] = set()

        def admit(join: Join) -> list[Admitted]:
            return [Admitted(device.type) for device in join.devices]

        async def attend(line: SocketTransport, machine: MockMachine) -> None:
            machine.line = line
            attending.add(asyncio.current_task())
            try:
                await registry.attend(line, admit)
            finally:
                attending.discard(asyncio.current_task())
                if machine.line is line:
                    machine.line = None

        async with open_door("127.0.0.1", 0, self._machines.__getitem__, attend) as server:
            port = next(iter(server.sockets)).getsockname()[1]
            url = f"ws://127.0.0.1:{port}{PATH}"
            tasks = [asyncio.ensure_future(machine.live(url, self._log)) for machine in self._machines.values()]
            tasks += [
                asyncio.ensure_future(self._troubles.make(self._options.every)),
                asyncio.ensure_future(self._sample()),
            ]
            while not self._leaving.is_set():
                await asyncio.sleep(0.5)
                if failed := [task for task in tasks if task.done()]:
                    print(f"soak: {failed[0].exception()!r}", file=sys.stderr)
                    self._engine.leave()
                if self._seconds > 60 * self._options.minutes + LAST_S:
                    self._engine.leave()
            for task in [*tasks, *filter(None, attending)]:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _sample(self) -> None:
        while True:
            watch = self._watch
            agents = [memory_mb(machine.agent) for machine in self._machines.values() if machine.agent is not None]
            sample = {
                "seconds": round(self._seconds, 1),
                "memory_mb": memory_mb(os.getpid()),
                "agents_mb": round(sum(agents), 1),
                "descriptors": len(os.listdir("/proc/self/fd")),
                "threads": threading.active_count(),
                "jobs": sum(self._endings.values()),
                "stages": watch.stages,
                "usable": watch.usable,
                "busy": watch.busy,
                "waiting": watch.waiting,
                "idle_s": round(watch.idle_s, 2),
                "troubles": self._troubles.count.total(),
            }
            self._samples.append(sample)
            left_s = max(0.0, 60 * self._options.minutes - self._seconds)
            print(
                f"\r{sample['jobs']} jobs are over, {sample['troubles']} troubles, {sample['memory_mb']:.0f} MB, "
                f"{sample['busy']} of {sample['usable']} devices busy; {left_s / 60:.0f} min left  ",
                end="", flush=True,
            )  # fmt: skip
            await asyncio.sleep(SAMPLE_S)

    def _write(self) -> None:
        print()
        watch, place = self._watch, self._options.output
        on_time = [sample for sample in self._samples if sample["seconds"] <= 60 * self._options.minutes]
        document = {
            "date": time.strftime("%Y-%m-%d"),
            "cpu": inspect_machine().cpu,
            "seed": self._options.seed,
            "policy": self._options.policy,
            "minutes": self._options.minutes,
            "seconds": self._seconds,
            "devices": DEVICES,
            "hosts": HOSTS,
            "jobs": {"started": self._started, "under_way": sorted(self._under_way), "endings": self._endings},
            "incomplete": self._incomplete,
            "items": {status.value: count for status, count in self._journal.endings.items()},
            "stages": watch.stages,
            "losses": watch.losses,
            "troubles": self._troubles.count,
            "stale_answers": self._engine.stale_answers,
            "idle_s": watch.idle_s,
            "long_idle": [(idle.device, idle.since - self._began, idle.seconds) for idle in watch.long],
            **{column: quarters(on_time, column) for column in QUARTERED},
        }
        (place / "soak.json").write_text(json.dumps(document, indent=1) + "\n")
        with (place / "samples.csv").open("w", newline="") as file:
            table = csv.DictWriter(file, list(self._samples[0]))
            table.writeheader()
            table.writerows(self._samples)


def planned(number: int, seed: int) -> PlannedJob:
    """A job of some minutes; jobs are divided between the types in proportion to their devices."""
    kinds = [kind for kind, counts in DEVICES.items() for _ in range(sum(counts))]
    shape = MockJob(
        kinds[number * 7 % len(kinds)], rounds=20, select_s=0.2, build_s=0.5, profile_s=2.0, update_s=0.1, start_s=0.5,
        end_s=0.5, prove_s=2.0, inflight=2, spread=0.4,
    )  # fmt: skip
    return shape.plan(f"job-{number}", seed=seed, known_as="mock")


def memory_mb(pid: int) -> float:
    """The resident memory of a process in MB; 0 for one that is gone."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except OSError:
        return 0.0
    return round(pages * os.sysconf("SC_PAGE_SIZE") / 1e6, 1)


def quarters(samples: list[dict[str, Any]], column: str) -> list[float]:
    """The median of each quarter of the time in which new jobs came."""
    values = [sample[column] for sample in samples]
    size = max(1, len(values) // 4)
    return [statistics.median(values[n * size : (n + 1) * size] or values[-1:]) for n in range(4)]


def summary(found: dict[str, Any]) -> list[str]:
    """The lines that describe the results."""
    jobs, long = found["jobs"], found["long_idle"]
    first, last = found["memory_mb"][1], found["memory_mb"][3]
    device_s = 20 * found["seconds"]
    return [
        f"{found['seconds'] / 60:.0f} minutes, {sum(found['troubles'].values())} troubles, a host or a device lost "
        f"{found['losses']} times, {found['stages']} stages",
        *(f"  {count:4} times {kind}" for kind, count in sorted(found["troubles"].items())),
        f"jobs: {jobs['started']} began, {len(jobs['under_way'])} did not end, the others: {jobs['endings']}; "
        f"{len(found['incomplete'])} without all of their items",
        *(f"  {line}" for line in found["incomplete"][:10]),
        f"items: {found['items']}; {found['stale_answers']} stale answers were refused",
        f"memory: {first:.1f} MB in the second quarter, {last:.1f} in the last; descriptors {found['descriptors']}, "
        f"threads {found['threads']}",
        f"devices: idle while work waited for {found['idle_s']:.1f} s of {device_s:.0f} in all; "
        f"{len(long)} times for more than {LONG_S:g} s",
        *(f"  {device} from {since:.0f} s on for {seconds:.2f} s" for device, since, seconds in long[:10]),
    ]


def draw(place: Path) -> None:
    """Draw devices and memory over time, as soak.svg."""
    import matplotlib
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    with (place / "samples.csv").open(newline="") as file:
        rows = [{name: float(value) for name, value in row.items()} for row in csv.DictReader(file)]
    minutes = [row["seconds"] / 60 for row in rows]
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "soak", "font.family": "DejaVu Sans"}):
        figure = Figure(figsize=(10, 5.5), layout="constrained")
        FigureCanvasSVG(figure)
        above, below = figure.subplots(2, 1, sharex=True)
        above.fill_between(minutes, [row["usable"] for row in rows], color="#c3d7ea", step="post", label="can be used")
        above.step(minutes, [row["busy"] for row in rows], color="#1f5f99", where="post", lw=1, label="busy")
        above.set_ylabel("devices")
        above.set_ylim(0, 1.05 * max(row["usable"] for row in rows))
        above.legend(loc="lower right", bbox_to_anchor=(1, 1), frameon=False, ncols=2)
        below.plot(minutes, [row["memory_mb"] for row in rows], color="#a5461f", label="engine, registry and scheduler")
        below.set_ylabel("memory, MB")
        below.set_ylim(0, 1.3 * max(row["memory_mb"] for row in rows))
        below.legend(loc="lower right", bbox_to_anchor=(1, 0.98), frameon=False)
        below.set_xlabel("minutes, with something going wrong every ten seconds")
        below.set_xlim(0, minutes[-1])
        for axes in (above, below):
            axes.spines[["top", "right"]].set_visible(False)
        figure.savefig(place / "soak.svg", metadata={"Date": None, "Creator": None})


if __name__ == "__main__":
    main()
