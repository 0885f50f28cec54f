"""Nodes other than this machine where processes run: they join, are lost, and come back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import NamedTuple

import msgspec

from kintune.errors import EngineError
from kintune.scheduler.resources import Host, Resource
from kintune.wire.child import ResourceLimits
from kintune.workers.engine.inventory import Inventory
from kintune.workers.engine.launcher import Launcher
from kintune.workers.engine.process import AnyCommand, Anywhere, RemoteCommand
from kintune.workers.engine.quarantine import Quarantine
from kintune.workers.engine.remote_process import ProcessHost
from kintune.workers.engine.worker_pool import WorkerPool

__all__ = ["JobPlacement", "RemoteNode", "RemoteNodes"]


class RemoteNode(NamedTuple):
    """Hosts and devices that share one process host.

    `commands` say how workers are started there, by "kind@host" or "kind@device"; hosts come before their devices.
    With `job_limits`, jobs' own processes can run on its hosts, within these limits.
    """

    name: str
    process_host: ProcessHost
    resources: tuple[Resource, ...]
    commands: Mapping[str, AnyCommand]
    job_limits: ResourceLimits | None = None


class JobPlacement(NamedTuple):
    """Where a job's process can run: how it is started there, and the host as the scheduler knows it."""

    command: RemoteCommand
    host: str


class _PlacedJob(NamedTuple):
    """The node on which a job's process runs, and the function that moves it, given the cause."""

    node: str
    move: Callable[[str], None]


class RemoteNodes:
    """The nodes that are there now, and on which of them the processes of jobs run."""

    def __init__(self, launcher: Launcher, pool: WorkerPool, inventory: Inventory, quarantine: Quarantine) -> None:
        self._launcher = launcher
        self._pool = pool
        self._inventory = inventory
        self._quarantine = quarantine
        self._present: dict[str, RemoteNode] = {}
        self._placed: dict[str, _PlacedJob] = {}
        self._waiting: dict[str, Callable[[], None]] = {}

    def join(self, node: RemoteNode, accepted: Callable[[], None]) -> None:
        """Stages can run there; `accepted` is called before anything is said to it.

        Raises:
            EngineError: one of this name is there, or its resources are others' or were of another kind.
        """
        if node.name in self._present:
            raise EngineError(f"there is a node {node.name!r} already")
        for resource in node.resources:
            if (why := self._inventory.why_not(resource)) is not None:
                raise EngineError(why)
        accepted()
        self._present[node.name] = node
        self._launcher.add_host(node.name, node.process_host)
        self._pool.learn(node.commands)
        for resource in node.resources:
            self._quarantine.guard(resource.id)
            self._inventory.join(resource)
        self.place_waiting()

    def place_waiting(self) -> None:
        """Try again to place the jobs that wait, since there may be room now."""
        waiting, self._waiting = self._waiting, {}
        for again in waiting.values():
            again()

    def place(
        self, job: str, command: Anywhere, again: Callable[[], None], move: Callable[[str], None]
    ) -> JobPlacement | None:
        """Returns a place for a job's process, on the node with the fewest such processes per core, or None.

        `move` is called when the process must leave it.  After None, `again` is called once there may be a place.
        """
        self.leave(job)
        crowds = Counter(job.node for job in self._placed.values())
        found = [
            (crowds[node.name] / host.cores, node.name)
            for node in self._present.values()
            if node.job_limits is not None and (host := self._host(node)) is not None
        ]
        if not found:
            self._waiting[job] = again
            return None
        node = self._present[min(found)[1]]
        host, limits = self._host(node), node.job_limits
        assert host is not None
        assert limits is not None
        self._placed[job] = _PlacedJob(node.name, move)
        if command.limits.address_space_mb is not None:
            limits = msgspec.structs.replace(limits, address_space_mb=command.limits.address_space_mb)
        return JobPlacement(msgspec.structs.replace(command.at(node.name), limits=limits), host.id)

    def _host(self, node: RemoteNode) -> Host | None:
        """The first of its hosts that can be used."""
        hosts = (each for each in node.resources if isinstance(each, Host) and each.cores)
        return next((host for host in hosts if self._inventory.is_usable(host.id)), None)

    def move_jobs(self, cause: str) -> None:
        """Move the jobs whose node can no longer be used."""
        for job in list(self._placed.values()):
            if not self.can_place(job.node):
                job.move(cause)

    def leave(self, job: str) -> None:
        """The job needs no place (any more)."""
        self._placed.pop(job, None)
        self._waiting.pop(job, None)

    def can_place(self, name: str) -> bool:
        """Whether jobs' processes can run there now."""
        return name in self._present and self._host(self._present[name]) is not None

    def lose(self, name: str, cause: str, process_host: ProcessHost | None = None) -> None:
        """Take a node out of use; what ran there runs elsewhere, or when it is back.

        An unknown node, or one that has another process host than `process_host`, is left alone.
        """
        node = self._present.get(name)
        if node is None or (process_host is not None and node.process_host is not process_host):
            return
        del self._present[name]
        for resource in reversed(node.resources):
            self._inventory.lose(resource.id, cause)
        self._launcher.lose_host(name, cause)
