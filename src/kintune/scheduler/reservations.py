"""Reservations of resources for jobs that do not use them at the moment.

A placement can be *held* for the job's next stage.  Cores can be *kept* until the job submits another stage that runs
on them.
"""

from __future__ import annotations

from collections.abc import Iterable

from kintune.core.stage import Stage, StageKey
from kintune.scheduler.job_state import ScheduledJob
from kintune.scheduler.pool import ResourcePool
from kintune.scheduler.ready_stages import ReadyQueues
from kintune.scheduler.resources import Placement

__all__ = ["Reservations"]

_HELD = "(held)"  # the name of the booking for a job's next stage
_KEPT = "(kept) "  # the prefix of the names of bookings of kept cores


def _name(stage: Stage) -> str | None:
    """Return the name of the booking of kept cores for stages such as this one; None if no cores are kept for them."""
    return None if stage.affinity is None or stage.demand.device is not None else _KEPT + stage.affinity


class Reservations:
    """Books reservations, and unblocks the queues that wait for resources when they are released."""

    def __init__(self, pool: ResourcePool, queues: ReadyQueues) -> None:
        self._pool = pool
        self._queues = queues
        self.kept = 0
        """Number of cores that are kept, for all jobs."""

    def hold(self, job: ScheduledJob, placement: Placement) -> None:
        """Hold `placement` for the job's next stage."""
        job.held = placement
        self._pool.book((job.id, _HELD), placement)

    def let_go(self, job: ScheduledJob) -> None:
        """Release what is held for the job's next stage, if anything is."""
        if job.held is not None:
            placement, job.held = job.held, None
            self.release((job.id, _HELD), placement)

    def may_keep(self, job: ScheduledJob, stage: Stage, placement: Placement) -> bool:
        """Return whether the stage's cores may be kept: no waiting stage is bound to the host or has claimed it."""
        name = _name(stage)
        if name is None or name in job.kept:
            return False
        return not (self._queues.bound_to(placement.host) or self._pool.is_claimed(placement.host))

    def keep(self, job: ScheduledJob, stage: Stage, placement: Placement) -> None:
        """Keep the cores that a stage of the job had until the job submits another such stage."""
        name = _name(stage)
        assert name is not None
        job.kept[name] = placement
        self._pool.book((job.id, name), placement)
        self.kept += placement.cores

    def give_back(self, job: ScheduledJob, stage: Stage | None = None) -> None:
        """Release the cores that are kept for such stages of the job; with None, all cores kept for the job."""
        if job.kept:
            self._give_back(job, list(job.kept) if stage is None else [_name(stage)])

    def give_up(self, job: ScheduledJob) -> bool:
        """Release all cores kept for the job; returns whether there were any."""
        given = list(job.kept)
        self._give_back(job, given)
        return bool(given)

    def lost(self, job: ScheduledJob, name: str) -> bool:
        """Release the reservation of this name, since its resource is lost; returns whether the job had one."""
        if name == _HELD:
            self.let_go(job)
        elif name in job.kept:
            self._give_back(job, [name])
        else:
            return False
        return True

    def release(self, key: StageKey, placement: Placement) -> None:
        """Release what is booked under this key, and unblock the queues that wait for it."""
        names = self._pool.release(key)
        only_cores = placement.device is None and placement.host is not None
        self._queues.freed(names, self._pool.room(placement.host) if only_cores else None)

    def _give_back(self, job: ScheduledJob, names: Iterable[str | None]) -> None:
        for name in names:
            if name is not None and name in job.kept:
                placement = job.kept.pop(name)
                self.kept -= placement.cores
                self.release((job.id, name), placement)
