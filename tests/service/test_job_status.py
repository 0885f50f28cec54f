from __future__ import annotations

import itertools

import pytest

from kintune.errors import OrderError
from kintune.service.job_status import ENDS, JobCommand, JobStatus, after, may_command


def test_a_job_goes_its_way() -> None:
    way = [JobStatus.QUEUED, JobStatus.CHECKING, JobStatus.TUNING, JobStatus.PACKAGING, JobStatus.DONE]
    for before, now in itertools.pairwise(way):
        assert after(before, now) is now
    assert after(JobStatus.CHECKING, JobStatus.DONE) is JobStatus.DONE


@pytest.mark.parametrize("end", sorted(ENDS))
@pytest.mark.parametrize("state", list(JobStatus))
def test_what_is_over_stays_over(end: JobStatus, state: JobStatus) -> None:
    if state is end:
        assert after(end, state) is end
    else:
        with pytest.raises(OrderError, match=f"a job that is {end.value} cannot become {state.value}"):
            after(end, state)


@pytest.mark.parametrize("state", [JobStatus.QUEUED, JobStatus.CHECKING, JobStatus.TUNING, JobStatus.PACKAGING])
def test_whoever_is_under_way_can_fail_be_cancelled_or_begin_again(state: JobStatus) -> None:
    for now in (JobStatus.FAILED, JobStatus.CANCELLED, JobStatus.CHECKING):
        assert after(state, now) is now


@pytest.mark.parametrize(
    ("before", "now"), [(JobStatus.QUEUED, JobStatus.TUNING), (JobStatus.PACKAGING, JobStatus.TUNING)]
)
def test_no_step_is_left_out_or_taken_back(before: JobStatus, now: JobStatus) -> None:
    with pytest.raises(OrderError):
        after(before, now)


def test_wishes_make_sense_while_they_can_be_granted() -> None:
    assert may_command(JobStatus.QUEUED, JobCommand.CANCEL)
    assert may_command(JobStatus.TUNING, JobCommand.FINISH)
    assert not may_command(JobStatus.QUEUED, JobCommand.FINISH)
    assert not any(may_command(end, command) for end in ENDS for command in JobCommand)
