"""Processes elsewhere that print more than anybody wants to read."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from kintune.core.messages import ItemStatus, Work
from kintune.core.stage import Demand, Stage
from kintune.scheduler.policies import Sequential
from kintune.scheduler.resources import Host
from kintune.scheduler.scheduler import RetryLimits, Scheduler
from kintune.workers.engine.job_run import JobLaunch
from kintune.workers.engine.local import LocalEngine
from kintune.workers.engine.process import Command, RemoteCommand
from kintune.workers.engine.remote_nodes import RemoteNode
from tests.support.journal import MemoryJournal
from tests.support.process_host import LocalProcessHost
from tests.support.script import Act, Deed, Plot

MODULE = "tests.support.scripted_worker"
JOB = Command((sys.executable, "-m", "tests.support.scripted_job"))


@pytest.mark.parametrize("text", ["x", "x\n"])
def test_one_that_prints_without_end_is_killed_at_its_deadline_and_the_rest_goes_on(tmp_path: Path, text: str) -> None:
    deeds = (Deed(Act.FLOOD, text).encode(), Deed(text="next").encode())
    work = Work(Stage("w", "j", "build", Demand(cores=2)), "build", b"", deeds, 5.0)
    journal, log, there = MemoryJournal(), tmp_path / "log", Host("there", 2, 100)
    engine = LocalEngine(
        Scheduler(Sequential(), RetryLimits(resources_may_join=True)), journal, {}, [Host("here", 1, 100)], log=log,
        elsewhere={"build"},
    )  # fmt: skip
    neighbour = LocalProcessHost("neighbour", engine, {MODULE})
    with engine:
        engine.join(RemoteNode("neighbour", neighbour, (there,), {"build@there": RemoteCommand("neighbour", MODULE)}))
        engine.run([JobLaunch("j", JOB, Plot(((work,),)).encode())])
    neighbour.close()
    assert {event.index: event.status for event in journal.history("j")} == {0: ItemStatus.TIMED_OUT, 1: ItemStatus.OK}
    assert log.stat().st_size < 20 << 20
