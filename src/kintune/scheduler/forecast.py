"""What lies ahead, as far as it is known: of each job, and of the busiest resource."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from kintune.core.stage import Demand, Stage
from kintune.scheduler.durations import Durations
from kintune.scheduler.resources import Host, Resource

__all__ = ["Forecast"]


@dataclass
class _Job:
    """How many stages it will still ask for, if it has told, and the seconds of stages it has had."""

    ahead: dict[str, int] = field(default_factory=dict)
    told: bool = False
    had_s: float = 0.0


class Forecast:
    """Learns durations by the stages' opaque keys, and sums up what is known to come."""

    def __init__(self) -> None:
        self._durations = Durations()
        self._jobs: dict[str, _Job] = {}
        self._demands: dict[str, Demand] = {}  # by duration key
        self._load: dict[str, int] = {}  # stages still expected, by duration key
        self._capacity: dict[str | None, int] = {}  # cores, and devices by type
        self._seconds: dict[str | None, float] = {}  # of expected stages whose keys are known, by what they need
        self._unseen: dict[str | None, float] = {}  # how many others are expected, times what each takes of it

    def count(self, resource: Resource, sign: int) -> None:
        """There is one more (1) or one less (-1) of it."""
        of, many = (None, resource.cores) if isinstance(resource, Host) else (resource.type, 1)
        self._capacity[of] = self._capacity.get(of, 0) + sign * many

    def capacity(self, device: str | None) -> int:
        """How many devices of a type there are, or (None) cores."""
        return self._capacity.get(device, 0)

    def add(self, job: str) -> None:
        """A job exists."""
        self._jobs[job] = _Job()

    def expect(self, job: str, ahead: Mapping[str, int], seconds: Mapping[str, float]) -> None:
        """What lies ahead of the job by its own account, and of some keys, how long it thinks that one takes."""
        of = self._jobs[job]
        self._subtract(of)
        for key, each in seconds.items():
            load = self._lift(key)
            self._durations.hear(key, each)
            self._shift(key, load)
        of.ahead = dict(ahead)
        of.told = True
        for key, count in ahead.items():
            self._shift(key, count)

    def ask(self, stage: Stage) -> None:
        """What stages of this key need."""
        key = stage.duration_key
        if self._demands.get(key) != stage.demand:
            load = self._lift(key)
            self._demands[key] = stage.demand
            self._shift(key, load)

    def done(self, stage: Stage, seconds: float) -> None:
        """A stage took so long."""
        key = stage.duration_key
        load = self._lift(key)
        self._durations.learn(key, seconds)
        self._shift(key, load)
        of = self._jobs[stage.job]
        of.had_s += seconds
        if of.ahead.get(key, 0) > 0:
            of.ahead[key] -= 1
            self._shift(key, -1)

    def forget(self, job: str) -> None:
        """The job is over."""
        self._subtract(self._jobs.pop(job))

    def told(self, job: str) -> bool:
        """Whether the job has said what it expects."""
        return self._jobs[job].told

    def had_s(self, job: str) -> float:
        """Seconds of the job's stages so far."""
        return self._jobs[job].had_s

    def ahead_s(self, job: str) -> float:
        """Seconds of stages that it will ask for, one after the other: what it says, or as much again as it has had."""
        of = self._jobs[job]
        return self._durations.total(of.ahead) if of.told else of.had_s

    def busiest_s(self) -> float:
        """Seconds for which the busiest kind of resource has work that is known."""
        mean = self._durations.mean
        kinds = {**self._seconds, **self._unseen}
        return max(
            (
                (self._seconds.get(of, 0.0) + self._unseen.get(of, 0.0) * mean) / max(1, self.capacity(of))
                for of in kinds
            ),
            default=0.0,
        )

    def _lift(self, key: str) -> int:
        """Take out all stages of this key that are expected, to put them back at another price; how many."""
        load = self._load.get(key, 0)
        self._shift(key, -load)
        return load

    def _shift(self, key: str, count: int) -> None:
        """So many more (or fewer) stages of this key are expected."""
        if left := self._load.get(key, 0) + count:
            self._load[key] = left
        else:
            self._load.pop(key, None)
        demand = self._demands.get(key)
        if demand is None:
            return  # nobody has asked for one yet
        amount = count * (1 if demand.device is not None else max(1, demand.cores))
        if self._durations.knows(key):
            seconds = amount * self._durations.expected(key)
            self._seconds[demand.device] = self._seconds.get(demand.device, 0.0) + seconds
        else:
            self._unseen[demand.device] = self._unseen.get(demand.device, 0.0) + amount

    def _subtract(self, job: _Job) -> None:
        for key, count in job.ahead.items():
            self._shift(key, -count)
