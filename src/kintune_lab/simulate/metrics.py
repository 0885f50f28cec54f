"""Metrics of a schedule (makespan, use, waiting, fairness), its lower bound, and results over all seeds."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Sequence

import msgspec

from kintune.core.stage import Demand
from kintune.scheduler.resources import Host, Resource
from kintune_lab.simulate.faults import Outage
from kintune_lab.simulate.history import Ending, ScheduleHistory
from kintune_lab.simulate.plan import PlannedJob
from kintune_lab.simulate.spec import Setup

__all__ = [
    "MakespanBound",
    "Played",
    "ScheduleMetrics",
    "Simulated",
    "SimulationOutcome",
    "lower_bound",
    "metrics_of",
    "outcome_of",
]


class ScheduleMetrics(msgspec.Struct, frozen=True):
    """A schedule in figures; seconds unless told otherwise.

    `makespan_s` lasts until the last job is over; `mean_completion_s` is from a job's arrival to its end, on average.
    `over_bound` is the makespan over the least that any schedule could take.  `use` is the share of the makespan for
    which each resource is busy, of a host's cores, on average; `kinds` tells hosts from devices.  `waiting_s` is how
    long stages that could have run waited, by the kind of resource that they waited for; `worst_wait_s` the longest of
    these waits.  A job's slowdown is the time it took over what it would have taken alone; `worst_share` is the largest
    slowdown over what sharing everything by priority would have made of it (1 or less: nobody got less than that).
    `fairness` is Jain's index of the speeds over priorities: 1 when slowdowns are inversely proportional to priorities.
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


def metrics_of(
    history: ScheduleHistory,
    jobs: Sequence[PlannedJob],
    resources: Sequence[Resource],
    *,
    outages: Sequence[Outage] = (),
    chains: bool = True,
) -> ScheduleMetrics:
    """The figures of one schedule; failed and cancelled jobs count for what they used, but not for speed.

    The bound allows for `outages`, and takes every job to be done.  Without `chains` the bound is that of the resources
    alone: what came after what in a recording may be of its policy.
    """
    makespan = max((job.end for job in history.jobs), default=0.0)
    bound: MakespanBound = lower_bound(jobs, resources, outages=outages, chains=chains)
    done = [job for job in history.jobs if job.ending is Ending.DONE]
    weights = sum(job.priority for job in history.jobs)
    slowdowns = [((job.end - job.since) / job.path_s, job.priority) for job in done if job.path_s > 0]
    speeds = [1 / (slowdown * weight) for slowdown, weight in slowdowns if slowdown > 0]
    waits: dict[str, float] = {}
    worst = 0.0
    for span in history.spans:
        waited = span.start - span.ready
        kind = "hosts" if span.placement.device is None else "devices"
        waits[kind] = waits.get(kind, 0.0) + waited
        worst = max(worst, waited)
    endings: dict[str, int] = {}
    for job in history.jobs:
        endings[job.ending.value] = endings.get(job.ending.value, 0) + 1
    return ScheduleMetrics(
        makespan_s=makespan,
        mean_completion_s=statistics.fmean(job.end - job.since for job in done) if done else 0.0,
        bound_s=bound.seconds,
        bound_by=bound.what,
        over_bound=makespan / bound.seconds if bound.seconds else 1.0,
        use=_use(history, resources, makespan),
        kinds={r.id: "host" if isinstance(r, Host) else "device" for r in resources},
        waiting_s=waits,
        worst_wait_s=worst,
        worst_share=max((slowdown * weight / weights for slowdown, weight in slowdowns), default=0.0),
        fairness=sum(speeds) ** 2 / (len(speeds) * sum(s * s for s in speeds)) if speeds else 1.0,
        endings=endings,
        attempts=len(history.spans),
        decisions=history.decisions,
    )


def _use(history: ScheduleHistory, resources: Sequence[Resource], makespan: float) -> dict[str, float]:
    """Each resource's busy share; above 1 where a policy has booked more than there is."""
    busy = {resource.id: 0.0 for resource in resources}
    room = {resource.id: resource.cores if isinstance(resource, Host) else 1 for resource in resources}
    for span in history.spans:
        there = span.placement
        if there.host is not None:
            busy[there.host] += (span.end - span.start) * there.cores
        if there.device is not None:
            busy[there.device] += span.end - span.start
    return {id: seconds / (makespan * max(1, room[id])) if makespan else 0.0 for id, seconds in busy.items()}


class MakespanBound(msgspec.Struct, frozen=True):
    """No schedule ends before `seconds`, because of `what`: a kind of resource, or a job's own longest path."""

    seconds: float
    what: str


