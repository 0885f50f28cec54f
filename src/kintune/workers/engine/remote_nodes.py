"""Places away from this machine where processes are kept: they join, are lost, and come back."""

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
    """Hosts and devices with one keeper.

    `commands` say how workers are started there, by "kind@host" or "kind@device"; hosts come before what hangs on them.
    With `lodging`, jobs' own processes can live on its hosts, within these limits.
    """

    name: str
    keeper: ProcessHost
    resources: tuple[Resource, ...]
    commands: Mapping[str, AnyCommand]
    lodging: ResourceLimits | None = None


class JobPlacement(NamedTuple):
    """Where a job's process can live: how it is started there, and the host as the scheduler knows it."""

    command: RemoteCommand
    host: str


class _Lodger(NamedTuple):
    """A job that lives at an outpost, and how it is moved, for a cause."""

    outpost: str
    move: Callable[[str], None]


class RemoteNodes:
    """Those that are there now, and who lodges where."""

    def __init__(self, launcher: Launcher, pool: WorkerPool, inventory: Inventory, quarantine: Quarantine) -> None:
        self._launcher = launcher
        self._pool = pool
        self._inventory = inventory
        self._quarantine = quarantine
        self._present: dict[str, RemoteNode] = {}
        self._lodgers: dict[str, _Lodger] = {}
        self._homeless: dict[str, Callable[[], None]] = {}

    def join(self, outpost: RemoteNode, accepted: Callable[[], None]) -> None:
        """Stages can run there; `accepted` is called before anything is said to it.

        Raises:
            EngineError: one of this name is there, or its resources are others' or are not what they were.
        """
        if outpost.name in self._present:
            raise EngineError(f"there is an outpost {outpost.name!r} already")
        for resource in outpost.resources:
            if (why := self._inventory.why_not(resource)) is not None:
                raise EngineError(why)
        accepted()
        self._present[outpost.name] = outpost
        self._launcher.add_keeper(outpost.name, outpost.keeper)
        self._pool.learn(outpost.commands)
        for resource in outpost.resources:
            self._quarantine.guard(resource.id)
            self._inventory.join(resource)
        self.look_for_homes()

    def look_for_homes(self) -> None:
        """There may be room for those that lodge nowhere."""
        waiting, self._homeless = self._homeless, {}
        for again in waiting.values():
            again()

    def lodge(
        self, job: str, command: Anywhere, again: Callable[[], None], move: Callable[[str], None]
    ) -> JobPlacement | None:
        """A place for a job's process, where fewest lodge for each core; `move` is called when it must leave there.

        None where there is none; `again` is called once there may be one.
        """
        self.leave(job)
        crowds = Counter(lodger.outpost for lodger in self._lodgers.values())
        found = [
            (crowds[outpost.name] / host.cores, outpost.name)
            for outpost in self._present.values()
            if outpost.lodging is not None and (host := self._host(outpost)) is not None
        ]
        if not found:
            self._homeless[job] = again
            return None
        outpost = self._present[min(found)[1]]
        host, limits = self._host(outpost), outpost.lodging
        assert host is not None
        assert limits is not None
        self._lodgers[job] = _Lodger(outpost.name, move)
        if command.limits.address_space_mb is not None:
            limits = msgspec.structs.replace(limits, address_space_mb=command.limits.address_space_mb)
        return JobPlacement(msgspec.structs.replace(command.at(outpost.name), limits=limits), host.id)

    def _host(self, outpost: RemoteNode) -> Host | None:
        """The first of its hosts that can be used."""
        hosts = (each for each in outpost.resources if isinstance(each, Host) and each.cores)
        return next((host for host in hosts if self._inventory.is_usable(host.id)), None)

    def move_out(self, cause: str) -> None:
        """Whoever still lives where nobody can live now must live elsewhere."""
        for lodger in list(self._lodgers.values()):
            if not self.lodges(lodger.outpost):
                lodger.move(cause)

    def leave(self, job: str) -> None:
        """The job needs no place (any more)."""
        self._lodgers.pop(job, None)
        self._homeless.pop(job, None)

    def lodges(self, name: str) -> bool:
        """Whether jobs' processes can live there now."""
        return name in self._present and self._host(self._present[name]) is not None

    def lose(self, name: str, cause: str, keeper: ProcessHost | None = None) -> None:
        """What ran there runs elsewhere, or when it is back; one that is not there, or is another's, is left alone."""
        outpost = self._present.get(name)
        if outpost is None or (keeper is not None and outpost.keeper is not keeper):
            return
        del self._present[name]
        for resource in reversed(outpost.resources):
            self._inventory.lose(resource.id, cause)
        self._launcher.lose_keeper(name, cause)
