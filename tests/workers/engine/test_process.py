"""Processes of this machine that print more than anybody wants to read."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from kintune.core.messages import ItemStatus, Work
from kintune.core.stage import Demand, Stage
from kintune.scheduler.policies import Sequential
from kintune.scheduler.resources import Host
from kintune.scheduler.scheduler import Scheduler
from kintune.wire.channel import front_end_of_worker
from kintune.workers.engine.job_run import JobLaunch
from kintune.workers.engine.local import LocalEngine
from kintune.workers.engine.process import ChildProcess, Command
from kintune.workers.engine.process_log import ProcessLog
from tests.support.journal import MemoryJournal
from tests.support.script import Act, Deed, Plot

WORKER = Command((sys.executable, "-m", "tests.support.scripted_worker"))
JOB = Command((sys.executable, "-m", "tests.support.scripted_job"))


@pytest.mark.parametrize("text", ["x", "x\n"])
def test_one_that_prints_without_end_is_killed_at_its_deadline_and_the_rest_goes_on(tmp_path: Path, text: str) -> None:
    deeds = (Deed(Act.FLOOD, text).encode(), Deed(text="next").encode())
    work = Work(Stage("w", "j", "build", Demand(cores=1)), "build", b"", deeds, 1.0)
    journal, log = MemoryJournal(), tmp_path / "log"
    with LocalEngine(Scheduler(Sequential()), journal, {"build": WORKER}, [Host("h", 1, 100)], log=log) as engine:
        engine.run([JobLaunch("j", JOB, Plot(((work,),)).encode())])
    assert [event.status for event in journal.history("j")] == [ItemStatus.TIMED_OUT, ItemStatus.OK]
    assert log.stat().st_size < 20 << 20


def test_what_was_printed_is_passed_on_part_by_part_and_the_rest_at_the_end(tmp_path: Path) -> None:
    program = "import os, time; os.write(1, b'x' * 65536); time.sleep(600)"
    log = ProcessLog(tmp_path / "log")
    child = ChildProcess("w", Command((sys.executable, "-c", program)), front_end_of_worker, log)
    while not child.tail:
        assert child.pass_output_on()
    assert child.kill() == "killed by SIGKILL"
    log.close()
    assert (tmp_path / "log").read_text().count("x") >= 65536


class Stuck:
    """A process that the kernel keeps, whatever is sent to it, as it does while a driver hangs."""

    returncode = None

    def __init__(self, pid: int) -> None:
        self.pid = pid

    def wait(self, timeout: float | None = None) -> int:
        assert timeout is not None, "one would wait for ever"
        raise subprocess.TimeoutExpired("w", timeout)


def test_one_that_does_not_end_is_not_waited_for_for_ever(tmp_path: Path) -> None:
    log = ProcessLog(tmp_path / "log")
    child = ChildProcess("w", WORKER, front_end_of_worker, log)
    real, child._popen = child._popen, Stuck(child.pid)
    assert child.kill("exceeded 1 s") == "exceeded 1 s, and has not ended"
    assert child.kill() == "killed, and has not ended"
    log.close()
    assert real.wait() == -signal.SIGKILL
