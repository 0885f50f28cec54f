"""Workers that die while they start, side by side and one after the other."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from kintune.core.messages import Begin, Item, ItemFailed, ItemStatus, Work
from kintune.core.stage import Demand, Stage
from kintune.errors import EngineError
from kintune.scheduler.policies import Sequential
from kintune.scheduler.resources import Host
from kintune.scheduler.scheduler import Scheduler
from kintune.workers.engine.job_run import JobLaunch
from kintune.workers.engine.local import LocalEngine
from kintune.workers.engine.process import Command, RemoteCommand
from kintune.workers.engine.process_log import ProcessLog
from kintune.workers.engine.reactor import Reactor
from kintune.workers.engine.settings import EngineSettings
from kintune.workers.engine.worker_connection import WorkItem
from kintune.workers.engine.worker_pool import Slot, WorkerPool
from tests.support.journal import MemoryJournal
from tests.support.script import Deed, Plot

JOB = Command((sys.executable, "-m", "tests.support.scripted_job"))
PROGRAM = """
import pathlib, time
from tests.support.scripted_worker import main

def dies() -> bool:
    starts = [pathlib.Path(path) for path in {starts!r}]
    for start in starts:
        try:
            start.touch(exist_ok=False)
        except FileExistsError:
            continue
        while not all(each.exists() for each in starts[:{together}]):
            time.sleep(0.01)
        return True
    return False

if dies():
    raise SystemExit(3)
main()
"""


def run(tmp_path: Path, deaths: int, together: int) -> MemoryJournal:
    """Three items side by side, on workers of which the first ones to start die, so many of them at once."""
    program = PROGRAM.format(starts=[str(tmp_path / str(n)) for n in range(deaths)], together=together)
    items = tuple(Deed(text=str(n)).encode() for n in range(3))
    work = Work(Stage("w", "j", "build", Demand(cores=3)), "build", b"", items, 60)
    journal, commands = MemoryJournal(), {"build": Command((sys.executable, "-c", program))}
    with LocalEngine(Scheduler(Sequential()), journal, commands, [Host("h", 3, 100)]) as engine:
        engine.run([JobLaunch("j", JOB, Plot(((work,),)).encode())])
    return journal


def test_workers_that_die_side_by_side_have_failed_to_start_once(tmp_path: Path) -> None:
    assert [event.status for event in run(tmp_path, deaths=3, together=3).history("j")] == [ItemStatus.OK] * 3


def test_those_that_die_again_and_again_end_the_run(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match="before it was up, 3 times in a row"):
        run(tmp_path, deaths=100, together=3)


class Elsewhere:
    """Implements `kintune.workers.engine.process.Child`, and starts such processes."""

    name = tail = "w"

    def start(self, name: str, command: object, role: str) -> Elsewhere:
        return self

    def post(self, message: msgspec.Struct) -> None:
        pass

    def bring(self, paths: Sequence[str]) -> None:
        pass

    def kill(self, how: str = "") -> str:
        return how


def test_why_a_place_is_of_no_use_is_one_short_line_whatever_its_worker_says() -> None:
    reactor, causes = Reactor(lambda: 0.0), list[str]()

    def useless(place: str, cause: str) -> bool:
        causes.append(cause)
        return True

    commands = {"build@there": RemoteCommand("node", "a.module")}
    pool = WorkerPool(
        reactor, Elsewhere(), commands, ProcessLog(None), EngineSettings(), lambda: 0.0, useless=useless
    )  # fmt: skip
    slot = Slot("build", "there")
    assert pool.submit(slot, WorkItem("me", Begin("s", 0, "build", b""), Item("s", 0, 0, b""), 60, lambda _: None))
    (worker,) = pool._workers[slot]
    worker.heard(ItemFailed("", 0, 0, f"hot\n[job j] done{'!' * 1000}", unwell=True))
    assert causes[0].startswith("hot [job j] done!")
    assert len(causes[0]) == 400
    reactor.close()
