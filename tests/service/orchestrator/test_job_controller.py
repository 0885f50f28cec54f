from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from sqlalchemy import update

from kintune.core.messages import Work
from kintune.core.report import Latencies, ProgressReport, RunReport, StopReason
from kintune.core.stage import Demand, Stage
from kintune.core.stage_results import StageName
from kintune.errors import InputError, JobFailed, StorageFull
from kintune.service.access import Scope, Visitor
from kintune.service.blob_store import BlobStore
from kintune.service.database import open_database
from kintune.service.job_repository import Job, JobRepository
from kintune.service.job_request import JobRequest
from kintune.service.job_status import JobCommand, JobStatus
from kintune.service.model_store import ModelStore
from kintune.service.orchestrator.events import Changed, News, Progressed
from kintune.service.orchestrator.job_controller import JobController
from kintune.service.schema import jobs
from kintune.service.users import Users
from kintune.service.webhooks import Webhooks
from kintune.workers.engine.job_run import JobEnd, JobEnding, JobLaunch
from kintune.workers.engine.process import Command
from kintune.workers.engine.work_limits import WorkLimits
from tests.support import service_users
from tests.support.reports import example_report


class FakeEngine:
    """Notes what it is asked."""

    def __init__(self) -> None:
        self.added: list[JobLaunch] = []
        self.asked: list[tuple[object, ...]] = []
        self.why_none = ""
        self.post: Callable[[Callable[[], None]], None] = lambda act: act()

    def devices(self, type: str) -> int:
        return 0

    def why_no_device(self, type: str) -> str:
        return self.why_none

    def add(self, launch: JobLaunch) -> None:
        self.added.append(launch)

    def call_off(self, job: str, reason: str) -> None:
        self.asked.append(("call off", job))

    def finish(self, job: str, reason: str) -> None:
        self.asked.append(("finish", job))

    def prioritize(self, job: str, priority: float) -> None:
        self.asked.append(("prioritize", job, priority))


class FakeSpec(msgspec.Struct, frozen=True):
    """What a job's process is opened with."""

    run: str
    files: tuple[str, ...] = ("model.onnx",)
    output: str = "out.kt"


class FakeTuningRun:
    """A run that is named after its job, and ends as it is told."""

    confinement = None

    def __init__(self, job: Job, place: Path, conclude: Callable[[JobEnd], Any]) -> None:
        self.run_id = f"run-{job.retry_of or job.id}"
        self.conclude = conclude
        self.was_interrupted = False

    def open(self, about: object, *, cores: int, pipelined: bool) -> FakeSpec:
        return FakeSpec(self.run_id)

    def interrupted(self) -> None:
        self.was_interrupted = True


