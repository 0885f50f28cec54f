"""Jobs that have workers of their own; what confines these is tested in tests/wire and tests/acceptance."""

from __future__ import annotations

from pathlib import Path

import pytest

from kintune.scheduler.policies import Fair
from kintune.scheduler.scheduler import RetryLimits, Scheduler
from kintune.wire.confinement import Confinement, start_of
from kintune.workers.engine import process
from kintune.workers.engine.job_run import JobEnding, JobLaunch
from kintune.workers.engine.local import LocalEngine
from kintune.workers.engine.process import Command
from tests.support.journal import MemoryJournal
from tests.support.script import Plot
from tests.support.scripted_engine import COMMANDS, JOB, QUICK, RESOURCES, WORKER, echo, ends, told, work

ALONE = Confinement(read=("/model",), write=("/work",))


@pytest.fixture(autouse=True)
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Confinement | None]:
    """The confinements that processes were started with, which are started without."""
    found: list[Confinement | None] = []

    def start(confinement: Confinement | None, *command: object) -> object:
        found.append(confinement)
        return start_of(None, *command)  # type: ignore[arg-type]

    monkeypatch.setattr(process, "start_of", start)
    return found


def plot(job: str) -> Plot:
    builds = work("build", *(echo(f"b{n}") for n in range(3)), job=job)
    return Plot(((builds, work("profile", echo("p"), worker="device", job=job)),))


def engine(log: Path, **commands: Command) -> LocalEngine:
    machine = Scheduler(Fair(), RetryLimits(backoff_s=0.01))
    return LocalEngine(machine, MemoryJournal(), {**COMMANDS, **commands}, RESOURCES, log=log, settings=QUICK)


def test_confined_jobs_share_no_process(tmp_path: Path, asked: list[Confinement | None]) -> None:
    launches = [JobLaunch(job, JOB, plot(job).encode(), confinement=ALONE) for job in ("a", "b")]
    with engine(tmp_path / "log") as running:
        done = running.run([*launches, JobLaunch("c", JOB, plot("c").encode())])
    for end in done.values():
        assert {payload for _, payload in ends(told(end).events).values()} == {b"b0", b"b1", b"b2", b"p"}
    log = (tmp_path / "log").read_text()
    assert log.count("[device@cpu0] started") == 3
    assert log.count("ended: its job is over") >= 4
    jobs, workers = asked.count(ALONE), asked.count(ALONE.reading_only())
    assert jobs == 2
    assert workers >= 4
    assert asked.count(None) == len(asked) - jobs - workers >= 3


@pytest.mark.parametrize(
    ("options", "cause"),
    [
        (("--refuse", "not today"), "not today"),
        (("--die", "3"), "exited with code 3 before it was up, 3 times in a row"),
    ],
)
def test_workers_that_refuse_or_die_end_their_job_alone(tmp_path: Path, options: tuple[str, ...], cause: str) -> None:
    """A stranger's code may have a worker say anything; another job's workers, and the engine, go on."""
    other = Plot(((work("profile", echo("p"), worker="device", job="b"),),))
    launches = [
        JobLaunch("a", JOB, plot("a").encode(), confinement=ALONE),
        JobLaunch("b", JOB, other.encode(), confinement=ALONE),
    ]
    with engine(tmp_path / "log", build=Command((*WORKER, *options))) as running:
        done = running.run(launches)
    assert done["a"].ending is JobEnding.REFUSED
    assert cause in done["a"].cause
    assert done["b"].ending is JobEnding.FINISHED
