from __future__ import annotations

import itertools
from collections.abc import Sequence

import msgspec
import pytest

from kintune.errors import SchedulerError
from kintune.scheduler.events import Decision, Event, JobExpects, RetryAt, RetryDue, StageReady
from kintune.scheduler.invariants import Auditor
from kintune.scheduler.policies import POLICIES, policy
from kintune.scheduler.resources import Device, Host, Resource
from kintune.scheduler.scheduler import RetryLimits, Scheduler
from kintune_lab.simulate.entries import Mix
from kintune_lab.simulate.faults import Faults, Outage
from kintune_lab.simulate.history import Ending, ScheduleHistory
from kintune_lab.simulate.plan import MockJob, PlannedJob
from kintune_lab.simulate.simulator import Simulator

HOST = Host("host", 1, 1000)
GPU = Device("gpu", "gpu")
JOB = MockJob(device="gpu", rounds=3, select_s=2, build_s=3, profile_s=5, update_s=1)


def played(name: str, jobs: list[PlannedJob], resources: list[Resource], **more: object) -> ScheduleHistory:
    bundling = bool(more.pop("bundling", False))
    machine = Scheduler(policy(name), RetryLimits(bundling=bundling))
    auditor = Auditor(POLICIES[name].overbooks, POLICIES[name].starvation_free)
    return Simulator(machine, resources, jobs, observe=auditor.observe, **more).run()  # type: ignore[arg-type]


def test_a_job_alone_takes_as_long_as_its_stages() -> None:
    (job,) = played("greedy", [JOB.plan("a")], [HOST, GPU]).jobs
    assert (job.end, job.ending) == (33.0, Ending.DONE)


@pytest.mark.parametrize("name", ["greedy", "fair", "predictive"])
def test_two_jobs_interleave(name: str) -> None:
    history = played(name, [JOB.plan("a"), JOB.plan("b")], [HOST, GPU])
    assert max(job.end for job in history.jobs) < 2 * 33 * 0.65


def test_sequential_does_one_job_after_the_other() -> None:
    history = played("sequential", [JOB.plan("a"), JOB.plan("b")], [HOST, GPU])
    assert [job.end for job in history.jobs] == [33.0, 66.0]


def test_jobs_in_step_disturb_each_other() -> None:
    alone = MockJob(device="gpu", rounds=1, build_s=4, profile_s=6, update_s=10)
    history = played("synchronous", [alone.plan("a"), alone.plan("b")], [HOST, GPU], interference={"update": 1.5})
    assert [job.end for job in history.jobs] == [25.0, 25.0]


def test_who_is_left_alone_goes_on_at_full_speed() -> None:
    short, long = MockJob(device="gpu", rounds=1, update_s=4), MockJob(device="gpu", rounds=1, update_s=10)
    history = played("uncontrolled", [short.plan("a"), long.plan("b")], [HOST, GPU], interference={"update": 2.0})
    assert [job.end for job in history.jobs] == [8.0, 14.0]


def test_a_bundle_keeps_the_host_from_update_to_build() -> None:
    jobs = [MockJob(device="gpu", rounds=2, build_s=3, profile_s=1, update_s=2).plan(id) for id in "abc"]
    loose, bundled = (played("fair", jobs, [HOST, GPU], bundling=bundling) for bundling in (False, True))

    def handed_over(history: ScheduleHistory) -> int:
        on_host = sorted((s for s in history.spans if s.placement.device is None), key=lambda s: s.start)
        pairs = itertools.pairwise(on_host)
        return sum(one.kind == "update" and one.job != two.job and two.kind == "build" for one, two in pairs)

    assert handed_over(loose) > 0
    assert all(
        two.job == one.job
        for one, two in zip(
            *(sorted((s for s in bundled.spans if not s.placement.device), key=lambda s: s.start)[n:] for n in (0, 1)),
            strict=False,
        )
        if one.kind == "update" and one.stage == "update-0"
    )


def test_rounds_in_flight_overlap() -> None:
    one = MockJob(device="gpu", rounds=10, select_s=2, build_s=3, profile_s=5)
    (alone,) = played("fair", [one.plan("a")], [HOST, GPU]).jobs
    two = MockJob(device="gpu", rounds=10, select_s=2, build_s=3, profile_s=5, inflight=2)
    (pipelined,) = played("fair", [two.plan("a")], [HOST, GPU]).jobs
    assert alone.end == 100.0
    assert pipelined.end <= 57.0  # the host needs 50 seconds, the last profile 5


@pytest.mark.parametrize("name", POLICIES)
def test_whatever_goes_wrong_every_job_ends(name: str) -> None:
    mix = Mix(jobs=6, hosts=2, types=(2, 1), rounds=(4.0, 0.5))
    faults = Faults(seed=3, failing=0.05, cancelled=0.2, outages_each=20, outage_s=5, span_s=600)
    history = played(name, mix.draw(1), mix.resources(), faults=faults)
    assert len(history.jobs) == 6
    assert {span.ending for span in history.spans} == set(Ending)
    for span in history.spans:
        if span.ending is Ending.DONE:
            assert span.end - span.start == pytest.approx(span.alone_s)