class ControllerCase:
    """A controller over a real database, with everything else made up."""

    def __init__(self, place: Path, at_once: int = 2) -> None:
        self.database = open_database(str(place / "service.sqlite"))
        self.jobs, self.engine, self.news = JobRepository(self.database), FakeEngine(), list[News]()
        self.content = BlobStore(place / "content")
        self.time = 1000.0
        self.refused = ""
        self.away: set[str] = set()
        self.conclusion: Callable[[JobEnd], Any] = lambda end: pytest.fail("nobody has said how it ends")
        self.tuning_runs: dict[str, FakeTuningRun] = {}
        people = Users(self.database)
        user = people.add_user("anna", 1.0)
        self.anna = Visitor(user.id, "anna", Scope.SUBMIT, 1)
        self.model = ModelStore(self.database).add(user.id, "net.onnx", "0" * 64, 5, 1.0, None).id
        self.place = place
        self.closed: list[str] = []
        self.cleaned: list[str] = []
        self.came_of: Callable[[Job], Any] = lambda job: None
        journal = SimpleNamespace(enter=lambda *_, **__: None, watch=lambda *_: None, leave=self.closed.append)
        factory = SimpleNamespace(
            tuning_run=self.tuning_run,
            came_of=lambda job: self.came_of(job),
            is_away=lambda device, usable: device in self.away,
            clean_up=lambda job: self.cleaned.append(job.id),
            cores=1,
            command=Command(("job",)),
            home="local",
            limits=lambda job: WorkLimits(),
            readable=lambda job, text: text.replace(str(place), "net.onnx"),
        )
        self.parts: Any = (self.jobs, Webhooks(self.database), self.content, factory, self.engine, journal)
        self.at_once = at_once
        self.controller = self.another_controller()

    def another_controller(self, aside: Callable[[Callable[[], None]], None] = lambda act: act()) -> JobController:
        """As it is when the orchestrator starts."""
        log: Any = SimpleNamespace(size=7, of=lambda run, since: f"what {run} said after {since}".encode())
        return JobController(
            *self.parts, at_once=self.at_once, now=lambda: self.time, publish=self.news.append, log=log, aside=aside
        )

    def tuning_run(self, job: Job, usable: Callable[[str], int]) -> tuple[Any, FakeTuningRun]:
        assert usable("anything") == 0
        if self.refused:
            raise InputError(self.refused)
        made = self.tuning_runs[job.id] = FakeTuningRun(job, self.place, lambda end: self.conclusion(end))
        return SimpleNamespace(compiler="c1"), made

    def submit(self, **wanted: Any) -> Job:
        self.time += 1
        return self.jobs.submit(self.anna, self.model, JobRequest(**wanted), self.time)[0]

    def state(self, job: Job) -> tuple[JobStatus, str]:
        found = self.jobs.get(self.anna, job.id)
        return found.state, found.reason

    def stage(self, job: Job, kind: str) -> None:
        stage = Stage(f"{kind}-0", f"run-{job.id}", kind, Demand(cores=1))
        self.controller.stage_began(f"run-{job.id}", Work(stage, "job", b"", (), 1.0))


@pytest.fixture
def case(tmp_path: Path) -> Any:
    made = ControllerCase(tmp_path)
    with closing(made.database):
        yield made


def done(case: ControllerCase, reason: StopReason) -> Callable[[JobEnd], Any]:
    output = case.place / "net.kt"
    output.write_bytes(b"program")
    report = example_report(reason=reason, output=str(output))
    return lambda end: report


def test_jobs_are_launched_as_many_as_may_be_at_once(case: ControllerCase) -> None:
    first, second, third = case.submit(), case.submit(), case.submit()
    case.controller.look_around()
    assert [launch.job for launch in case.engine.added] == [f"run-{first.id}", f"run-{second.id}"]
    assert case.state(first)[0] is JobStatus.CHECKING
    assert case.state(third)[0] is JobStatus.QUEUED
    case.controller.look_around()
    assert len(case.engine.added) == 2


def test_one_of_several_users_leaves_the_last_slot_to_others(case: ControllerCase) -> None:
    boris = Users(case.database).add_user("boris", 1.0)
    first, second = case.submit(), case.submit()
    case.controller.look_around()
    waits = "waits until another job of yours ends; 1 of one user may be under way at once"
    assert case.state(second) == (JobStatus.QUEUED, waits)
    case.anna = Visitor(boris.id, "boris", Scope.ADMIN, 2)
    case.model = ModelStore(case.database).add(boris.id, "net.onnx", "1" * 64, 5, 1.0, None).id
    other = case.submit()
    case.controller.look_around()
    assert [launch.job for launch in case.engine.added] == [f"run-{first.id}", f"run-{other.id}"]


def test_the_owners_who_have_fewest_jobs_under_way_come_first(tmp_path: Path) -> None:
    case = ControllerCase(tmp_path, at_once=3)
    with closing(case.database):
        boris = Users(case.database).add_user("boris", 1.0)
        annas = [case.submit() for _ in range(4)]
        case.controller.look_around()
        assert len(case.engine.added) == 2
        case.anna = Visitor(boris.id, "boris", Scope.ADMIN, 2)
        case.model = ModelStore(case.database).add(boris.id, "net.onnx", "1" * 64, 5, 1.0, None).id
        first, _ = case.submit(), case.submit()
        case.controller.look_around()
        case.conclusion = done(case, StopReason.CONVERGED)
        case.controller.ended(f"run-{annas[0].id}", JobEnd(JobEnding.FINISHED))
        launched = [launch.job.removeprefix("run-") for launch in case.engine.added]
        assert launched == [annas[0].id, annas[1].id, first.id, annas[2].id]


