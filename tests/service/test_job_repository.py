from __future__ import annotations

import msgspec
import pytest

from kintune.core.report import FastestBaseline, ProgressReport
from kintune.errors import InputError, OrderError
from kintune.records.database import Database
from kintune.service.access import Forbidden, NotFound, Quota, Scope, Visitor
from kintune.service.job_repository import Job, JobRepository, gain_columns, seconds_until_free
from kintune.service.job_request import JobRequest
from kintune.service.job_status import JobCommand, JobStatus
from kintune.service.model_store import ModelStore
from tests.support.service_users import visitor

DAY = 86400.0


@pytest.fixture
def repository(database: Database) -> JobRepository:
    return JobRepository(database)


@pytest.fixture
def model(database: Database, anna: Visitor) -> int:
    return ModelStore(database).add(anna.user, "net.onnx", "0" * 64, 5, 100.0, None).id


@pytest.fixture
def job(repository: JobRepository, anna: Visitor, model: int) -> Job:
    return repository.submit(anna, model, JobRequest(minutes=5.0), 1000.0)[0]


def through(repository: JobRepository, job: Job, *states: JobStatus) -> Job:
    for number, state in enumerate(states, start=1):
        job = repository.step(job.id, state, f"because {number}", 1000.0 + number)
    return job


def test_a_job_begins_in_the_queue(repository: JobRepository, anna: Visitor, job: Job) -> None:
    found = repository.get(anna, job.id)
    assert found == job
    assert (found.state, found.wanted.minutes, found.started, found.ended) == (JobStatus.QUEUED, 5.0, None, None)
    assert [step.state for step in repository.steps(job)] == [JobStatus.QUEUED]
    assert repository.under_way() == [job]


def test_every_step_has_its_time_and_reason(repository: JobRepository, job: Job) -> None:
    done = through(repository, job, JobStatus.CHECKING, JobStatus.TUNING, JobStatus.PACKAGING, JobStatus.DONE)
    assert (done.started, done.ended, done.reason) == (1001.0, 1004.0, "because 4")
    assert [(step.state, step.at, step.reason) for step in repository.steps(job)][1:] == [
        (JobStatus.CHECKING, 1001.0, "because 1"),
        (JobStatus.TUNING, 1002.0, "because 2"),
        (JobStatus.PACKAGING, 1003.0, "because 3"),
        (JobStatus.DONE, 1004.0, "because 4"),
    ]
    assert repository.under_way() == []


def test_a_step_that_cannot_be_changes_nothing(repository: JobRepository, anna: Visitor, job: Job) -> None:
    with pytest.raises(OrderError):
        repository.step(job.id, JobStatus.PACKAGING, "", 1001.0)
    assert repository.get(anna, job.id).state is JobStatus.QUEUED
    assert len(repository.steps(job)) == 1


def test_a_step_taken_twice_is_one_step(repository: JobRepository, job: Job) -> None:
    through(repository, job, JobStatus.CHECKING, JobStatus.CHECKING)
    assert [step.state for step in repository.steps(job)] == [JobStatus.QUEUED, JobStatus.CHECKING]


def test_the_same_request_again_is_the_same_job(
    repository: JobRepository, anna: Visitor, boris: Visitor, model: int
) -> None:
    first, is_new = repository.submit(anna, model, JobRequest(), 1000.0, key="k")
    again, is_new_again = repository.submit(anna, model, JobRequest(), 1001.0, key="k")
    assert (first, is_new, is_new_again) == (again, True, False)
    with pytest.raises(InputError, match=f"used for another job, {first.id}"):
        repository.submit(anna, model, JobRequest(seed=1), 1002.0, key="k")
    others, is_new = repository.submit(boris, model, JobRequest(), 1000.0, key="k")
    assert is_new
    assert others.id != first.id


def test_others_jobs_do_not_exist(repository: JobRepository, database: Database, boris: Visitor, job: Job) -> None:
    with pytest.raises(NotFound, match=f"there is no job {job.id}"):
        repository.get(boris, job.id)
    with pytest.raises(NotFound, match="there is no job nothing"):
        repository.get(boris, "nothing")
    admin = visitor(database, "root", Scope.ADMIN)
    assert repository.get(admin, job.id) == job
    assert repository.models_of(boris, [job.id]) == repository.models_of(admin, [job.id]) == {}


