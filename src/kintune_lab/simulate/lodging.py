"""Where jobs' processes live in a simulation: as the engine has it, where the fewest lodge for each core."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kintune.scheduler.queue import IndexedQueue
from kintune.scheduler.resources import Host, Resource
from kintune_lab.simulate.plan import PlannedJob

__all__ = ["SimulatedHosts"]


class SimulatedHosts:
    """The usable hosts, and who lodges on each.

    A job that nobody has room for lodges nowhere until a host is back.
    """

    def __init__(self, resources: Sequence[Resource]) -> None:
        self._hosts = {resource.id: resource for resource in resources if isinstance(resource, Host)}
        self._order = {id: number for number, id in enumerate(self._hosts)}
        self._lodgers: dict[str, dict[str, PlannedJob]] = {id: {} for id in self._hosts}
        self._homes: dict[str, str] = {}
        self._homeless: dict[str, PlannedJob] = {}
        self._lost: set[str] = set()
        self._roomiest: IndexedQueue[str] = IndexedQueue()
        for id in self._hosts:
            self._index(id)

    def lodge(self, job: PlannedJob) -> str | None:
        """The host on which the job's processes live from now on; None if it has no process, or nobody has room."""
        own = [planned.stage.demand for planned in job.stages if planned.stage.affinity is not None]
        if not own:
            return None
        cores, memory_mb = max(demand.cores for demand in own), max(demand.memory_mb for demand in own)
        for id in self._candidates():
            host = self._hosts[id]
            if host.cores >= cores and host.memory_mb >= memory_mb:
                self._homes[job.id] = id
                self._lodgers[id][job.id] = job
                self._index(id)
                return id
        self._homeless[job.id] = job
        return None

    def leave(self, job: str) -> None:
        """The job is over."""
        self._homeless.pop(job, None)
        home = self._homes.pop(job, None)
        if home is not None:
            del self._lodgers[home][job]
            self._index(home)

    def lose(self, resource: str) -> list[tuple[str, str]]:
        """A resource is lost: who lodged there, and where each of them lodges now, if anywhere."""
        if resource not in self._hosts:
            return []
        self._lost.add(resource)
        gone, self._lodgers[resource] = self._lodgers[resource], {}
        self._index(resource)
        return self._move(gone.values())

    def back(self, resource: str) -> list[tuple[str, str]]:
        """A lost resource is back: who of the homeless lodges where now."""
        if resource not in self._hosts:
            return []
        self._lost.discard(resource)
        self._index(resource)
        waiting, self._homeless = self._homeless, {}
        return self._move(waiting.values())

    def _move(self, jobs: Iterable[PlannedJob]) -> list[tuple[str, str]]:
        moved: list[tuple[str, str]] = []
        for job in jobs:
            self._homes.pop(job.id, None)
            home = self.lodge(job)
            if home is not None:
                moved.append((job.id, home))
        return moved

    def _candidates(self) -> Iterable[str]:
        first = self._roomiest.first()
        if first is not None:
            yield first
            yield from (id for id in self._roomiest.in_order() if id != first)

    def _index(self, id: str) -> None:
        if id in self._lost:
            self._roomiest.discard(id)
        else:
            self._roomiest.put(id, (len(self._lodgers[id]) / self._hosts[id].cores, self._order[id]))