def test_a_job_that_waits_for_cores_says_so_until_it_has_them(case: ControllerCase) -> None:
    job = case.submit()
    case.controller.look_around()
    case.controller.stage_waits(f"run-{job.id}")
    case.controller.stage_waits(f"run-{job.id}")
    waits = "waits for free cores: other jobs use them"
    assert case.state(job) == (JobStatus.CHECKING, waits)
    assert case.news.count(Changed(job.id, JobStatus.CHECKING, waits)) == 1
    case.stage(job, StageName.PREPARE)
    assert case.state(job) == (JobStatus.CHECKING, "")
    case.controller.stage_waits(f"run-{job.id}")
    case.controller.stage_waits("run of somebody else")
    assert case.state(job) == (JobStatus.CHECKING, "")


def test_a_run_whose_device_cannot_be_used_says_why(case: ControllerCase) -> None:
    job = case.submit(device="pi5")
    case.controller.look_around()
    case.away, case.engine.why_none = {"pi5"}, "board/cpu: the reference kernel takes 2.00 times as long"
    case.controller.look_around()
    case.controller.look_around()
    said = "waits for a device of type pi5 (board/cpu: the reference kernel takes 2.00 times as long)"
    assert case.state(job) == (JobStatus.CHECKING, said)
    assert case.news.count(Changed(job.id, JobStatus.CHECKING, said)) == 1
    case.away = set()
    case.controller.look_around()
    assert case.state(job) == (JobStatus.CHECKING, "")


def test_jobs_for_devices_that_are_away_wait_and_keep_nobody_waiting(case: ControllerCase) -> None:
    case.away = {"pi5"}
    waiting = [case.submit(device="pi5") for _ in range(2)]
    first, second, third = (case.submit() for _ in range(3))
    case.controller.look_around()
    assert [launch.job for launch in case.engine.added] == [f"run-{first.id}", f"run-{second.id}"]
    assert {case.state(job) for job in waiting} == {(JobStatus.QUEUED, "waits for a device of type pi5")}
    full = "waits until one of the jobs under way ends; 2 may be under way at once"
    assert case.state(third) == (JobStatus.QUEUED, full)
    assert case.news.count(Changed(waiting[0].id, JobStatus.QUEUED, "waits for a device of type pi5")) == 1
    case.away = set()
    case.controller.look_around()
    assert {case.state(job) for job in waiting} == {(JobStatus.QUEUED, full)}
    case.conclusion = done(case, StopReason.CONVERGED)
    case.controller.ended(f"run-{first.id}", JobEnd(JobEnding.FINISHED))
    assert case.state(waiting[0]) == (JobStatus.CHECKING, "")


def test_a_run_whose_device_has_gone_takes_no_slot(case: ControllerCase) -> None:
    for _ in range(2):
        case.submit(device="pi5")
    other = case.submit()
    case.controller.look_around()
    assert case.state(other)[0] is JobStatus.QUEUED
    case.away = {"pi5"}
    case.controller.look_around()
    assert case.state(other)[0] is JobStatus.CHECKING


def test_a_job_goes_through_its_states_as_its_stages_begin(case: ControllerCase) -> None:
    job = case.submit()
    case.controller.look_around()
    for kind in (StageName.PREPARE, StageName.SELECT, StageName.BUILD, StageName.PROFILE, StageName.CONFIRM):
        case.stage(job, kind)
    case.conclusion = done(case, StopReason.CONVERGED)
    case.controller.ended(f"run-{job.id}", JobEnd(JobEnding.FINISHED))
    found = case.jobs.get(case.anna, job.id)
    states = [step.state.value for step in case.jobs.steps(found)]
    assert states == ["queued", "checking", "tuning", "packaging", "done"]
    assert found.reason == "no gain is left to be expected"
    assert found.executable is not None
    assert case.content.path(found.executable).read_bytes() == b"program"
    assert found.executable_size == len(b"program")
    assert found.log is not None
    assert case.content.path(found.log).read_bytes() == f"what run-{job.id} said after 7".encode()
    assert case.closed == [f"run-{job.id}"]
    assert Changed(job.id, JobStatus.DONE, "no gain is left to be expected") in case.news


