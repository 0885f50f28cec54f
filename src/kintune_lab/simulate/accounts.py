"""What a schedule was worth: completion, use of resources, waiting, fairness."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

import msgspec

from kintune.scheduler.resources import Host, Resource
from kintune_lab.simulate.bound import MakespanBound, lower_bound
from kintune_lab.simulate.faults import Outage
from kintune_lab.simulate.plan import PlannedJob
from kintune_lab.simulate.span import Ending, ScheduleHistory

__all__ = ["Accounts", "accounts_of"]


class Accounts(msgspec.Struct, frozen=True):
    """A schedule in figures; seconds unless told otherwise.

    `makespan_s` lasts until the last job is over; `mean_completion_s` is from a job's arrival to its end, on average.
    `over_bound` is the makespan over the least that any schedule could take.  `use` is the share of the makespan for
    which each resource is busy, of a host's cores, on average; `kinds` tells hosts from devices.  `waiting_s` is how
    long stages that could have run waited, by the kind of resource that they waited for; `worst_wait_s` the longest of
    these waits.  A job's slowdown is the time it took over what it would have taken alone; `worst_share` is the largest
    slowdown over what an equal sharing of everything by weight would have made of it (1 or less: nobody got less than
    that), and `fairness` Jain's index of the weighted speeds: 1 when all are slowed alike.
    """

    makespan_s: float
    mean_completion_s: float
    bound_s: float
    bound_by: str
    over_bound: float
    use: dict[str, float]
    kinds: dict[str, str]
    waiting_s: dict[str, float]
    worst_wait_s: float
    worst_share: float
    fairness: float
    endings: dict[str, int]
    attempts: int
    decisions: int


def accounts_of(
    story: ScheduleHistory,
    jobs: Sequence[PlannedJob],
    resources: Sequence[Resource],
    *,
    outages: Sequence[Outage] = (),
    chains: bool = True,
) -> Accounts:
    """The figures of one schedule; failed and cancelled jobs count for what they used, but not for speed.

    The bound allows for `outages`, and takes every job to be done.  Without `chains` the bound is that of the resources
    alone: what came after what in a recording may be of its policy.
    """
    makespan = max((job.end for job in story.jobs), default=0.0)
    bound: MakespanBound = lower_bound(jobs, resources, outages=outages, chains=chains)
    done = [job for job in story.jobs if job.ending is Ending.DONE]
    weights = sum(job.priority for job in story.jobs)
    slowdowns = [((job.end - job.since) / job.path_s, job.priority) for job in done if job.path_s > 0]
    speeds = [1 / (slowdown * weight) for slowdown, weight in slowdowns if slowdown > 0]
    waits: dict[str, float] = {}
    worst = 0.0
    for span in story.spans:
        waited = span.start - span.ready
        kind = "hosts" if span.placement.device is None else "devices"
        waits[kind] = waits.get(kind, 0.0) + waited
        worst = max(worst, waited)
    endings: dict[str, int] = {}
    for job in story.jobs:
        endings[job.ending.value] = endings.get(job.ending.value, 0) + 1
    return Accounts(
        makespan_s=makespan,
        mean_completion_s=statistics.fmean(job.end - job.since for job in done) if done else 0.0,
        bound_s=bound.seconds,
        bound_by=bound.what,
        over_bound=makespan / bound.seconds if bound.seconds else 1.0,
        use=_use(story, resources, makespan),
        kinds={r.id: "host" if isinstance(r, Host) else "device" for r in resources},
        waiting_s=waits,
        worst_wait_s=worst,
        worst_share=max((slowdown * weight / weights for slowdown, weight in slowdowns), default=0.0),
        fairness=sum(speeds) ** 2 / (len(speeds) * sum(s * s for s in speeds)) if speeds else 1.0,
        endings=endings,
        attempts=len(story.spans),
        decisions=story.decisions,
    )


def _use(story: ScheduleHistory, resources: Sequence[Resource], makespan: float) -> dict[str, float]:
    """Each resource's busy share; above 1 where a policy has booked more than there is."""
    busy = {resource.id: 0.0 for resource in resources}
    room = {resource.id: resource.cores if isinstance(resource, Host) else 1 for resource in resources}
    for span in story.spans:
        there = span.placement
        if there.host is not None:
            busy[there.host] += (span.end - span.start) * there.cores
        if there.device is not None:
            busy[there.device] += span.end - span.start
    return {id: seconds / (makespan * max(1, room[id])) if makespan else 0.0 for id, seconds in busy.items()}