def test_jobs_are_counted_by_state(repository: JobRepository, anna: Visitor, model: int, job: Job) -> None:
    other, _ = repository.submit(anna, model, JobRequest(), 1000.0)
    through(repository, other, JobStatus.CANCELLED)
    assert repository.counts() == {JobStatus.QUEUED: 1, JobStatus.CANCELLED: 1}


def test_quotas_hold(repository: JobRepository, database: Database, model: int) -> None:
    cora = visitor(database, "cora", quota=Quota(jobs=2, minutes=20.0))
    first, _ = repository.submit(cora, model, JobRequest(minutes=5.0), 1000.0)
    repository.submit(cora, model, JobRequest(minutes=5.0), 1000.0)
    with pytest.raises(Forbidden, match="2 of your jobs are not over"):
        repository.submit(cora, model, JobRequest(), 1000.0)
    through(repository, first, JobStatus.CANCELLED)
    with pytest.raises(Forbidden, match="26 minutes of tuning within a day; you may have 20"):
        repository.submit(cora, model, JobRequest(minutes=21.0), 1002.0)
    repository.submit(cora, model, JobRequest(minutes=2.0), 1002.0)


def test_who_keeps_too_many_results_gets_no_new_job_and_loses_none(
    repository: JobRepository, database: Database, model: int
) -> None:
    cora = visitor(database, "cora", quota=Quota(storage_mb=1))
    jobs = [repository.submit(cora, model, JobRequest(minutes=1.0), 1000.0, key=str(number))[0] for number in range(2)]
    for job in jobs:
        repository.step(job.id, JobStatus.CHECKING, "", 1001.0)
        kept = {"executable": job.id, "executable_size": 1 << 20}
        assert repository.step(job.id, JobStatus.DONE, "", 1002.0, **kept).executable == job.id
    with pytest.raises(
        Forbidden, match=r"uploads and results take 2\.0 of the 1 MB .*, and its result takes more; del"
    ):
        repository.submit(cora, model, JobRequest(minutes=1.0), 1003.0)
    assert repository.submit(cora, model, JobRequest(minutes=1.0), 1003.0, key="1") == (
        repository.get(cora, jobs[1].id),
        False,
    )
    repository.remove_files(jobs[0], 1004.0)
    repository.submit(cora, model, JobRequest(minutes=1.0), 1005.0)  # all is used up, and no more


def test_minutes_of_yesterday_do_not_count(repository: JobRepository, database: Database, model: int) -> None:
    cora = visitor(database, "cora", quota=Quota(minutes=10.0))
    job, _ = repository.submit(cora, model, JobRequest(minutes=9.0), 1000.0)
    repository.step(job.id, JobStatus.CHECKING, "", 1000.0)
    repository.step(job.id, JobStatus.CANCELLED, "", 1000.0 + 9 * 60)
    with pytest.raises(Forbidden):
        repository.submit(cora, model, JobRequest(minutes=9.0), 2000.0)
    repository.submit(cora, model, JobRequest(minutes=9.0), 1000.0 + 9 * 60 + DAY)


def test_a_job_counts_for_no_more_than_its_own_minutes(
    repository: JobRepository, database: Database, model: int
) -> None:
    cora = visitor(database, "cora", quota=Quota(minutes=30.0))
    job, _ = repository.submit(cora, model, JobRequest(minutes=20.0), 1000.0)
    repository.step(job.id, JobStatus.CHECKING, "", 1000.0)
    now = 1000.0 + 2 * DAY  # the service was down
    repository.step(job.id, JobStatus.CANCELLED, "", now)
    with pytest.raises(Forbidden, match="31 minutes of tuning within a day"):
        repository.submit(cora, model, JobRequest(minutes=11.0), now)
    repository.submit(cora, model, JobRequest(minutes=10.0), now)


