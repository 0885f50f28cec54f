"""What stands in a spec of schedules: hosts, devices, jobs."""

from __future__ import annotations

import msgspec

from kintune.core.stage import Demand, Stage
from kintune.scheduler.resources import Device
from kintune_lab.simulate.mock import MockJob
from kintune_lab.simulate.plan import PlannedJob, PlannedStage

__all__ = ["DeviceEntry", "GraphEntry", "HostEntry", "JobEntry", "StageEntry"]


class HostEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`[[host]]`."""

    id: str
    cores: int = 1
    memory_mb: int = 1 << 20


class DeviceEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`[[device]]`: so many of a type."""

    type: str
    id: str = ""
    count: int = 1
    host: str | None = None
    on_host_cores: bool = False

    def devices(self) -> list[Device]:
        """The devices."""
        names = _names(self.id or self.type, self.count, "", 0)
        return [Device(name, self.type, self.host, self.on_host_cores) for name in names]


class JobEntry(MockJob, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """`[[job]]`: so many mock jobs, with when and for whom they come."""

    name: str
    count: int = 1
    at: float = 0.0
    priority: float = 1.0
    deadline: float | None = None
    tells: bool = True

    def names(self) -> list[str]:
        """What the jobs are called."""
        return _names(self.name, self.count, "-", 1)

    def plans(self, seed: int) -> list[PlannedJob]:
        """The jobs, under a seed."""
        return [
            self.plan(
                name,
                seed=seed,
                at=self.at,
                priority=self.priority,
                deadline=self.deadline,
                tells=self.tells,
                known_as=self.name,
            )
            for name in self.names()
        ]


class StageEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`[[graph.stage]]`: a stage alone on a device, or on cores of a host; `own` ones run in their job's process."""

    id: str
    seconds: float
    kind: str = "stage"
    device: str | None = None
    cores: int = 1
    own: bool = False
    after: tuple[str, ...] = ()

    def planned(self, job: str, known_as: str) -> PlannedStage:
        """The stage of one job."""
        alone = self.device is not None
        demand = Demand(device=self.device, exclusive=True) if alone else Demand(cores=self.cores)
        key = f"{known_as}/{self.id}"
        stage = Stage(self.id, job, self.kind, demand, job if self.own else None, key, after=self.after)
        return PlannedStage(stage, self.seconds)


class GraphEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`[[graph]]`: so many jobs with stages of their own, each after others that stand before it."""

    name: str
    stage: tuple[StageEntry, ...]
    count: int = 1
    at: float = 0.0
    priority: float = 1.0
    deadline: float | None = None
    tells: bool = True

    def names(self) -> list[str]:
        """What the jobs are called."""
        return _names(self.name, self.count, "-", 1)

    def plans(self) -> list[PlannedJob]:
        """The jobs."""
        return [
            PlannedJob(
                name,
                tuple(stage.planned(name, self.name) for stage in self.stage),
                self.at,
                self.priority,
                self.deadline,
                self.tells,
            )
            for name in self.names()
        ]


def _names(name: str, count: int, between: str, first: int) -> list[str]:
    return [name] if count == 1 else [f"{name}{between}{first + n}" for n in range(count)]