def test_a_job_that_fails_ends_no_other() -> None:
    history = played("fair", [JOB.plan(f"job{n}") for n in range(8)], [HOST, GPU], faults=Faults(seed=1, failing=0.6))
    assert {job.ending for job in history.jobs} == {Ending.FAILED, Ending.DONE}
    for job in history.jobs:
        ran = [span for span in history.spans if span.job == job.job]
        assert (ran[-1].ending is Ending.FAILED) is (job.ending is Ending.FAILED)


def test_a_stage_that_always_fails_ends_its_job() -> None:
    history = played("fair", [JOB.plan("a")], [HOST, GPU], faults=Faults(failing=1.0))
    (job,) = history.jobs
    assert job.ending is Ending.FAILED
    assert [span.start for span in history.spans] == [0.0, 2.0, 5.0, 10.0]
    assert "select-0" in job.cause


def test_the_same_seed_plays_the_same() -> None:
    mix = Mix(jobs=10, hosts=2, types=(2, 1), rounds=(3.0, 0.5))
    faults = Faults(seed=3, failing=0.05, outages_each=1, span_s=300)
    one, two = (played("predictive", mix.draw(5), mix.resources(), faults=faults) for _ in range(2))
    assert one == two


def test_a_lost_host_moves_the_processes_that_live_there() -> None:
    jobs = [JOB.plan(f"job{n}") for n in range(4)]
    faults = Faults(seed=2, outages_each=4, outage_s=10, span_s=40)
    history = played("fair", jobs, [Host("one", 2, 1000), Host("two", 2, 1000), GPU], faults=faults)
    assert {job.ending for job in history.jobs} == {Ending.DONE}
    homes = {
        job.job: {s.placement.host for s in history.spans if s.job == job.job and s.kind == "select"}
        for job in history.jobs
    }
    assert any(len(hosts) == 2 for hosts in homes.values())


def test_processes_live_where_the_fewest_do() -> None:
    """Also when the one that comes finds every core free: the first is at its device then, and will be back."""
    hosts = [Host("one", 1, 1000), Host("two", 1, 1000)]
    history = played("fair", [JOB.plan("a"), JOB.plan("b", at=7)], [*hosts, GPU])
    homes = {(span.job, span.placement.host) for span in history.spans if span.kind in ("select", "update")}
    assert homes == {("a", "one"), ("b", "two")}


def test_a_job_for_which_nothing_is_there_fails() -> None:
    history = played("fair", [JOB.plan("a")], [HOST])
    assert [job.ending for job in history.jobs] == [Ending.FAILED]
    assert "no host or device could ever run it" in history.jobs[0].cause


def test_resources_that_stay_away_are_told() -> None:
    world = Simulator(Scheduler(policy("fair"), RetryLimits(resources_may_join=True)), [HOST], [JOB.plan("a")])
    with pytest.raises(SchedulerError, match="stands still"):
        world.run()


class Procrastinator(Scheduler):
    """Does everything at once, later."""

    def handle(self, event: Event) -> list[Decision]:
        match event:
            case StageReady():
                return [RetryAt(event.stage.id, event.stage.job, 1, event.now, "later")]
            case RetryDue():
                return [RetryAt(event.stage, event.job, event.attempt, event.now, "later")]
        return []


def test_a_schedule_that_goes_round_in_circles_is_told_from_one_that_stands_still() -> None:
    with pytest.raises(SchedulerError, match=r"goes round in circles at 0\.0 s with unfinished jobs: a"):
        Simulator(Procrastinator(policy("fair")), [HOST, GPU], [JOB.plan("a")]).run()


@pytest.mark.parametrize("tells", [True, False])
def test_what_jobs_foretell_is_told_when_they_come(tells: bool) -> None:
    heard: list[JobExpects] = []

    def hear(event: Event, decisions: object) -> None:
        if isinstance(event, JobExpects):
            heard.append(event)

    job = msgspec.structs.replace(JOB, prove_s=9.0, foretells=("prove",)).plan("a", at=4.0, tells=tells)
    Simulator(Scheduler(policy("fair")), [HOST, GPU], [job], observe=hear).run()
    kinds = {"select": 3, "build": 3, "profile": 3, "update": 3, "prove": 1}
    ahead = {f"a/{kind}": count for kind, count in kinds.items()}
    assert heard == ([JobExpects(4.0, "a", ahead, {"a/prove": 9.0})] if tells else [])


def test_what_is_begun_again_takes_its_whole_time() -> None:
    class Twice(Faults, frozen=True):
        def outages(self, resources: Sequence[Resource]) -> list[Outage]:
            return [Outage("gpu", 4.0, 1.0), Outage("gpu", 9.0, 2.0)]

    (job,) = played("fair", [MockJob(device="gpu", rounds=1, profile_s=10).plan("a")], [GPU], faults=Twice()).jobs
    assert job.end == 21.0