def test_of_a_job_only_the_minutes_of_the_last_day_count(
    repository: JobRepository, database: Database, model: int
) -> None:
    cora = visitor(database, "cora", quota=Quota(minutes=30.0))
    job, _ = repository.submit(cora, model, JobRequest(minutes=20.0), 1000.0)
    repository.step(job.id, JobStatus.CHECKING, "", 1000.0)
    repository.step(job.id, JobStatus.CANCELLED, "", 1000.0 + 20 * 60)
    now = 1000.0 + DAY + 15 * 60
    with pytest.raises(Forbidden, match="31 minutes of tuning within a day"):
        repository.submit(cora, model, JobRequest(minutes=26.0), now)
    repository.submit(cora, model, JobRequest(minutes=25.0), now)


def test_commands_wait_until_they_are_closed(repository: JobRepository, anna: Visitor, job: Job) -> None:
    repository.command(job, JobCommand.PRIORITY, 1001.0, 4.0)
    repository.command(job, JobCommand.CANCEL, 1002.0)
    first, second = repository.pending_commands()
    assert [(command.command, command.value) for command in (first, second)] == [
        (JobCommand.PRIORITY, 4.0),
        (JobCommand.CANCEL, None),
    ]
    repository.close_command(first, 1003.0)
    assert repository.get(anna, job.id).priority == 4.0
    assert repository.pending_commands() == [second]


def test_what_is_asked_twice_is_asked_once_and_is_settled_when_the_job_is_over(
    repository: JobRepository, job: Job
) -> None:
    for at in (1001.0, 1002.0):
        repository.command(job, JobCommand.CANCEL, at)
        repository.command(job, JobCommand.PRIORITY, at, at)
    assert [command.command for command in repository.pending_commands()] == [
        JobCommand.CANCEL,
        JobCommand.PRIORITY,
        JobCommand.PRIORITY,
    ]
    through(repository, job, JobStatus.CANCELLED)
    assert repository.pending_commands() == []


def test_a_job_that_an_admin_retries_stays_its_owners(
    repository: JobRepository, database: Database, anna: Visitor, job: Job
) -> None:
    failed = through(repository, job, JobStatus.FAILED)
    again, is_new = repository.retry(visitor(database, "root", Scope.ADMIN), failed, 2000.0)
    assert is_new
    assert repository.get(anna, again.id).owner == anna.user
    assert repository.retry(anna, failed, 2001.0) == (again, False)


def test_a_retry_counts_against_its_owners_quota(repository: JobRepository, database: Database, model: int) -> None:
    cora = visitor(database, "cora", quota=Quota(jobs=1))
    failed = through(repository, repository.submit(cora, model, JobRequest(), 1000.0)[0], JobStatus.FAILED)
    repository.submit(cora, model, JobRequest(), 1001.0)
    with pytest.raises(Forbidden):
        repository.retry(visitor(database, "root", Scope.ADMIN), failed, 2000.0)


def test_commands_that_make_no_sense_are_refused(repository: JobRepository, job: Job) -> None:
    through(repository, job, JobStatus.CANCELLED)
    with pytest.raises(OrderError, match=f"job {job.id} is cancelled: there is nothing to cancel"):
        repository.command(job, JobCommand.CANCEL, 1001.0)


def test_progress_is_only_shown(repository: JobRepository, anna: Visitor, job: Job) -> None:
    repository.progressed(job.id, ProgressReport("profile", trials=3))
    found = repository.get(anna, job.id)
    assert msgspec.structs.replace(found, progress=None) == job
    assert msgspec.json.decode(found.progress or "", type=ProgressReport).trials == 3


def test_progress_tells_the_gain(repository: JobRepository, anna: Visitor, job: Job) -> None:
    fastest = FastestBaseline("onnxruntime", 2.0, 0.75)
    repository.progressed(job.id, ProgressReport("profile", best_ms=1.5, fastest_baseline=fastest))
    found = repository.get(anna, job.id)
    assert (found.latency_ms, found.fastest_baseline) == (1.5, fastest)


def test_a_result_tells_the_ratio_of_its_rounds(repository: JobRepository, anna: Visitor, job: Job) -> None:
    repository.progressed(job.id, ProgressReport("profile", best_ms=1.5))
    fastest = FastestBaseline("onnxruntime", 2.0, 0.7, 0.6, 1.1)
    repository.step(job.id, JobStatus.CHECKING, "", 1000.0, **gain_columns(1.5, fastest))
    assert repository.get(anna, job.id).fastest_baseline == fastest
    repository.progressed(
        job.id, ProgressReport("profile", best_ms=1.5, fastest_baseline=FastestBaseline("torch", 3.0))
    )
    assert repository.get(anna, job.id).fastest_baseline == FastestBaseline("torch", 3.0, 0.5), "an estimate has none"


