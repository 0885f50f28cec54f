"""The waiting stages of a job are in order of arrival, whatever has come and gone."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kintune.core.stage import Demand, Stage
from kintune.scheduler.job_state import JobHistory, ScheduledJob, StageState


def state(number: int) -> StageState:
    stage = Stage(str(number), "j", "a kind", Demand(cores=1))
    return StageState(stage, ("j", stage.id), number, 0, 0)


@given(st.permutations(range(7)), st.lists(st.integers(0, 6)))
def test_stages_wait_in_order_of_arrival(order: list[int], gone: list[int]) -> None:
    job, states = ScheduledJob("j", 1.0, 0, JobHistory(3)), [state(number) for number in range(7)]
    job.dequeue(states[0])
    for number in order:
        job.enqueue(states[number])
    for number in gone:
        job.dequeue(states[number])
    assert [each.seq for each in job.waiting["a kind"]] == sorted(set(range(7)) - set(gone))
