"""An engine with scripted workers and jobs, which are real processes."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import msgspec

from kintune.core.messages import Committed, ItemStatus, Work
from kintune.core.stage import Demand, Stage
from kintune.scheduler.policies import Sequential
from kintune.scheduler.resources import Device, Host
from kintune.scheduler.scheduler import RetryLimits, Scheduler
from kintune.workers.engine.job_run import JobEnd, JobEnding, JobLaunch
from kintune.workers.engine.local import LocalEngine
from kintune.workers.engine.process import Command
from kintune.workers.engine.settings import EngineSettings
from tests.support.journal import MemoryJournal
from tests.support.script import Deed, Plot
from tests.support.scripted_job import Told

__all__ = [
    "CHAIN",
    "CHAIN_ENDS",
    "COMMANDS",
    "JOB",
    "QUICK",
    "RESOURCES",
    "WORKER",
    "ScriptedEngine",
    "assert_chain_is_told",
    "echo",
    "ends",
    "told",
    "work",
]

WORKER = (sys.executable, "-m", "tests.support.scripted_worker")
JOB = Command((sys.executable, "-m", "tests.support.scripted_job"))
RESOURCES = (Host("here", cores=2, memory_mb=1000), Device("cpu0", "cpu", host="here", on_host_cores=True))
COMMANDS = {"build": Command(WORKER), "device": Command((*WORKER, "--kind", "device"))}
QUICK = EngineSettings(leave_timeout_s=5)


def echo(text: str) -> Deed:
    """Answers with this text."""
    return Deed(text=text)


def work(
    id: str,
    *deeds: Deed,
    worker: str = "build",
    timeout_s: float = 60,
    context: bytes = b"",
    droppable: bool = False,
    after: tuple[str, ...] = (),
    job: str = "j",
) -> Work:
    """A stage of these deeds for the worker of this name; devices are wanted alone, builds take two cores."""
    demand = Demand(device="cpu", exclusive=True) if worker == "device" else Demand(cores=2 if worker == "build" else 1)
    stage = Stage(id, job, worker, demand, affinity=job if worker == "job" else None, after=after)
    return Work(stage, worker, context, tuple(deed.encode() for deed in deeds), timeout_s, droppable)


def told(end: JobEnd) -> Told:
    """What the job says that it was told; raises AssertionError if it did not finish."""
    assert end.finished is not None, end
    return msgspec.msgpack.decode(end.finished.summary, type=Told)


def ends(events: tuple[Committed, ...]) -> dict[tuple[str, int], tuple[ItemStatus, bytes]]:
    """How each item ended, by stage and index."""
    return {(event.stage, event.index): (event.status, event.payload) for event in events}


class ScriptedEngine:
    """An engine over a journal of its own, for one job `j` unless a test says otherwise."""

    def __init__(self, log: Path, journal: MemoryJournal, settings: EngineSettings = QUICK) -> None:
        self.journal = journal
        self.log = log
        self.engine = LocalEngine(
            Scheduler(Sequential(), RetryLimits(backoff_s=0.01)),
            journal,
            COMMANDS,
            RESOURCES,
            log=log,
            settings=settings,
        )

    def run(self, plot: Plot, on_progress: Callable[[str, bytes], None] | None = None) -> JobEnd:
        """Run the plot as job `j`; the engine is closed afterwards."""
        with self.engine:
            return self.engine.run([JobLaunch("j", JOB, plot.encode())], on_progress=on_progress)["j"]


CHAIN = Plot(
    (
        (work("select", echo("picked"), worker="job"),),
        (
            work("build", *(echo(f"b{n}") for n in range(5)), context=b"c-"),
            work("profile", echo("p0"), echo("p1"), worker="device", after=("build",)),
        ),
        (work("update", echo("model"), worker="job"),),
    )
)
CHAIN_ENDS = {
    ("select", 0): b"picked",
    **{("build", n): b"c-b%d" % n for n in range(5)},
    ("profile", 0): b"p0",
    ("profile", 1): b"p1",
    ("update", 0): b"model",
}


def assert_chain_is_told(end: JobEnd, journal: MemoryJournal) -> None:
    """Every item of `CHAIN` ended as it must, once, and the job and the journal were told the same."""
    assert end.ending is JobEnding.FINISHED, end
    story = told(end)
    assert ends(story.events) == {key: (ItemStatus.OK, payload) for key, payload in CHAIN_ENDS.items()}
    assert story.events == tuple(journal.history("j"))
    assert [event.seq for event in story.events] == list(range(len(CHAIN_ENDS)))
    times = [event.at for event in story.events]
    assert times == sorted(times)
