from __future__ import annotations

import msgspec
import pytest

from kintune.errors import InputError, OrderError
from kintune.records.database import Database
from kintune.service.access import Forbidden, NotFound, Quota, Scope, Visitor
from kintune.service.job_repository import Job, JobRepository
from kintune.service.job_request import JobRequest
from kintune.service.job_status import JobCommand, JobStatus
from kintune.service.model_store import ModelStore
from tests.support.guests import visitor

DAY = 86400.0


@pytest.fixture
def docket(database: Database) -> JobRepository:
    return JobRepository(database)


@pytest.fixture
def model(database: Database, anna: Visitor) -> int:
    return ModelStore(database).add(anna.user, "net.onnx", "0" * 64, 5, 100.0, None).id


@pytest.fixture
def job(docket: JobRepository, anna: Visitor, model: int) -> Job:
    return docket.submit(anna, model, JobRequest(minutes=5.0), 1000.0)[0]


def through(docket: JobRepository, job: Job, *states: JobStatus) -> Job:
    for number, state in enumerate(states, start=1):
        job = docket.step(job.id, state, f"because {number}", 1000.0 + number)
    return job


def test_a_job_begins_in_the_queue(docket: JobRepository, anna: Visitor, job: Job) -> None:
    found = docket.get(anna, job.id)
    assert found == job
    assert (found.state, found.wanted.minutes, found.started, found.ended) == (JobStatus.QUEUED, 5.0, None, None)
    assert [step.state for step in docket.steps(job)] == [JobStatus.QUEUED]
    assert docket.under_way() == [job]


def test_every_step_has_its_time_and_reason(docket: JobRepository, job: Job) -> None:
    done = through(docket, job, JobStatus.CHECKING, JobStatus.TUNING, JobStatus.PACKAGING, JobStatus.DONE)
    assert (done.started, done.ended, done.reason) == (1001.0, 1004.0, "because 4")
    assert [(step.state, step.at, step.reason) for step in docket.steps(job)][1:] == [
        (JobStatus.CHECKING, 1001.0, "because 1"),
        (JobStatus.TUNING, 1002.0, "because 2"),
        (JobStatus.PACKAGING, 1003.0, "because 3"),
        (JobStatus.DONE, 1004.0, "because 4"),
    ]
    assert docket.under_way() == []


def test_a_step_that_cannot_be_changes_nothing(docket: JobRepository, anna: Visitor, job: Job) -> None:
    with pytest.raises(OrderError):
        docket.step(job.id, JobStatus.PACKAGING, "", 1001.0)
    assert docket.get(anna, job.id).state is JobStatus.QUEUED
    assert len(docket.steps(job)) == 1


def test_a_step_taken_twice_is_one_step(docket: JobRepository, job: Job) -> None:
    through(docket, job, JobStatus.CHECKING, JobStatus.CHECKING)
    assert [step.state for step in docket.steps(job)] == [JobStatus.QUEUED, JobStatus.CHECKING]


def test_the_same_request_again_is_the_same_job(
    docket: JobRepository, anna: Visitor, boris: Visitor, model: int
) -> None:
    first, is_new = docket.submit(anna, model, JobRequest(), 1000.0, key="k")
    again, is_new_again = docket.submit(anna, model, JobRequest(), 1001.0, key="k")
    assert (first, is_new, is_new_again) == (again, True, False)
    with pytest.raises(InputError, match=f"used for another job, {first.id}"):
        docket.submit(anna, model, JobRequest(seed=1), 1002.0, key="k")
    others, is_new = docket.submit(boris, model, JobRequest(), 1000.0, key="k")
    assert is_new
    assert others.id != first.id


def test_others_jobs_do_not_exist(docket: JobRepository, database: Database, boris: Visitor, job: Job) -> None:
    with pytest.raises(NotFound, match=f"there is no job {job.id}"):
        docket.get(boris, job.id)
    with pytest.raises(NotFound, match="there is no job nothing"):
        docket.get(boris, "nothing")
    assert docket.page(boris) == []
    admin = visitor(database, "root", Scope.ADMIN)
    assert docket.get(admin, job.id) == job
    assert docket.page(admin) == []
    assert docket.page(admin, everybody=True) == [job]