def test_files_of_jobs_are_known(repository: JobRepository, job: Job) -> None:
    repository.step(job.id, JobStatus.CHECKING, "", 1.0, log="1" * 64)
    repository.step(job.id, JobStatus.FAILED, "", 2.0, report="2" * 64)
    assert repository.files() == {"1" * 64, "2" * 64}


def test_all_runs_of_what_others_keep_to_themselves_are_hidden(
    database: Database, repository: JobRepository, anna: Visitor, job: Job, model: int
) -> None:
    """An upgrade gives a job that is under way another run; what the first has measured stays private."""
    boris = visitor(database, "boris")
    shared = repository.submit(anna, model, JobRequest(minutes=5.0, share=True), 1000.0)[0]
    for number in (1, 1, 2):
        repository.step(job.id, JobStatus.CHECKING, "", 1000.0, run_id=f"private {number}")
    repository.step(shared.id, JobStatus.CHECKING, "", 1000.0, run_id="shared")
    assert repository.hidden_from(boris.user) == {"private 1", "private 2"}
    assert repository.hidden_from(anna.user) == frozenset()


def done(repository: JobRepository, visitor: Visitor, model: int, at: float, **files: str) -> Job:
    job, _ = repository.submit(visitor, model, JobRequest(), at)
    repository.step(job.id, JobStatus.CHECKING, "", at)
    return repository.step(job.id, JobStatus.DONE, "converged", at, latency_ms=1.5, **files)


def test_a_job_that_has_ended_forgets_its_files_but_not_its_report(
    repository: JobRepository, anna: Visitor, model: int, job: Job
) -> None:
    files = {"executable": "1" * 64, "log": "2" * 64, "report": "3" * 64}
    first, second = (done(repository, anna, model, at, **files) for at in (1000.0, 1001.0))
    assert first.has_files
    assert repository.remove_files(first, 2000.0)
    assert not repository.remove_files(first, 3000.0)
    found = repository.get(anna, first.id)
    assert found == msgspec.structs.replace(first, executable=None, log=None, files_removed=2000.0)
    assert not found.has_files
    assert repository.files() == set(files.values())  # of the second
    assert repository.get(anna, second.id) == second
    assert [one.id for one in repository.like(job)] == [second.id]
    repository.remove_files(second, 2000.0)
    assert repository.files() == {"3" * 64}


def test_files_of_a_job_under_way_stay(repository: JobRepository, job: Job) -> None:
    with pytest.raises(OrderError, match=f"job {job.id} is queued; its files can be deleted when it has ended"):
        repository.remove_files(job, 2000.0)


def test_files_of_jobs_that_ended_long_ago_expire(
    repository: JobRepository, anna: Visitor, model: int, job: Job
) -> None:
    old, late, new = (done(repository, anna, model, at, executable="1" * 64) for at in (1000.0, 2000.0, 2001.0))
    going = repository.step(job.id, JobStatus.CHECKING, "", 1000.0, log="2" * 64)
    failed = through(repository, repository.submit(anna, model, JobRequest(), 900.0)[0], JobStatus.FAILED)
    assert sorted(repository.expire_files(2000.0, 5000.0)) == sorted([old.id, late.id])
    assert repository.expire_files(2000.0, 6000.0) == []
    removed = {each.id: repository.get(anna, each.id).files_removed for each in (old, late, new, going, failed)}
    assert removed == {old.id: 5000.0, late.id: 5000.0, new.id: None, going.id: None, failed.id: None}


def test_when_the_minutes_of_a_day_are_free_again() -> None:
    tuned = [(2000.0, 20.0), (1000.0, 10.0)]
    assert seconds_until_free(tuned, 20.0, 900.0) == 100.0
    assert seconds_until_free(tuned, 0.0, 900.0) == 1100.0
    assert seconds_until_free(tuned, -1.0, 900.0) == 60.0  # others that are not over take the rest
