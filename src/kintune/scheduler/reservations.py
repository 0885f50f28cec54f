"""What is kept for jobs while they do not use it: for their very next stage, or cores until they come back to them."""

from __future__ import annotations

from collections.abc import Iterable

from kintune.core.stage import Stage, StageKey
from kintune.scheduler.job_state import ScheduledJob
from kintune.scheduler.pool import ResourcePool
from kintune.scheduler.ready_stages import ReadyQueues
from kintune.scheduler.resources import Placement

__all__ = ["Reservations"]

_HELD = "(held)"  # the booking that keeps something for a job's next stage
_KEPT = "(kept) "  # the beginning of those that keep something until a job comes back to it


def _name(stage: Stage) -> str | None:
    """The booking under which a job is kept the cores that such stages run on; None for those that run anywhere."""
    return None if stage.affinity is None or stage.demand.device is not None else _KEPT + stage.affinity


class Reservations:
    """Books what is kept, and opens the queues that wait for what is given back."""

    def __init__(self, pool: ResourcePool, queues: ReadyQueues) -> None:
        self._pool = pool
        self._queues = queues
        self.kept = 0
        """How many cores are kept until jobs come back to them."""

    def hold(self, job: ScheduledJob, placement: Placement) -> None:
        """Keep what a stage of the job had for the one that follows."""
        job.held = placement
        self._pool.book((job.id, _HELD), placement)

    def let_go(self, job: ScheduledJob) -> None:
        """Hold nothing for the job any more."""
        if job.held is not None:
            placement, job.held = job.held, None
            self.release((job.id, _HELD), placement)

    def may_keep(self, job: ScheduledJob, stage: Stage, placement: Placement) -> bool:
        """Whether the cores that the stage had may be kept: nobody is bound to the host, or has claimed it."""
        name = _name(stage)
        if name is None or name in job.kept:
            return False
        return not (self._queues.bound_to(placement.host) or self._pool.is_claimed(placement.host))

    def keep(self, job: ScheduledJob, stage: Stage, placement: Placement) -> None:
        """Keep the cores that a stage of the job had until the job asks for another such stage."""
        name = _name(stage)
        assert name is not None
        job.kept[name] = placement
        self._pool.book((job.id, name), placement)
        self.kept += placement.cores

    def give_back(self, job: ScheduledJob, stage: Stage | None = None) -> None:
        """Keep nothing for such stages of the job any more, or (None) nothing at all."""
        if job.kept:
            self._give_back(job, list(job.kept) if stage is None else [_name(stage)])

    def give_up(self, job: ScheduledJob) -> bool:
        """The job waits for something: keep nothing for it; whether anything was."""
        given = list(job.kept)
        self._give_back(job, given)
        return bool(given)

    def lost(self, job: ScheduledJob, name: str) -> bool:
        """The resource that is booked under this name is lost; whether it was kept for the job."""
        if name == _HELD:
            self.let_go(job)
        elif name in job.kept:
            self._give_back(job, [name])
        else:
            return False
        return True

    def release(self, key: StageKey, placement: Placement) -> None:
        """Give back what is booked under this key."""
        names = self._pool.release(key)
        only_cores = placement.device is None and placement.host is not None
        self._queues.freed(names, self._pool.room(placement.host) if only_cores else None)

    def _give_back(self, job: ScheduledJob, names: Iterable[str | None]) -> None:
        for name in names:
            if name is not None and name in job.kept:
                placement = job.kept.pop(name)
                self.kept -= placement.cores
                self.release((job.id, name), placement)
