"""Assigns jobs' processes to hosts in a simulation, as the engine does: to the host with the fewest per core."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kintune.scheduler.queue import IndexedQueue
from kintune.scheduler.resources import Host, Resource
from kintune_lab.simulate.plan import PlannedJob

__all__ = ["SimulatedHosts"]


class SimulatedHosts:
    """The usable hosts, and the jobs assigned to each.

    A job that no host has room for stays unassigned until a host is back.
    """

    def __init__(self, resources: Sequence[Resource]) -> None:
        self._hosts = {resource.id: resource for resource in resources if isinstance(resource, Host)}
        self._order = {id: number for number, id in enumerate(self._hosts)}
        self._residents: dict[str, dict[str, PlannedJob]] = {id: {} for id in self._hosts}
        self._assigned: dict[str, str] = {}
        self._unassigned: dict[str, PlannedJob] = {}
        self._lost: set[str] = set()
        self._by_load: IndexedQueue[str] = IndexedQueue()
        for id in self._hosts:
            self._index(id)

    def assign(self, job: PlannedJob) -> str | None:
        """Assign the job to a host and return its id; None if the job has no process, or no host has room."""
        own = [planned.stage.demand for planned in job.stages if planned.stage.affinity is not None]
        if not own:
            return None
        cores, memory_mb = max(demand.cores for demand in own), max(demand.memory_mb for demand in own)
        for id in self._candidates():
            host = self._hosts[id]
            if host.cores >= cores and host.memory_mb >= memory_mb:
                self._assigned[job.id] = id
                self._residents[id][job.id] = job
                self._index(id)
                return id
        self._unassigned[job.id] = job
        return None

    def leave(self, job: str) -> None:
        """Remove a job that is over."""
        self._unassigned.pop(job, None)
        host = self._assigned.pop(job, None)
        if host is not None:
            del self._residents[host][job]
            self._index(host)

    def lose(self, resource: str) -> list[tuple[str, str]]:
        """Remove a lost host; return its jobs that were moved, each with the new host."""
        if resource not in self._hosts:
            return []
        self._lost.add(resource)
        gone, self._residents[resource] = self._residents[resource], {}
        self._index(resource)
        return self._move(gone.values())

    def back(self, resource: str) -> list[tuple[str, str]]:
        """Add a host that is back; return the unassigned jobs that it took, each with the host."""
        if resource not in self._hosts:
            return []
        self._lost.discard(resource)
        self._index(resource)
        waiting, self._unassigned = self._unassigned, {}
        return self._move(waiting.values())

    def _move(self, jobs: Iterable[PlannedJob]) -> list[tuple[str, str]]:
        moved: list[tuple[str, str]] = []
        for job in jobs:
            self._assigned.pop(job.id, None)
            host = self.assign(job)
            if host is not None:
                moved.append((job.id, host))
        return moved

    def _candidates(self) -> Iterable[str]:
        first = self._by_load.first()
        if first is not None:
            yield first
            yield from (id for id in self._by_load.in_order() if id != first)

    def _index(self, id: str) -> None:
        if id in self._lost:
            self._by_load.discard(id)
        else:
            self._by_load.put(id, (len(self._residents[id]) / self._hosts[id].cores, self._order[id]))
