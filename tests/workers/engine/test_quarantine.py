"""Places elsewhere that do harm: what they did, and who lived there, when they are left alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kintune.core.messages import ItemStatus, Work
from kintune.core.stage import Demand, Stage
from kintune.scheduler.policies import Sequential
from kintune.scheduler.resources import Host
from kintune.scheduler.scheduler import RetryLimits, Scheduler
from kintune.wire.child import ResourceLimits
from kintune.workers.engine.job_run import JobEnding, JobLaunch
from kintune.workers.engine.local import LocalEngine
from kintune.workers.engine.process import Anywhere, RemoteCommand
from kintune.workers.engine.remote_nodes import RemoteNode
from kintune.workers.engine.settings import EngineSettings
from tests.support.journal import MemoryJournal
from tests.support.process_host import LocalProcessHost
from tests.support.script import Act, Deed, Plot

WORKER = "tests.support.scripted_worker"
JOB = Anywhere("tests.support.scripted_job")


def work(id: str, *deeds: Deed, worker: str = "build") -> Work:
    stage = Stage(id, "j", worker, Demand(cores=1), affinity="j" if worker == "job" else None)
    return Work(stage, worker, b"", tuple(deed.encode() for deed in deeds), 60)


class Bench:
    """An engine without anything of its own, and two neighbours with a host each."""

    def __init__(self, log: Path, quarantine_s: float) -> None:
        self.log = log
        self.journal = MemoryJournal()
        self.engine = LocalEngine(
            Scheduler(Sequential(), RetryLimits(backoff_s=0.01, resources_may_join=True)), self.journal, {}, (),
            log=log, settings=EngineSettings(losses_in_a_row=2, quarantine_s=quarantine_s), elsewhere={"build"},
        )  # fmt: skip
        self.neighbours = {name: LocalProcessHost(name, self.engine, {WORKER, JOB.module}) for name in ("red", "blue")}

    def join(self, name: str, *arguments: str) -> None:
        host, command = Host(f"host-{name}", 2, 1000), RemoteCommand(name, WORKER, arguments)
        self.engine.join(
            RemoteNode(name, self.neighbours[name], (host,), {f"build@{host.id}": command}, ResourceLimits())
        )

    def run(self, *rounds: Work, on_stage: Callable[[str], None] = lambda _: None) -> JobEnding:
        launch = JobLaunch("j", JOB, Plot(tuple((each,) for each in rounds)).encode())
        with self.engine:
            return self.engine.run([launch], on_stage=lambda _, work: on_stage(work.stage.id))["j"].ending


@pytest.fixture
def bench(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Bench]:
    bench = Bench(tmp_path / "run.log", request.param)
    yield bench
    for neighbour in bench.neighbours.values():
        neighbour.close()


@pytest.mark.parametrize("bench", [3600.0], indirect=True)
def test_a_job_that_waits_for_others_on_a_host_that_is_left_alone_moves(bench: Bench) -> None:
    """Its process does nothing while workers of the same host fail to start."""

    def began(stage: str) -> None:
        if stage == "build":
            bench.join("blue")

    bench.join("red", "--die", "3")
    select, build, update = (
        work("select", Deed(), worker="job"),
        work("build", Deed()),
        work("update", Deed(), worker="job"),
    )
    assert bench.run(select, build, update, on_stage=began) is JobEnding.FINISHED
    said = bench.log.read_text()
    assert "host-red is left alone for 3600 s" in said
    assert said.index("[job j] started by red") < said.index("host-red is left") < said.index("[job j] started by blue")


@pytest.mark.parametrize("bench", [0.05], indirect=True)
@pytest.mark.parametrize(("between", "left_alone"), [(Act.FAIL, True), (Act.STALE, False), (Act.ECHO, False)])
def test_only_an_item_that_is_done_ends_the_count_of_those_that_were_lost(
    bench: Bench, between: Act, left_alone: bool
) -> None:
    bench.join("red")
    deadly = Deed(Act.KILL, number=9)
    works = [work(f"w{n}", deed) for n, deed in enumerate((deadly, Deed(between), deadly))]
    assert bench.run(*works) is JobEnding.FINISHED
    statuses = [event.status for event in bench.journal.history("j")]
    assert statuses == [ItemStatus.CRASHED, ItemStatus.FAILED if left_alone else ItemStatus.OK, ItemStatus.CRASHED]
    assert ("host-red is left alone" in bench.log.read_text()) is left_alone