def test_a_job_whose_target_known_records_meet_is_answered_without_tuning(case: ControllerCase) -> None:
    job = case.submit(until="5")
    case.controller.look_around()
    for kind in (StageName.PREPARE, StageName.CONFIRM, StageName.PACKAGE):
        case.stage(job, kind)
    case.conclusion = done(case, StopReason.TARGET_MET)
    case.controller.ended(f"run-{job.id}", JobEnd(JobEnding.FINISHED))
    assert case.state(job)[1] == "already met by what is known"


@pytest.mark.parametrize(("error", "refused"), [(InputError, True), (JobFailed, False)])
def test_a_failure_shows_no_path_of_the_service_and_says_whether_it_can_change(
    case: ControllerCase, error: type[Exception], refused: bool
) -> None:
    job = case.submit()
    case.controller.look_around()

    def fails(end: JobEnd) -> Any:
        raise error(f"{case.place}: has no network in it")

    case.conclusion = fails
    case.controller.ended(f"run-{job.id}", JobEnd(JobEnding.REFUSED))
    found = case.jobs.get(case.anna, job.id)
    assert (found.reason, found.refused) == ("net.onnx: has no network in it", refused)


def test_the_next_job_begins_when_one_ends(case: ControllerCase) -> None:
    jobs = [case.submit() for _ in range(3)]
    case.controller.look_around()

    def fails(end: JobEnd) -> Any:
        raise JobFailed("the model cannot be imported: operator Foo")

    case.conclusion = fails
    case.controller.ended(f"run-{jobs[0].id}", JobEnd(JobEnding.REFUSED, cause="operator Foo"))
    assert case.state(jobs[0]) == (JobStatus.FAILED, "the model cannot be imported: operator Foo")
    assert case.jobs.get(case.anna, jobs[0].id).log is not None
    assert case.state(jobs[2])[0] is JobStatus.CHECKING


def test_what_cannot_be_tuned_here_fails_with_the_reason(case: ControllerCase) -> None:
    job = case.submit()
    case.refused = "no device of type 'gpu' belongs to this service"
    case.controller.look_around()
    assert case.state(job) == (JobStatus.FAILED, case.refused)
    assert case.engine.added == []


def test_wishes_reach_the_engine(case: ControllerCase) -> None:
    job = case.submit()
    case.controller.look_around()
    case.stage(job, StageName.SELECT)
    for command, value in ((JobCommand.PRIORITY, 3.0), (JobCommand.FINISH, None), (JobCommand.CANCEL, None)):
        case.jobs.command(job, command, 1.0, value)
    case.controller.look_around()
    run = f"run-{job.id}"
    assert case.engine.asked == [("prioritize", run, 3.0), ("call off", run), ("finish", run)]
    assert [command.command for command in case.jobs.pending_commands()] == [
        JobCommand.FINISH,
        JobCommand.CANCEL,
    ]  # until the job is over
    case.controller.ended(run, JobEnd(JobEnding.CANCELLED, cause="cancelled"))
    assert case.state(job) == (JobStatus.CANCELLED, "cancelled")
    assert case.tuning_runs[job.id].was_interrupted
    log = case.jobs.get(case.anna, job.id).log or ""
    assert case.content.path(log).read_bytes() == f"what {run} said after 7".encode()
    assert case.jobs.pending_commands() == []


@pytest.mark.parametrize("granted_before", [False, True])
def test_who_asked_a_job_to_finish_is_heard_by_the_next_orchestrator(
    case: ControllerCase, granted_before: bool
) -> None:
    job = case.submit()
    case.controller.look_around()
    case.stage(job, StageName.SELECT)
    case.jobs.command(job, JobCommand.FINISH, 1.0)
    if granted_before:
        case.controller.look_around()
    case.engine.asked.clear()
    case.another_controller().look_around()
    assert case.engine.asked == [("finish", f"run-{job.id}")]


