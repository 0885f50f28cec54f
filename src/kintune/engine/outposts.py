"""Places away from this machine where processes are kept: they join, are lost, and come back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import NamedTuple

from kintune.engine.command import AnyCommand, Anywhere, KeptCommand
from kintune.engine.inventory import Inventory
from kintune.engine.kept import Keeper
from kintune.engine.launcher import Launcher
from kintune.engine.quarantine import Quarantine
from kintune.engine.worker_pool import WorkerPool
from kintune.errors import EngineError
from kintune.scheduler.resources import Host, Resource

__all__ = ["Lodging", "Outpost", "Outposts"]


class Outpost(NamedTuple):
    """Hosts and devices with one keeper.

    `commands` say how workers are started there, by "kind@host" or "kind@device"; hosts come before what hangs on them.
    """

    name: str
    keeper: Keeper
    resources: tuple[Resource, ...]
    commands: Mapping[str, AnyCommand]


class Lodging(NamedTuple):
    """Where a job's process can live: how it is started there, and the host as the scheduler knows it."""

    command: KeptCommand
    host: str


class Outposts:
    """Those that are there now, and who lodges where."""

    def __init__(self, launcher: Launcher, pool: WorkerPool, inventory: Inventory, quarantine: Quarantine) -> None:
        self._launcher = launcher
        self._pool = pool
        self._inventory = inventory
        self._quarantine = quarantine
        self._present: dict[str, Outpost] = {}
        self._lodgers: dict[str, str] = {}
        self._homeless: dict[str, Callable[[], None]] = {}

    def join(self, outpost: Outpost) -> None:
        """Stages can run there.

        Raises:
            EngineError: one of this name is there, or its resources are others' or are not what they were.
        """
        if outpost.name in self._present:
            raise EngineError(f"there is an outpost {outpost.name!r} already")
        for resource in outpost.resources:
            if (why := self._inventory.why_not(resource)) is not None:
                raise EngineError(why)
        self._present[outpost.name] = outpost
        self._launcher.add_keeper(outpost.name, outpost.keeper)
        self._pool.learn(outpost.commands)
        for resource in outpost.resources:
            self._quarantine.guard(resource.id)
            self._inventory.join(resource)
        waiting, self._homeless = self._homeless, {}
        for again in waiting.values():
            again()

    def lodge(self, job: str, command: Anywhere, again: Callable[[], None]) -> Lodging | None:
        """A place for a job's process, where fewest lodge for each core.

        None where there is none; `again` is called once there may be one.
        """
        self.leave(job)
        crowds = Counter(self._lodgers.values())
        found = [
            (crowds[outpost.name] / resource.cores, outpost.name, resource.id)
            for outpost in self._present.values()
            for resource in outpost.resources
            if isinstance(resource, Host) and resource.cores
        ]
        if not found:
            self._homeless[job] = again
            return None
        _, name, host = min(found)
        self._lodgers[job] = name
        return Lodging(command.at(name), host)

    def leave(self, job: str) -> None:
        """The job needs no place (any more)."""
        self._lodgers.pop(job, None)
        self._homeless.pop(job, None)

    def has(self, name: str) -> bool:
        """Whether the outpost is there."""
        return name in self._present

    def lose(self, name: str, cause: str) -> None:
        """What ran there runs elsewhere, or when it is back; one that is not there is left alone."""
        outpost = self._present.pop(name, None)
        if outpost is None:
            return
        for resource in reversed(outpost.resources):
            self._inventory.lose(resource.id, cause)
        self._launcher.lose_keeper(name, cause)