def test_lists_are_read_on_where_they_ended(docket: JobRepository, anna: Visitor, model: int) -> None:
    jobs = [docket.submit(anna, model, JobRequest(), 1000.0 + n // 2)[0] for n in range(7)]
    seen: list[Job] = []
    before = None
    while page := docket.page(anna, before=before, limit=3):
        seen += page
        before = (page[-1].created, page[-1].id)
    assert sorted(each.id for each in seen) == sorted(each.id for each in jobs)
    assert [each.created for each in seen] == sorted((each.created for each in seen), reverse=True)


def test_lists_of_some_states(docket: JobRepository, anna: Visitor, model: int, job: Job) -> None:
    other, _ = docket.submit(anna, model, JobRequest(), 1000.0)
    through(docket, other, JobStatus.CANCELLED)
    assert docket.page(anna, states=frozenset({JobStatus.QUEUED})) == [job]
    assert docket.counts() == {JobStatus.QUEUED: 1, JobStatus.CANCELLED: 1}


def test_quotas_hold(docket: JobRepository, database: Database, model: int) -> None:
    cora = visitor(database, "cora", quota=Quota(jobs=2, minutes=20.0))
    first, _ = docket.submit(cora, model, JobRequest(minutes=5.0), 1000.0)
    docket.submit(cora, model, JobRequest(minutes=5.0), 1000.0)
    with pytest.raises(Forbidden, match="2 of your jobs are not over"):
        docket.submit(cora, model, JobRequest(), 1000.0)
    through(docket, first, JobStatus.CANCELLED)
    with pytest.raises(Forbidden, match="26 minutes of tuning within a day; you may have 20"):
        docket.submit(cora, model, JobRequest(minutes=21.0), 1002.0)
    docket.submit(cora, model, JobRequest(minutes=2.0), 1002.0)


def test_minutes_of_yesterday_do_not_count(docket: JobRepository, database: Database, model: int) -> None:
    cora = visitor(database, "cora", quota=Quota(minutes=10.0))
    job, _ = docket.submit(cora, model, JobRequest(minutes=9.0), 1000.0)
    docket.step(job.id, JobStatus.CHECKING, "", 1000.0)
    docket.step(job.id, JobStatus.CANCELLED, "", 1000.0 + 9 * 60)
    with pytest.raises(Forbidden):
        docket.submit(cora, model, JobRequest(minutes=9.0), 2000.0)
    docket.submit(cora, model, JobRequest(minutes=9.0), 1000.0 + 9 * 60 + DAY)


def test_wishes_wait_until_they_are_granted(docket: JobRepository, anna: Visitor, job: Job) -> None:
    docket.wish(job, JobCommand.PRIORITY, 1001.0, 4.0)
    docket.wish(job, JobCommand.CANCEL, 1002.0)
    first, second = docket.wishes()
    assert [(wish.wish, wish.value) for wish in (first, second)] == [
        (JobCommand.PRIORITY, 4.0),
        (JobCommand.CANCEL, None),
    ]
    docket.granted(first, 1003.0)
    assert docket.get(anna, job.id).priority == 4.0
    assert docket.wishes() == [second]


def test_what_is_asked_twice_is_asked_once_and_is_settled_when_the_job_is_over(docket: JobRepository, job: Job) -> None:
    for at in (1001.0, 1002.0):
        docket.wish(job, JobCommand.CANCEL, at)
        docket.wish(job, JobCommand.PRIORITY, at, at)
    assert [wish.wish for wish in docket.wishes()] == [JobCommand.CANCEL, JobCommand.PRIORITY, JobCommand.PRIORITY]
    through(docket, job, JobStatus.CANCELLED)
    assert docket.wishes() == []


def test_a_job_that_an_admin_retries_stays_its_owners(
    docket: JobRepository, database: Database, anna: Visitor, job: Job
) -> None:
    failed = through(docket, job, JobStatus.FAILED)
    again, is_new = docket.retry(visitor(database, "root", Scope.ADMIN), failed, 2000.0)
    assert is_new
    assert docket.get(anna, again.id).owner == anna.user
    assert docket.retry(anna, failed, 2001.0) == (again, False)


def test_a_retry_counts_against_its_owners_quota(docket: JobRepository, database: Database, model: int) -> None:
    cora = visitor(database, "cora", quota=Quota(jobs=1))
    failed = through(docket, docket.submit(cora, model, JobRequest(), 1000.0)[0], JobStatus.FAILED)
    docket.submit(cora, model, JobRequest(), 1001.0)
    with pytest.raises(Forbidden):
        docket.retry(visitor(database, "root", Scope.ADMIN), failed, 2000.0)


def test_wishes_that_make_no_sense_are_refused(docket: JobRepository, job: Job) -> None:
    through(docket, job, JobStatus.CANCELLED)
    with pytest.raises(OrderError, match=f"job {job.id} is cancelled: there is nothing to cancel"):
        docket.wish(job, JobCommand.CANCEL, 1001.0)


def test_progress_is_only_shown(docket: JobRepository, anna: Visitor, job: Job) -> None:
    docket.progressed(job.id, '{"trials":3}')
    found = docket.get(anna, job.id)
    assert msgspec.structs.replace(found, progress=None) == job
    assert found.progress == '{"trials":3}'


def test_files_of_jobs_are_known(docket: JobRepository, job: Job) -> None:
    docket.step(job.id, JobStatus.CHECKING, "", 1.0, log="1" * 64)
    docket.step(job.id, JobStatus.FAILED, "", 2.0, report="2" * 64)
    assert docket.files() == {"1" * 64, "2" * 64}