def test_a_job_that_waits_for_its_turn_again_is_asked_to_finish_when_it_has_it(case: ControllerCase) -> None:
    jobs = [case.submit() for _ in range(2)]
    case.controller.look_around()
    for job in jobs:
        case.stage(job, StageName.SELECT)
        case.jobs.command(job, JobCommand.FINISH, 1.0)
    case.at_once = 1
    again = case.another_controller()
    again.look_around()
    assert case.engine.asked == [("finish", f"run-{jobs[0].id}")]
    case.conclusion = done(case, StopReason.INTERRUPTED)
    again.ended(f"run-{jobs[0].id}", JobEnd(JobEnding.FINISHED))
    assert case.engine.asked[1:] == [("finish", f"run-{jobs[1].id}")]


def test_a_job_under_way_is_cancelled_by_the_next_orchestrator(case: ControllerCase) -> None:
    job = case.submit(webhook="https://a.example/done")
    case.controller.look_around()
    for _ in range(2):
        case.jobs.command(job, JobCommand.CANCEL, 1.0)
    case.another_controller().look_around()
    assert case.state(job) == (JobStatus.CANCELLED, "cancelled")
    assert (case.jobs.pending_commands(), len(case.engine.added), case.cleaned) == ([], 1, [job.id])
    assert [call.job for call in Webhooks(case.database).due(case.time)] == [job.id]


def test_a_job_cancelled_before_it_began_never_begins(case: ControllerCase) -> None:
    job = case.submit()
    case.jobs.command(job, JobCommand.CANCEL, 1.0)
    case.controller.look_around()
    assert (case.state(job)[0], case.engine.added) == (JobStatus.CANCELLED, [])


def test_a_wish_that_comes_too_late_is_let_go(case: ControllerCase) -> None:
    job = case.submit()
    case.jobs.command(job, JobCommand.CANCEL, 1.0)
    case.jobs.step(job.id, JobStatus.FAILED, "broke", 2.0)
    case.controller.look_around()
    assert case.state(job)[0] is JobStatus.FAILED
    assert case.jobs.pending_commands() == []


def test_an_orchestrator_that_comes_back_goes_on_with_all_jobs(case: ControllerCase) -> None:
    job = case.submit()
    case.controller.look_around()
    case.stage(job, StageName.SELECT)
    case.jobs.command(job, JobCommand.PRIORITY, 1.0, 2.0)
    case.another_controller().look_around()
    assert [launch.job for launch in case.engine.added] == [f"run-{job.id}"] * 2
    assert case.engine.added[1].priority == 2.0
    assert case.state(job)[0] is JobStatus.CHECKING


