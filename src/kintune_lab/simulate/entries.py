"""The entries of a simulation's spec: hosts, devices, jobs, and mixes of jobs drawn from a seed."""

from __future__ import annotations

import math
import random

import msgspec

from kintune.core.stage import Demand, Stage
from kintune.scheduler.resources import Device, Host, Resource
from kintune_lab.simulate.plan import Kind, MockJob, PlannedJob, PlannedStage

__all__ = ["MIX_RANGES", "DeviceEntry", "GraphEntry", "HostEntry", "JobEntry", "Mix", "Range", "StageEntry"]


class HostEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`[[host]]`."""

    id: str
    cores: int = 1
    memory_mb: int = 1 << 20


class DeviceEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`[[device]]`: `count` devices of a type."""

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
    """`[[job]]`: `count` mock jobs, with their arrival, priority and deadline."""

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
        """Returns the jobs as they are drawn from a seed."""
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
    """`[[graph]]`: `count` jobs with stages of their own, each after others that stand before it."""

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


Range = tuple[float, float]
"""Median, and the sigma of the lognormal around it."""


MIX_RANGES = ("rounds", "select_s", "build_s", "profile_s", "update_s", "start_s", "end_s", "prove_s")
"""The fields of a mix that are drawn for each job."""


class Mix(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Jobs whose lengths are drawn from lognormals, one after the other.

    `types` says how many devices there are of each type; jobs want a type as often as there are devices of it, times a
    `crowd` that makes the later types scarcer.  Jobs come within the first `arrive_s`; `priorities` are drawn with
    equal chances.  A stage's length is the job's own, which is drawn once, times a scatter of sigma `spread`;
    of the kinds in `foretells` jobs say their own length beforehand.

    The lengths by default are those of five runs of `kintune tune` (2026-11-21, two cores, rounds of 64) that have
    taught in races, of bert_large, vit_base and bert_base of two layers, mobilenet_v2 and mobilenet_v1_0.5: geometric
    means over the networks, sigma between them, and the mean sigma within one.
    """

    jobs: int = 100
    hosts: int = 8
    cores: int = 4
    types: tuple[int, ...] = (8, 6, 4, 2)
    crowd: float = 1.0
    rounds: Range = (40.0, 0.7)
    select_s: Range = (0.58, 0.32)
    build_s: Range = (4.84, 0.10)
    profile_s: Range = (2.20, 0.49)
    update_s: Range = (0.21, 0.31)
    start_s: Range = (2.63, 0.26)
    end_s: Range = (5.16, 0.40)
    prove_s: Range = (23.7, 0.6)
    spread: float = 0.47
    arrive_s: float = 0.0
    priorities: tuple[float, ...] = (1.0,)
    inflight: int = 1
    foretells: tuple[Kind, ...] = ()

    def resources(self) -> list[Resource]:
        """The hosts, and the devices, which are reached over a network."""
        hosts: list[Resource] = [Host(f"host{n}", self.cores, 1 << 20) for n in range(self.hosts)]
        return hosts + [
            Device(f"{_name(number)}{n}", _name(number)) for number, many in enumerate(self.types) for n in range(many)
        ]

    def draw(self, seed: int) -> list[PlannedJob]:
        """The jobs; the same seed brings the same ones."""
        rng = random.Random(f"mix/{seed}")
        wanted = [many * self.crowd**number for number, many in enumerate(self.types)]
        jobs: list[PlannedJob] = []
        for n in range(self.jobs):
            type = rng.choices(range(len(self.types)), wanted)[0]
            job = MockJob(
                device=_name(type),
                rounds=max(1, round(_draw(rng, self.rounds))),
                select_s=_draw(rng, self.select_s),
                build_s=_draw(rng, self.build_s),
                profile_s=_draw(rng, self.profile_s),
                update_s=_draw(rng, self.update_s),
                start_s=_draw(rng, self.start_s),
                end_s=_draw(rng, self.end_s),
                prove_s=_draw(rng, self.prove_s),
                build_cores=min(2, self.cores),
                spread=self.spread,
                inflight=self.inflight,
                foretells=self.foretells,
            )
            at = rng.uniform(0.0, self.arrive_s)
            jobs.append(job.plan(f"job{n}", seed=seed, at=at, priority=rng.choice(self.priorities)))
        return jobs


def _draw(rng: random.Random, range: Range) -> float:
    median, sigma = range
    return median * math.exp(sigma * rng.gauss(0.0, 1.0))


def _name(number: int) -> str:
    return f"type{chr(ord('A') + number)}"
