"""The least time that any schedule could take."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from kintune.scheduler.resources import Host, Resource
from kintune.scheduler.stage import Demand
from kintune.simulate.plan import PlannedJob

__all__ = ["Bound", "lower_bound"]


class Bound(msgspec.Struct, frozen=True):
    """No schedule ends before `seconds`, because of `what`: a kind of resource, or a job's own longest path."""

    seconds: float
    what: str


def lower_bound(jobs: Sequence[PlannedJob], resources: Sequence[Resource], *, chains: bool = True) -> Bound:
    """The larger of two bounds: the longest job alone (unless `chains` are left out), and the busiest kind of resource.

    A kind of resource is busy for all work that needs it over how many there are, and cannot begin before the first
    stage that needs it could be reached, nor end before what follows the last one is done.
    """
    bounds = [Bound(job.at + job.path_s(), f"the longest chain of {job.id}") for job in jobs] if chains else []
    capacity: dict[str | None, int] = {}
    for resource in resources:
        kind, many = (None, resource.cores) if isinstance(resource, Host) else (resource.type, 1)
        capacity[kind] = capacity.get(kind, 0) + many
    for kind, many in capacity.items():
        work = sum(_amount(p.stage.demand, kind) * p.seconds for job in jobs for p in job.stages)
        if work:
            heads, tails = zip(*(_edges(job, kind) for job in jobs if _uses(job, kind)), strict=True)
            seconds = min(heads) + work / many + min(tails)
            bounds.append(Bound(seconds, "the hosts' cores" if kind is None else f"devices of type {kind}"))
    return max(bounds, key=lambda bound: bound.seconds, default=Bound(0.0, "nothing to do"))


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
