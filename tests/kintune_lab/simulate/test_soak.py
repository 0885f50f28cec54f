"""Whole jobs under everything that can go wrong, every decision checked by a witness."""

from __future__ import annotations

import gc
import tracemalloc

import pytest

from kintune.core.stage import Demand, Stage
from kintune.scheduler.events import JobAdded, JobEnded, ResourceJoined, StageDone, StageReady, Start
from kintune.scheduler.invariants import Auditor
from kintune.scheduler.policies import POLICIES, policy
from kintune.scheduler.resources import Device, Host
from kintune.scheduler.scheduler import RetryLimits, Scheduler
from kintune_lab.simulate.entries import Mix
from kintune_lab.simulate.faults import Faults
from kintune_lab.simulate.history import Ending, ScheduleHistory
from kintune_lab.simulate.plan import MockJob, PlannedJob
from kintune_lab.simulate.simulator import Simulator

NAMES = sorted(POLICIES)


def soak(seed: int) -> ScheduleHistory:
    """A small park with a fault every few seconds, under one of the policies."""
    name = NAMES[seed % len(NAMES)]
    mix = Mix(
        jobs=5, hosts=2, cores=2 + seed % 3, types=(2, 1), rounds=(3.0, 0.7), arrive_s=60.0, priorities=(1.0, 5.0),
        inflight=1 + seed % 2,
    )  # fmt: skip
    faults = Faults(seed, failing=0.1, cancelled=0.2, outages_each=30.0, outage_s=8.0, span_s=300.0)
    auditor = Auditor(POLICIES[name].overbooks, POLICIES[name].starvation_free)
    machine = Scheduler(policy(name), RetryLimits(bundling=seed % 4 > 1))
    return Simulator(machine, mix.resources(), mix.draw(seed), faults=faults, observe=auditor.observe).run()


@pytest.mark.parametrize("seed", range(24))
def test_every_job_ends_whatever_goes_wrong(seed: int) -> None:
    assert len(soak(seed).jobs) == 5


@pytest.mark.slow
def test_every_job_ends_with_a_thousand_seeds() -> None:
    endings = [job.ending for seed in range(1000) for job in soak(seed).jobs]
    assert len(endings) == 5000
    assert set(endings) == set(Ending)


JOB = MockJob(
    device="gpu", rounds=2, select_s=2, build_s=3, profile_s=5, update_s=1, start_s=2, end_s=2, prove_s=4
).plan("a")
MIDDLES = [sum(p.seconds for p in JOB.stages[:n]) + stage.seconds / 2 for n, stage in enumerate(JOB.stages)]


class CancelledAt(Faults, frozen=True):
    """Somebody cancels job `a` at that time."""

    when: float = 0.0

    def cancelled_after(self, job: PlannedJob) -> float | None:
        return self.when if job.id == "a" else None


@pytest.mark.parametrize("bundling", [False, True])
@pytest.mark.parametrize("when", MIDDLES, ids=[planned.stage.id for planned in JOB.stages])
def test_a_job_can_be_cancelled_in_every_stage(when: float, bundling: bool) -> None:
    other = MockJob(device="gpu", rounds=2, build_s=1, profile_s=1).plan("b", priority=0.01)
    for name in ("sequential", "greedy", "fair", "predictive"):
        auditor = Auditor()
        machine = Scheduler(policy(name), RetryLimits(bundling=bundling))
        resources = (Host("h", 1, 0), Device("gpu", "gpu"))
        history = Simulator(
            machine, resources, (JOB, other), faults=CancelledAt(when=when), observe=auditor.observe
        ).run()
        endings = {job.job: job.ending for job in history.jobs}
        assert endings == {"a": Ending.CANCELLED, "b": Ending.DONE}, name


def test_three_failures_are_retried_after_one_two_and_four_seconds() -> None:
    class Thrice(Faults, frozen=True):
        def fails(self, stage: object, attempt: int) -> bool:
            return attempt < 3 and getattr(stage, "id", "") == "build-0"

    auditor = Auditor()
    one = MockJob(device="gpu", rounds=1, build_s=4, profile_s=1).plan("a")
    history = Simulator(
        Scheduler(policy("fair")), (Host("h", 1, 0), Device("gpu", "gpu")), (one,), faults=Thrice(),
        observe=auditor.observe,
    ).run()  # fmt: skip
    builds = [(span.start, span.end) for span in history.spans if span.kind == "build"]
    assert builds == [(0.0, 2.0), (3.0, 5.0), (7.0, 9.0), (13.0, 17.0)]
    assert history.jobs[0].ending is Ending.DONE


@pytest.mark.parametrize("name", NAMES)
def test_a_machine_that_has_seen_many_jobs_is_no_larger(name: str) -> None:
    machine = Scheduler(policy(name))
    machine.handle(ResourceJoined(0.0, Host("h", 2, 0)))
    machine.handle(ResourceJoined(0.0, Device("gpu", "gpu")))

    def jobs(first: int, last: int) -> None:
        for number in range(first, last):
            now, job = float(number), f"job{number}"
            machine.handle(JobAdded(now, job))
            for kind, demand in (("build", Demand(cores=1)), ("profile", Demand(device="gpu", exclusive=True))):
                (start,) = machine.handle(StageReady(now, Stage(f"{kind}-0", job, kind, demand, duration_key=kind)))
                assert isinstance(start, Start)
                machine.handle(StageDone(now, job, start.stage, start.attempt))
            machine.handle(JobEnded(now, job))

    jobs(0, 200)
    tracemalloc.start()
    try:
        jobs(200, 400)
        gc.collect()
        before, _ = tracemalloc.get_traced_memory()
        jobs(400, 2400)
        gc.collect()
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert after - before < 100_000  # bytes; a job that is never forgotten would leave some 2 kB
