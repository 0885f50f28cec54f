"""The front process is killed at any moment; its children die with it, and the same command goes on."""

import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

FRONT = """
import os, signal, sys
from pathlib import Path
from kintune.workers.engine.process import Command
from kintune.workers.engine.job_run import JobLaunch
from kintune.workers.engine.local import LocalEngine
from kintune.scheduler.scheduler import Scheduler
from kintune.scheduler.policies import Sequential
from kintune.scheduler.resources import Host
from kintune.core.stage import Demand, Stage
from tests.support.journal import MemoryJournal
from tests.support.script import Act, Deed, Plot
from kintune.core.messages import Work

worker = Command((sys.executable, "-m", "tests.support.scripted_worker"))
job = Command((sys.executable, "-m", "tests.support.scripted_job"))
stage = Stage("w", "j", "build", Demand(cores=2))
deeds = (Deed(text="a"), Deed(Act.HANG), Deed(Act.HANG))
plot = Plot(((Work(stage, "build", b"", tuple(deed.encode() for deed in deeds), 600.0),),))

def die(job, payload):
    print("\\n".join(line for line in Path(sys.argv[1]).read_text().splitlines() if "started" in line), flush=True)
    os.kill(os.getpid(), signal.SIGKILL)

log = Path(sys.argv[1])
with LocalEngine(Scheduler(Sequential()), MemoryJournal(), {"build": worker}, [Host("h", 2, 0)], log=log) as e:
    e.run([JobLaunch("j", job, plot.encode())], on_progress=die)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's death signal is Linux's")
def test_no_child_outlives_a_front_that_is_killed(tmp_path: Path) -> None:
    front = subprocess.run(
        [sys.executable, "-c", FRONT, str(tmp_path / "log")], capture_output=True, text=True, check=False
    )
    assert front.returncode == -signal.SIGKILL, front.stderr
    pids = [int(line.split("started as process ")[1].split(":")[0]) for line in front.stdout.splitlines()]
    assert len(pids) == 3
    _, alive = psutil.wait_procs([psutil.Process(pid) for pid in pids if psutil.pid_exists(pid)], timeout=20)
    assert [each for each in alive if each.status() != psutil.STATUS_ZOMBIE] == []
