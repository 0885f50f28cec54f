"""Jobs that come and go while the engine serves."""

from __future__ import annotations

import gc
import os
import signal
import sys
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import msgspec
import psutil
import pytest

from kintune.core.messages import Committed, ItemStatus, Work
from kintune.core.stage import Demand, Stage
from kintune.errors import DamagedRecord, EngineError, WireError
from kintune.scheduler.events import Event, JobEnded
from kintune.scheduler.policies import Fair
from kintune.scheduler.resources import Device, Host
from kintune.scheduler.scheduler import RetryLimits, Scheduler
from kintune.workers.engine.job_driver import JobDriver
from kintune.workers.engine.job_process import JobProcess
from kintune.workers.engine.job_run import JobEnd, JobEnding, JobLaunch, JobRun
from kintune.workers.engine.local import LocalEngine
from kintune.workers.engine.process import Command
from kintune.workers.engine.settings import EngineSettings
from kintune.workers.engine.work_limits import WorkLimits
from tests.support.journal import MemoryJournal
from tests.support.script import Act, Deed, Plot
from tests.support.scripted_job import Told

WORKER = (sys.executable, "-m", "tests.support.scripted_worker")
JOB = Command((sys.executable, "-m", "tests.support.scripted_job"))
COMMANDS = {"build": Command(WORKER), "device": Command((*WORKER, "--kind", "device"))}


def work(job: str, id: str, *deeds: Deed, droppable: bool = False, worker: str = "build", cores: int = 1) -> Work:
    demand = Demand(device="cpu", exclusive=True) if worker == "device" else Demand(cores=cores)
    stage = Stage(id, job, worker, demand, affinity=job if worker == "job" else None)
    return Work(stage, worker, b"", tuple(deed.encode() for deed in deeds), 60.0, droppable)


def launch(job: str, *works: Work) -> JobLaunch:
    return JobLaunch(job, JOB, Plot(tuple((each,) for each in works)).encode())


def quick(job: str) -> JobLaunch:
    return launch(job, work(job, "w", Deed(text=job)))


def endless(job: str, worker: str = "build") -> JobLaunch:
    return launch(job, work(job, "first", Deed(text="done")), work(job, "w", Deed(Act.HANG), worker=worker))


class Serving:
    """An engine that serves in the test's thread; `when` says what is done once a job has ended or a stage begins."""

    def __init__(self, journal: MemoryJournal, log: Path) -> None:
        self.journal = journal
        self.ends: dict[str, JobEnd] = {}
        self.stages: list[str] = []
        self.on_end: Callable[[str], None] = lambda job: None
        self.on_stage: Callable[[str], None] = lambda stage: None
        self.on_event: Callable[[Event], None] = lambda event: None
        self.engine = LocalEngine(
            Scheduler(Fair(), RetryLimits(backoff_s=0.01)), journal, COMMANDS,
            [Host("h", 2, 1000), Device("cpu0", "cpu")],
            log=log, settings=EngineSettings(leave_timeout_s=5), observe=lambda event, _: self.on_event(event),
        )  # fmt: skip

    def serve(self) -> None:
        def ended(job: str, end: JobEnd) -> None:
            self.ends[job] = end
            self.on_end(job)

        def began(job: str, work: Work) -> None:
            self.stages.append(f"{job}/{work.stage.id}")
            self.on_stage(self.stages[-1])

        with self.engine:
            self.engine.serve(on_stage=began, on_end=ended)


pytestmark = pytest.mark.usefixtures("no_child_is_left")


@pytest.fixture
def serving(tmp_path: Path) -> Serving:
    return Serving(MemoryJournal(), tmp_path / "log")


def test_jobs_are_added_while_others_run(serving: Serving) -> None:
    def next_one(job: str) -> None:
        if job == "a":
            serving.engine.add(quick("b"))
        else:
            serving.engine.leave()

    serving.on_end = next_one
    serving.engine.add(quick("a"))
    serving.serve()
    assert {job: end.ending for job, end in serving.ends.items()} == dict.fromkeys("ab", JobEnding.FINISHED)


def test_jobs_may_be_added_from_another_thread(serving: Serving) -> None:
    serving.on_end = lambda job: serving.engine.leave()
    threading.Timer(0.3, lambda: serving.engine.add(quick("late"))).start()
    serving.serve()
    assert list(serving.ends) == ["late"]