def test_a_result_that_could_not_be_kept_is_kept_by_the_next_orchestrator(
    case: ControllerCase, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = case.submit()
    case.controller.look_around()
    case.stage(job, StageName.SELECT)
    case.conclusion = done(case, StopReason.CONVERGED)

    def full(source: Path) -> str:
        raise StorageFull("the service's disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(case.content, "keep", full)
        with pytest.raises(StorageFull):
            case.controller.ended(f"run-{job.id}", JobEnd(JobEnding.FINISHED))
    case.came_of = case.conclusion
    case.another_controller().look_around()
    found = case.jobs.get(case.anna, job.id)
    assert (found.state, found.run_id, found.reason) == (
        JobStatus.DONE,
        f"run-{job.id}",
        "no gain is left to be expected",
    )
    assert case.content.path(found.executable or "").read_bytes() == b"program"
    assert (len(case.engine.added), case.cleaned) == (1, [job.id])
    report = msgspec.json.decode(case.content.path(found.report or "").read_bytes(), type=RunReport)
    assert (report.output, report.log) == ("net.kt", None)


def test_a_run_that_had_failed_is_not_tuned_again(case: ControllerCase) -> None:
    job = case.submit()
    case.controller.look_around()

    def failed(job: Job) -> Any:
        raise JobFailed("its run has failed")

    case.came_of = failed
    case.another_controller().look_around()
    assert case.state(job) == (JobStatus.FAILED, "its run has failed")
    assert len(case.engine.added) == 1


def test_progress_is_told_at_once_and_written_down_now_and_then(case: ControllerCase) -> None:
    job = case.submit()
    case.controller.look_around()
    report = ProgressReport("profile", trials=1)
    for trials in range(1, 4):
        case.controller.progressed(f"run-{job.id}", msgspec.msgpack.encode(ProgressReport("profile", trials=trials)))
    told = [news for news in case.news if isinstance(news, Progressed)]
    assert [news.report.trials for news in told] == [1, 2, 3]
    kept = case.jobs.get(case.anna, job.id).progress
    assert kept is not None
    assert msgspec.json.decode(kept, type=ProgressReport) == report
    case.time += 2
    case.controller.progressed(f"run-{job.id}", msgspec.msgpack.encode(ProgressReport("profile", trials=9)))
    kept = case.jobs.get(case.anna, job.id).progress
    assert kept is not None
    assert msgspec.json.decode(kept, type=ProgressReport).trials == 9


def test_a_webhook_is_due_when_the_job_is_over(case: ControllerCase) -> None:
    job = case.submit(webhook="https://a.example/done")
    case.controller.look_around()
    calls = Webhooks(case.database)
    assert calls.next_due(0.0) is None
    case.conclusion = done(case, StopReason.CONVERGED)
    case.controller.ended(f"run-{job.id}", JobEnd(JobEnding.FINISHED))
    assert [call.job for call in calls.due(case.time)] == [job.id]


def finished(case: ControllerCase, owner: Visitor, tuned: float, **wanted: Any) -> Job:
    """A job that is done, with a report."""
    job = case.jobs.submit(owner, case.model, JobRequest(**wanted), 500.0)[0]
    case.jobs.step(job.id, JobStatus.CHECKING, "", 501.0)
    report = msgspec.structs.replace(example_report(), latency_ms=Latencies(untuned=9.0, tuned=tuned))
    files: dict[str, Any] = {
        "report": case.content.put_bytes(msgspec.json.encode(report)),
        "executable": case.content.put_bytes(b"kt"),
    }
    files["executable_size"] = 2
    return case.jobs.step(job.id, JobStatus.DONE, "converged", 502.0, **files)


def test_an_earlier_result_that_meets_the_target_is_the_answer(case: ControllerCase) -> None:
    earlier = finished(case, case.anna, 4.0)
    job = case.submit(until="5")
    case.controller.look_around()
    found = case.jobs.get(case.anna, job.id)
    assert (found.state, found.executable, found.report) == (JobStatus.DONE, earlier.executable, earlier.report)
    assert found.executable_size == 2
    assert found.reason == f"already met by what is known (the result of job {earlier.id})"
    assert case.engine.added == []


def test_an_earlier_result_whose_files_were_removed_is_no_answer(case: ControllerCase) -> None:
    case.jobs.remove_files(finished(case, case.anna, 4.0), 600.0)
    job = case.submit(until="5")
    case.controller.look_around()
    assert (case.state(job)[0], len(case.engine.added)) == (JobStatus.CHECKING, 1)


def test_the_files_of_an_answer_are_not_swept_away_with_those_of_the_earlier_job(
    case: ControllerCase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sweep may have looked for references just before the answer was recorded; it spares what is new."""
    earlier = finished(case, case.anna, 4.0)
    for file in case.content.digests():
        os.utime(case.content.path(file), (1.0, 1.0))
    like = case.jobs.like

    def and_then_they_are_removed(job: Job) -> list[Job]:
        found = like(job)
        case.jobs.remove_files(earlier, 600.0)
        return found

    monkeypatch.setattr(case.jobs, "like", and_then_they_are_removed)
    job = case.submit(until="5")
    case.controller.look_around()
    found = case.jobs.get(case.anna, job.id)
    assert (found.state, found.executable) == (JobStatus.DONE, earlier.executable)
    assert all(case.content.path(file).stat().st_mtime > 1.0 for file in case.content.digests())


def test_an_earlier_result_is_the_answer_while_all_slots_are_taken(
    case: ControllerCase, monkeypatch: pytest.MonkeyPatch
) -> None:
    running, _, waiting, answered = case.submit(), case.submit(), case.submit(until="3"), case.submit(until="5")
    finished(case, case.anna, 4.0)
    asked: list[str] = []
    like = case.jobs.like

    def counted(job: Job) -> list[Job]:
        asked.append(job.id)
        return like(job)

    monkeypatch.setattr(case.jobs, "like", counted)
    for _ in range(2):
        case.controller.look_around()
    assert (case.state(waiting)[0], case.state(answered)[0]) == (JobStatus.QUEUED, JobStatus.DONE)
    assert asked == [waiting.id, answered.id, waiting.id]  # once more after a job was done
    case.controller.look_around()
    assert len(asked) == 3
    case.conclusion = done(case, StopReason.CONVERGED)
    case.controller.ended(f"run-{running.id}", JobEnd(JobEnding.FINISHED))
    assert asked[3:] == [waiting.id]


@pytest.mark.parametrize("wanted", [{"until": "3"}, {}, {"until": "5", "shapes": {"x": (1, 4)}}])
def test_an_earlier_result_answers_nothing_else(case: ControllerCase, wanted: dict[str, Any]) -> None:
    finished(case, case.anna, 4.0)
    case.submit(**wanted)
    case.controller.look_around()
    assert len(case.engine.added) == 1


@pytest.mark.parametrize(
    "earlier",
    [{"precision": "bf16"}, {"precision": "int8", "calibrate": (1,)}, {"precision": "bf16", "max_error": 0.2},
     {"weights": 4}, {"onnxruntime": False}, {"other_shapes": "onnxruntime"}, {"constants": {"x": 1}}],
)  # fmt: skip
def test_a_result_that_computes_otherwise_is_no_answer(case: ControllerCase, earlier: dict[str, Any]) -> None:
    finished(case, case.anna, 4.0, **earlier)
    job = case.submit(until="5")
    case.controller.look_around()
    assert (case.state(job)[0], len(case.engine.added)) == (JobStatus.CHECKING, 1)


def test_a_result_with_other_limits_is_an_answer(case: ControllerCase) -> None:
    limits = {"minutes": 9.0, "trials": 7, "priority": 2.0, "seed": 3, "webhook": "https://a.example/", "search": False}
    finished(case, case.anna, 4.0, precision="bf16", **limits)
    job = case.submit(until="5", precision="bf16")
    case.controller.look_around()
    assert case.state(job)[0] is JobStatus.DONE


@pytest.mark.parametrize("share", [False, True])
def test_somebody_else_s_result_is_an_answer_only_if_it_is_shared(case: ControllerCase, share: bool) -> None:
    boris = service_users.visitor(case.database, "boris")
    finished(case, boris, 4.0, share=share)
    job = case.submit(until="5")
    case.controller.look_around()
    assert (case.state(job)[0] is JobStatus.DONE) is share


@pytest.mark.parametrize(("patience", "first"), [(1000, "cheap"), (0, "dear")])
def test_who_pays_more_waits_less_but_nobody_for_ever(tmp_path: Path, patience: float, first: str) -> None:
    case = ControllerCase(tmp_path, at_once=1)
    with closing(case.database):
        cheap = case.submit(priority=1.0)
        case.time += patience
        dear = case.submit(priority=10.0)
        case.time += 10
        case.controller.look_around()
        begun, waits = (cheap, dear) if first == "cheap" else (dear, cheap)
        assert [launch.job for launch in case.engine.added] == [f"run-{begun.id}"]
        assert case.state(waits)[0] is JobStatus.QUEUED


def test_a_fault_of_ours_ends_the_job_alone(case: ControllerCase, monkeypatch: pytest.MonkeyPatch) -> None:
    job, other = case.submit(), case.submit()
    tuning_run = case.tuning_run

    def broken(asked: Job, usable: Callable[[str], int]) -> Any:
        if asked.id == job.id:
            raise OSError(36, "File name too long")
        return tuning_run(asked, usable)

    monkeypatch.setattr(case.controller._factory, "tuning_run", broken)
    case.controller.look_around()
    assert case.state(job) == (JobStatus.FAILED, "internal error: OSError(36, 'File name too long')")
    assert case.state(other)[0] is JobStatus.CHECKING


def test_a_fault_of_ours_at_the_end_of_a_job_ends_it_alone(case: ControllerCase) -> None:
    job, other = case.submit(), case.submit()
    case.controller.look_around()

    def broken(end: JobEnd) -> Any:
        raise ValueError("no reason of ours")

    case.conclusion = broken
    case.controller.ended(f"run-{job.id}", JobEnd(JobEnding.FINISHED))
    assert case.state(job) == (JobStatus.FAILED, "internal error: ValueError('no reason of ours')")
    assert (case.state(other)[0], case.cleaned) == (JobStatus.CHECKING, [job.id])


def test_a_result_is_published_aside_and_then_recorded_by_the_engine(case: ControllerCase) -> None:
    job = case.submit()
    acts, posted = list[Callable[[], None]](), list[Callable[[], None]]()
    controller, case.engine.post = case.another_controller(acts.append), posted.append
    controller.look_around()
    case.conclusion = done(case, StopReason.CONVERGED)
    controller.ended(f"run-{job.id}", JobEnd(JobEnding.FINISHED))
    case.jobs.command(job, JobCommand.CANCEL, 1.0)  # too late
    controller.look_around()
    assert (case.state(job)[0], len(case.engine.added), posted) == (JobStatus.CHECKING, 1, [])
    thread = threading.Thread(target=acts.pop())
    thread.start()
    thread.join()
    assert (case.state(job)[0], case.cleaned, controller.jobs) == (JobStatus.CHECKING, [], [job.id])
    posted.pop()()
    assert case.state(job) == (JobStatus.DONE, "no gain is left to be expected")
    assert (case.cleaned, controller.jobs, case.jobs.pending_commands()) == ([job.id], [], [])


def test_what_fails_aside_ends_the_engine(case: ControllerCase) -> None:
    job = case.submit()
    acts, posted = list[Callable[[], None]](), list[Callable[[], None]]()
    controller, case.engine.post = case.another_controller(acts.append), posted.append
    controller.look_around()

    def full(end: JobEnd) -> Any:
        raise StorageFull("the disk is full")

    case.conclusion = full
    controller.ended(f"run-{job.id}", JobEnd(JobEnding.FINISHED))
    acts.pop()()
    with pytest.raises(StorageFull):
        posted.pop()()


def test_a_result_that_cannot_be_written_now_is_written_by_the_next_orchestrator(case: ControllerCase) -> None:
    job = case.submit()
    case.controller.look_around()
    case.stage(job, StageName.SELECT)

    def full(end: JobEnd) -> Any:
        raise StorageFull("the disk is full")

    case.conclusion = full
    with pytest.raises(StorageFull):
        case.controller.ended(f"run-{job.id}", JobEnd(JobEnding.FINISHED))
    assert (case.state(job)[0], case.cleaned) == (JobStatus.TUNING, [])
    case.another_controller().look_around()
    assert len(case.engine.added) == 2


def test_a_report_of_another_version_answers_no_job(case: ControllerCase) -> None:
    first = case.submit(until="5")
    case.controller.look_around()
    case.stage(first, StageName.SELECT)
    case.conclusion = done(case, StopReason.TARGET_MET)
    case.controller.ended(f"run-{first.id}", JobEnd(JobEnding.FINISHED))
    report = case.content.put_bytes(b'{"schema_version": 0}')
    second = case.submit(until="5")
    with case.database.transaction() as connection:
        connection.execute(update(jobs).where(jobs.c.id == first.id).values(report=report))
    case.controller.look_around()
    assert case.state(second)[0] is JobStatus.CHECKING
