"""The job whose stage ended last goes first, with all of its stages."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from kintune.core.stage import Demand, Stage
from kintune.scheduler.events import JobAdded, ResourceJoined, StageDone, StageReady, Start
from kintune.scheduler.policies import Greedy
from kintune.scheduler.resources import Host
from kintune.scheduler.scheduler import Scheduler

JOBS = "abc"


@settings(max_examples=50)
@given(
    stages=st.lists(st.tuples(st.sampled_from(JOBS), st.sampled_from("xyz")), min_size=1, max_size=24),
    priorities=st.lists(st.sampled_from([1.0, 2.0]), min_size=3, max_size=3),
)
def test_of_all_that_waits_the_job_that_moved_last_goes_on(
    stages: list[tuple[str, str]], priorities: list[float]
) -> None:
    """On a host of one core: each end decides which stage is next, whenever that one was submitted."""
    scheduler = Scheduler(Greedy())
    scheduler.handle(ResourceJoined(0, Host("h", cores=1, memory_mb=10)))
    for job, priority in zip(JOBS, priorities, strict=True):
        scheduler.handle(JobAdded(0, job, priority=priority))
    demand = Demand(cores=1)
    waiting: list[Stage] = []
    started: list[Start] = []
    for number, (job, kind) in enumerate(stages):
        waiting.append(Stage(str(number), job, kind, demand))
        started += [each for each in scheduler.handle(StageReady(0, waiting[-1])) if isinstance(each, Start)]
    assert [each.stage for each in started] == ["0"]
    ended: list[str] = []
    for now in range(len(stages)):
        (running,) = started
        done = next(each for each in waiting if each.id == running.stage)
        waiting.remove(done)
        ended.append(done.job)
        decisions = scheduler.handle(StageDone(now, running.job, running.stage, running.attempt))
        started = [each for each in decisions if isinstance(each, Start)]
        heads = {(each.job, each.kind): each for each in reversed(waiting)}.values()  # the first of each kind
        ranks = {
            each.id: (
                -max((n for n, job in enumerate(ended, 1) if job == each.job), default=0),
                -priorities[JOBS.index(each.job)],
                JOBS.index(each.job),
            )
            for each in heads
        }
        if not ranks:
            assert not started
            return
        (following,) = started
        assert ranks[following.stage] == min(ranks.values())