@pytest.mark.parametrize("worker", ["job", "build", "device"])
def test_a_job_is_called_off_at_once_whatever_it_does(serving: Serving, worker: str) -> None:
    def began(stage: str) -> None:
        if stage == "a/w":
            serving.engine.call_off("a", "unwanted")
            serving.engine.call_off("a", "unwanted again")

    serving.on_stage = began
    serving.on_end = lambda job: serving.engine.leave()
    serving.engine.add(endless("a", worker))
    serving.serve()
    end = serving.ends["a"]
    assert (end.ending, end.cause) == (JobEnding.CANCELLED, "unwanted")
    assert [event.stage for event in serving.journal.history("a")] == ["first"]


@pytest.mark.parametrize("worker", ["job", "build", "device"])
def test_a_job_whose_check_takes_too_long_is_refused_with_the_limit(serving: Serving, worker: str) -> None:
    limits = WorkLimits(("build", "job", "device"), 0.5)
    serving.on_end = lambda job: serving.engine.leave()
    serving.engine.add(msgspec.structs.replace(endless("a", worker), limits=limits))
    serving.serve()
    end = serving.ends["a"]
    assert (end.ending, end.cause) == (JobEnding.FAILED, limits.check_refusal)


def test_an_item_that_meets_the_limit_of_its_job_is_not_tried_again(serving: Serving) -> None:
    limits = WorkLimits(item_s=0.3)
    serving.on_end = lambda job: serving.engine.leave()
    serving.engine.add(msgspec.structs.replace(endless("a", "job"), limits=limits))
    serving.serve()
    end = serving.ends["a"]
    assert (end.ending, end.cause) == (JobEnding.FAILED, limits.item_refusal("job"))
    assert serving.stages.count("a/w") == 1


def test_a_job_is_asked_to_finish(serving: Serving) -> None:
    plot = launch("a", work("a", "w", *(Deed(text=str(n)) for n in range(4)), droppable=True))
    serving.on_stage = lambda stage: serving.engine.finish("a", "enough")
    serving.on_end = lambda job: serving.engine.leave()
    serving.engine.add(plot)
    serving.serve()
    finished = serving.ends["a"].finished
    assert finished is not None
    assert msgspec.msgpack.decode(finished.summary, type=Told).stopped == "enough"


def test_who_is_not_there_can_be_neither_called_off_nor_finished(serving: Serving) -> None:
    serving.engine.call_off("nobody", "unwanted")
    serving.engine.finish("nobody", "enough")
    serving.engine.prioritize("nobody", 3.0)
    serving.engine.leave()
    serving.serve()
    assert serving.ends == {}


def test_leaving_keeps_what_is_committed_for_the_next_engine(serving: Serving, tmp_path: Path) -> None:
    serving.on_stage = lambda stage: serving.engine.leave() if stage == "a/w" else None
    serving.engine.add(endless("a"))
    serving.serve()
    assert serving.ends == {}
    again = Serving(serving.journal, tmp_path / "again.log")
    again.on_end = lambda job: again.engine.leave()
    again.engine.add(launch("a", work("a", "first", Deed(text="done")), work("a", "w", Deed(text="short now"))))
    again.serve()
    assert again.stages == ["a/w"]
    assert again.ends["a"].ending is JobEnding.FINISHED


def test_a_dead_process_does_not_end_the_service(serving: Serving) -> None:
    def kill(stage: str) -> None:
        if stage == "a/w" and serving.stages.count(stage) == 1:
            for child in psutil.Process().children():
                if "scripted_job" in " ".join(child.cmdline()):
                    os.kill(child.pid, signal.SIGKILL)

    serving.on_stage = kill
    serving.on_end = lambda job: serving.engine.leave()
    serving.engine.add(quick("a"))
    serving.serve()
    assert serving.ends["a"].ending is JobEnding.FINISHED


