"""The least time that any schedule could take."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import msgspec

from kintune.core.stage import Demand
from kintune.scheduler.resources import Host, Resource
from kintune_lab.simulate.faults import Outage
from kintune_lab.simulate.plan import PlannedJob

__all__ = ["MakespanBound", "lower_bound"]


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
    nobody during its `outages`.  Attempts that fail are not counted: a schedule may be lucky with them.
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
    """When so much work that begins now is done, by a capacity that changes by so much at these times."""
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