def lower_bound(
    jobs: Sequence[PlannedJob],
    resources: Sequence[Resource],
    *,
    outages: Sequence[Outage] = (),
    chains: bool = True,
) -> MakespanBound:
    """The larger of two bounds: the longest job alone (unless `chains` are left out), and the busiest kind of resource.

    A kind of resource is busy for all work that needs it over how many there are, and cannot begin before the first
    stage that needs it could be reached, nor end before what follows the last one is done.  What is lost works for
    no stage during its `outages`.  Attempts that fail are not counted: a schedule may be lucky with them.
    """
    bounds = [MakespanBound(job.at + job.path_s(), f"the longest chain of {job.id}") for job in jobs] if chains else []
    capacity: Counter[str | None] = Counter()
    of: dict[str, tuple[str | None, int]] = {}
    for resource in resources:
        kind, many = of[resource.id] = (None, resource.cores) if isinstance(resource, Host) else (resource.type, 1)
        capacity[kind] += many
    changes: dict[str | None, list[tuple[float, int]]] = {}
    for outage in outages:
        kind, many = of[outage.resource]
        changes.setdefault(kind, []).extend([(outage.at, -many), (outage.at + outage.seconds, many)])
    for kind, many in capacity.items():
        work = sum(_amount(p.stage.demand, kind) * p.seconds for job in jobs for p in job.stages)
        if work:
            heads, tails = zip(*(_edges(job, kind) for job in jobs if _uses(job, kind)), strict=True)
            done = _worked_off(work, many, min(heads), sorted(changes.get(kind, ())))
            bounds.append(
                MakespanBound(done + min(tails), "the hosts' cores" if kind is None else f"devices of type {kind}")
            )
    return max(bounds, key=lambda bound: bound.seconds, default=MakespanBound(0.0, "nothing to do"))


def _worked_off(work: float, capacity: int, now: float, changes: Sequence[tuple[float, int]]) -> float:
    """Returns when `work` that begins at `now` is done by a capacity; `changes` are (time, change of the capacity)."""
    for when, change in changes:
        if when > now:
            done = (when - now) * capacity
            if done >= work:
                break
            work -= done
            now = when
        capacity += change
    return now + work / capacity


def _amount(demand: Demand, kind: str | None) -> int:
    return demand.cores if kind is None else int(demand.device == kind)


def _uses(job: PlannedJob, kind: str | None) -> bool:
    return any(_amount(planned.stage.demand, kind) for planned in job.stages)


def _edges(job: PlannedJob, kind: str | None) -> tuple[float, float]:
    """Seconds before the first and after the last stage of the job that needs this kind of resource."""
    ends: dict[str, float] = {}
    head = float("inf")
    for planned in job.stages:
        begins = max((ends[id] for id in planned.stage.after), default=job.at)
        ends[planned.stage.id] = begins + planned.seconds
        if _amount(planned.stage.demand, kind):
            head = min(head, begins)
    rest: dict[str, float] = {}
    tail = float("inf")
    for planned in reversed(job.stages):
        follows = rest.get(planned.stage.id, 0.0)
        if _amount(planned.stage.demand, kind):
            tail = min(tail, follows)
        for other in planned.stage.after:
            rest[other] = max(rest.get(other, 0.0), follows + planned.seconds)
    return head, tail


class Played(msgspec.Struct, frozen=True):
    """The metrics of one setup with one seed."""

    setup: str
    seed: int
    accounts: ScheduleMetrics


class SimulationOutcome(msgspec.Struct, frozen=True):
    """A setup over all seeds: medians, and the worst of each."""

    setup: str
    policy: str
    makespan_s: float
    makespan_worst_s: float
    over_bound: float
    over_bound_worst: float
    mean_completion_s: float
    hosts_use: float
    devices_use: float
    host_wait_s: float
    device_wait_s: float
    worst_wait_s: float
    worst_share: float
    fairness: float
    measured_s: float | None


class Simulated(msgspec.Struct, frozen=True):
    """The results of a simulation."""

    name: str
    description: str
    seeds: int
    outcomes: tuple[SimulationOutcome, ...]
    played: tuple[Played, ...]
    schema_version: int = 1


def outcome_of(setup: Setup, all: Sequence[ScheduleMetrics]) -> SimulationOutcome:
    """Medians and worst over all seeds."""

    def median(values: Sequence[float]) -> float:
        return statistics.median(values)

    def use(accounts: ScheduleMetrics, kind: str) -> float:
        found = [share for id, share in accounts.use.items() if accounts.kinds[id] == kind]
        return statistics.fmean(found) if found else 0.0

    return SimulationOutcome(
        setup=setup.name,
        policy=setup.policy,
        makespan_s=median([a.makespan_s for a in all]),
        makespan_worst_s=max(a.makespan_s for a in all),
        over_bound=median([a.over_bound for a in all]),
        over_bound_worst=max(a.over_bound for a in all),
        mean_completion_s=median([a.mean_completion_s for a in all]),
        hosts_use=median([use(a, "host") for a in all]),
        devices_use=median([use(a, "device") for a in all]),
        host_wait_s=median([a.waiting_s.get("hosts", 0.0) for a in all]),
        device_wait_s=median([a.waiting_s.get("devices", 0.0) for a in all]),
        worst_wait_s=max(a.worst_wait_s for a in all),
        worst_share=max(a.worst_share for a in all),
        fairness=median([a.fairness for a in all]),
        measured_s=setup.measured_s,
    )
