"""Which jobs' processes live on which host: they come back there between stages that run elsewhere."""

from __future__ import annotations

from kintune.scheduler.job_state import JobState
from kintune.scheduler.pool import ResourcePool

__all__ = ["Residents"]

_ALL = ""  # all processes of a job, which it keeps where it was told


class Residents:
    """Tells the pool how many live on each host, so that newcomers are not sent where the most come back to.

    Where the host is that a job was told to live on is settled; of other jobs each process lives where it ran first, and
    anywhere once that host is lost.
    """

    def __init__(self, pool: ResourcePool) -> None:
        self._pool = pool
        self._on: dict[str, dict[tuple[str, str], JobState]] = {}  # by host, in the order in which they came

    def fix(self, job: JobState, host: str | None) -> None:
        """All processes of the job live on this host, or (None) each where it runs first."""
        self.leave(job)
        job.fixed_home = host
        if host is not None:
            self._enter(job, _ALL, host)

    def settle(self, job: JobState, affinity: str, host: str | None) -> bool:
        """The process runs on this host; whether it lives there from now on, and has not before."""
        if host is None or job.fixed_home is not None or job.homes.get(affinity) == host:
            return False
        self._exit(job, affinity, job.homes.get(affinity))
        job.homes[affinity] = host
        self._enter(job, affinity, host)
        return True

    def evict(self, host: str) -> list[JobState]:
        """The host is lost: those that are not told to live there may live anywhere; returns their jobs, oldest first."""
        gone: dict[str, JobState] = {}
        for id, affinity in list(self._on.get(host, ())):
            job = self._on[host][id, affinity]
            if affinity != _ALL:
                self._exit(job, affinity, job.homes.pop(affinity))
                gone[id] = job
        return sorted(gone.values(), key=lambda job: job.seq)

    def leave(self, job: JobState) -> None:
        """The job lives nowhere any more."""
        self._exit(job, _ALL, job.fixed_home)
        for affinity, host in job.homes.items():
            self._exit(job, affinity, host)
        job.fixed_home = None
        job.homes = {}

    def _enter(self, job: JobState, affinity: str, host: str) -> None:
        there = self._on.setdefault(host, {})
        there[job.id, affinity] = job
        self._pool.crowd(host, len(there))

    def _exit(self, job: JobState, affinity: str, host: str | None) -> None:
        there = self._on.get(host or "")
        if host is not None and there is not None and there.pop((job.id, affinity), None) is not None:
            self._pool.crowd(host, len(there))