@pytest.mark.parametrize("reads", [0, 1])
@pytest.mark.parametrize(
    ("error", "words"),
    [
        (partial(DamagedRecord, "events", "a/0"), "its checksum is wrong"),
        (msgspec.ValidationError, "Object missing required field `x`"),
        (WireError, "what was built cannot be read"),
        (ValueError, "'odd' is not a valid ItemStatus"),
    ],
)
def test_a_job_whose_past_cannot_be_read_fails_and_the_others_go_on(
    serving: Serving, monkeypatch: pytest.MonkeyPatch, error: Callable[[str], Exception], words: str, reads: int
) -> None:
    """Be it when the job begins or when its process is opened."""
    history = serving.journal.history
    asked = Counter[str]()

    def read(job: str) -> Sequence[Committed]:
        asked[job] += 1
        if job == "a" and asked[job] > reads:
            raise error(words)
        return history(job)

    def ended(job: str) -> None:
        if len(serving.ends) == 2:
            serving.engine.leave()

    monkeypatch.setattr(serving.journal, "history", read)
    serving.on_end = ended
    serving.engine.add(quick("a"))
    serving.engine.add(quick("b"))
    serving.serve()
    assert {job: end.ending for job, end in serving.ends.items()} == {"a": JobEnding.FAILED, "b": JobEnding.FINISHED}
    assert "what was done so far cannot be read: " in serving.ends["a"].cause
    assert words in serving.ends["a"].cause


def test_a_job_that_gives_up_with_its_process_gone_lets_go_of_what_else_it_runs(serving: Serving) -> None:
    """The next job needs the cores on which a build of the first one hangs."""
    hanging = work("a", "hanging", Deed(Act.HANG), Deed(text="late"))
    deadly = work("a", "deadly", Deed(Act.KILL, number=signal.SIGKILL), worker="job")

    def ended(job: str) -> None:
        if job == "a":
            serving.engine.add(launch("b", work("b", "w", Deed(text="b"), cores=2)))
        else:
            serving.engine.leave()

    serving.on_end = ended
    serving.engine.add(JobLaunch("a", JOB, Plot(((hanging, deadly),)).encode()))
    serving.serve()
    assert {job: end.ending for job, end in serving.ends.items()} == {"a": JobEnding.FAILED, "b": JobEnding.FINISHED}
    assert "a/hanging" in serving.stages
    assert serving.journal.history("a") == ()


def test_a_job_that_has_just_ended_may_still_be_given_another_weight(serving: Serving) -> None:
    def happened(event: Event) -> None:
        if isinstance(event, JobEnded):
            serving.engine.prioritize(event.job, 3.0)

    serving.on_event = happened
    serving.on_end = lambda job: serving.engine.leave()
    serving.engine.add(quick("a"))
    serving.serve()
    assert serving.ends["a"].ending is JobEnding.FINISHED


def test_no_stage_begins_and_none_is_lost_once_the_engine_was_left(serving: Serving) -> None:
    serving.on_stage = lambda stage: serving.engine.leave()
    serving.engine.add(launch("a", *(work("a", f"w{n}", Deed(text="done")) for n in range(50))))
    serving.serve()
    assert serving.stages == ["a/w0"]
    assert {event.status for event in serving.journal.history("a")} <= {ItemStatus.OK}


def test_a_job_that_is_added_too_late_is_left_alone(serving: Serving) -> None:
    """Its process would be told to leave as soon as it is there."""

    def ended(job: str) -> None:
        serving.engine.leave()
        serving.engine.post(lambda: serving.engine.post(lambda: serving.engine.add(quick("late"))))

    serving.on_end = ended
    serving.engine.add(quick("a"))
    serving.serve()
    assert serving.stages == ["a/w"]


def test_who_always_has_more_to_be_done_does_not_keep_jobs_waiting(serving: Serving) -> None:
    def again() -> None:
        serving.engine.post(again)

    serving.on_end = lambda job: serving.engine.leave()
    serving.engine.add(quick("a"))
    again()
    serving.serve()
    assert serving.ends["a"].ending is JobEnding.FINISHED


def test_only_an_engine_that_serves_takes_jobs(serving: Serving) -> None:
    serving.engine.add(quick("a"))
    with pytest.raises(EngineError, match="an engine that serves"):
        serving.engine.run([quick("b")])


def test_a_job_that_is_over_leaves_nothing_for_the_garbage_collector(serving: Serving) -> None:
    def ended(job: str) -> None:
        if len(serving.ends) == 3:
            serving.engine.leave()

    serving.on_end = ended
    gc.collect()
    gc.disable()
    try:
        for job in ("a", "b", "c"):
            serving.engine.add(quick(job))
        serving.serve()
        # by type: asking strangers' objects what they are an instance of wakes their deprecation warnings
        left = [type(each).__name__ for each in gc.get_objects() if type(each) in (JobRun, JobDriver, JobProcess)]
    finally:
        gc.enable()
    assert left == []
