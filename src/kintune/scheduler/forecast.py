"""Estimates of stage durations, of the remaining work of each job, and of the load of the busiest resource."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from kintune.core.stage import Demand, Stage
from kintune.scheduler.resources import Host, Resource

__all__ = ["DurationForecast", "Durations"]


@dataclass
class _Job:
    """What is known of one job.

    `ahead` counts the stages that it expects to submit, by duration key; it is valid once `told` is set.  `had_s` is
    the total duration of its finished stages.
    """

    ahead: dict[str, int] = field(default_factory=dict)
    told: bool = False
    had_s: float = 0.0


class DurationForecast:
    """Learns durations by the stages' duration keys and keeps sums of the expected work.

    Every update and every query is O(1) in the number of jobs; `ahead_s` is linear in the job's duration keys.
    """

    def __init__(self) -> None:
        self._durations = Durations()
        self._jobs: dict[str, _Job] = {}
        self._demands: dict[str, Demand] = {}  # by duration key
        self._load: dict[str, int] = {}  # stages still expected, by duration key
        self._capacity: dict[str | None, int] = {}  # cores, and devices by type
        # By device type, None for cores: seconds of the expected stages of known duration, times the amount that each
        # takes of the resource; and the sum of these amounts over the expected stages of unknown duration.
        self._seconds: dict[str | None, float] = {}
        self._unseen: dict[str | None, float] = {}

    def count(self, resource: Resource, sign: int) -> None:
        """Add (`sign` 1) or remove (`sign` -1) a host's cores or a device."""
        of, many = (None, resource.cores) if isinstance(resource, Host) else (resource.type, 1)
        self._capacity[of] = self._capacity.get(of, 0) + sign * many

    def capacity(self, device: str | None) -> int:
        """Return the number of devices of a type, or with None the number of cores."""
        return self._capacity.get(device, 0)

    def add(self, job: str) -> None:
        """Register a job."""
        self._jobs[job] = _Job()

    def expect(self, job: str, ahead: Mapping[str, int], seconds: Mapping[str, float]) -> None:
        """Replace the job's estimate: stages ahead by duration key, and for some keys the seconds of one stage."""
        of = self._jobs[job]
        self._subtract(of)
        for key, each in seconds.items():
            load = self._lift(key)
            self._durations.estimate(key, each)
            self._shift(key, load)
        of.ahead = dict(ahead)
        of.told = True
        for key, count in ahead.items():
            self._shift(key, count)

    def ask(self, stage: Stage) -> None:
        """Note what stages of this duration key demand."""
        key = stage.duration_key
        if self._demands.get(key) != stage.demand:
            load = self._lift(key)
            self._demands[key] = stage.demand
            self._shift(key, load)

    def done(self, stage: Stage, seconds: float) -> None:
        """Learn that the stage took `seconds`."""
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
        """Remove a job that has ended."""
        self._subtract(self._jobs.pop(job))

    def told(self, job: str) -> bool:
        """Return whether the job has given an estimate."""
        return self._jobs[job].told

    def had_s(self, job: str) -> float:
        """Return the total duration of the job's finished stages."""
        return self._jobs[job].had_s

    def ahead_s(self, job: str) -> float:
        """Return the expected total duration of the job's remaining stages.

        Without an estimate from the job, this is the total duration of its finished stages.
        """
        of = self._jobs[job]
        return self._durations.total(of.ahead) if of.told else of.had_s

    def busiest_s(self) -> float:
        """Return the expected seconds of work of the busiest kind of resource, divided by how many there are of it."""
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
        """Remove all expected stages of this key from the sums before its duration changes; returns how many."""
        load = self._load.get(key, 0)
        self._shift(key, -load)
        return load

    def _shift(self, key: str, count: int) -> None:
        """Add `count` (may be negative) expected stages of this key to the sums."""
        if left := self._load.get(key, 0) + count:
            self._load[key] = left
        else:
            self._load.pop(key, None)
        demand = self._demands.get(key)
        if demand is None:
            return  # no stage of this key was submitted yet
        amount = count * (1 if demand.device is not None else max(1, demand.cores))
        if self._durations.knows(key):
            seconds = amount * self._durations.expected(key)
            self._seconds[demand.device] = self._seconds.get(demand.device, 0.0) + seconds
        else:
            self._unseen[demand.device] = self._unseen.get(demand.device, 0.0) + amount

    def _subtract(self, job: _Job) -> None:
        for key, count in job.ahead.items():
            self._shift(key, -count)


_MIN_STEP = 0.05  # least share of the latest duration in the mean, so that the mean follows changes


@dataclass
class _Mean:
    seconds: float = 0.0
    count: int = 0

    def learn(self, seconds: float) -> None:
        self.count += 1
        self.seconds += (seconds - self.seconds) * max(1.0 / self.count, _MIN_STEP)


@dataclass
class Durations:
    """Mean stage duration in seconds by duration key.

    A key without measurements counts with its latest estimate, or else with the mean of all keys.
    """

    _by_key: dict[str, _Mean] = field(default_factory=dict)
    _estimates: dict[str, float] = field(default_factory=dict)
    _all: _Mean = field(default_factory=_Mean)

    def learn(self, key: str, seconds: float) -> None:
        """Learn that a stage with this key took `seconds`."""
        self._by_key.setdefault(key, _Mean()).learn(seconds)
        self._estimates.pop(key, None)
        self._all.learn(seconds)

    def estimate(self, key: str, seconds: float) -> None:
        """Note an estimate for a key; it is ignored once stages with this key were measured."""
        if key not in self._by_key:
            self._estimates[key] = seconds

    def knows(self, key: str) -> bool:
        """Return whether there is a measurement or an estimate for this key."""
        return key in self._by_key or key in self._estimates

    @property
    def mean(self) -> float:
        """Mean duration over the stages of all keys."""
        return self._all.seconds

    def expected(self, key: str) -> float:
        """Return the expected seconds of a stage with this key; 0 before the first measurement."""
        known = self._by_key.get(key)
        return self._estimates.get(key, self._all.seconds) if known is None else known.seconds

    def total(self, counts: Mapping[str, int]) -> float:
        """Return the expected sum of durations of `counts` stages of each key."""
        return sum(count * self.expected(key) for key, count in counts.items())
