"""Planned jobs: stages with their order and lengths; mock jobs are planned from the lengths of a round's stages."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

import msgspec

from kintune.core.stage import Demand, Stage
from kintune.errors import InputError

__all__ = ["Kind", "MockJob", "PlannedJob", "PlannedStage", "check"]


class PlannedStage(msgspec.Struct, frozen=True, gc=False):
    """A stage, and the seconds that it takes when nothing disturbs it; it is asked for once its `after` are done."""

    stage: Stage
    seconds: float


class PlannedJob(msgspec.Struct, frozen=True):
    """A job that arrives at the second `at` of virtual time.

    One that `tells` says beforehand how many stages of each duration key it will ask for, and of those in `foretold`,
    how many seconds it thinks that one takes.
    """

    id: str
    stages: tuple[PlannedStage, ...]
    at: float = 0.0
    priority: float = 1.0
    deadline: float | None = None
    tells: bool = True
    foretold: dict[str, float] = {}

    def work_s(self) -> float:
        """Seconds of all its stages, one after the other."""
        return sum(planned.seconds for planned in self.stages)

    def path_s(self) -> float:
        """Seconds of its longest chain of stages: no number of resources makes the job faster.

        Stages of one process (`affinity`) count one after the other as well.
        """
        ends: dict[str, float] = {}
        by_process: dict[str, float] = {}
        for planned in self.stages:
            stage = planned.stage
            ends[stage.id] = max((ends[id] for id in stage.after), default=0.0) + planned.seconds
            if stage.affinity is not None:
                by_process[stage.affinity] = by_process.get(stage.affinity, 0.0) + planned.seconds
        return max((*ends.values(), *by_process.values()), default=0.0)


def check(jobs: Sequence[PlannedJob]) -> None:
    """Check that the jobs can be played.

    Raises:
        InputError: two jobs or two stages of one have the same name, a stage waits for one that does not come before
            it, or a time is negative.
    """
    _distinct("jobs", (job.id for job in jobs))
    for job in jobs:
        _distinct(f"stages of {job.id}", (planned.stage.id for planned in job.stages))
        times: Mapping[str, float] = {"its arrival": job.at, **{p.stage.id: p.seconds for p in job.stages}}
        for what, seconds in times.items():
            if not 0 <= seconds < float("inf"):
                raise InputError(f"job {job.id}: {what} is {seconds:g} s; times are 0 or more")
        before: set[str] = set()
        for planned in job.stages:
            for other in planned.stage.after:
                if other not in before:
                    raise InputError(
                        f"job {job.id}: {planned.stage.id} comes after {other}, which is not among the stages before it"
                    )
            before.add(planned.stage.id)


def _distinct(what: str, names: Iterable[str]) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise InputError(f"two {what} are called {name!r}")
        seen.add(name)


Kind = Literal["start", "select", "build", "profile", "update", "end", "prove"]
"""The kinds of a mock job's stages."""


class MockJob(msgspec.Struct, frozen=True):
    """A tuning job by the lengths of its stages, in seconds.

    It begins with `start_s` on a host (import, lowering) and ends with `end_s` there (packing, writing) and `prove_s`
    alone on a device (timing what was made).  In between come `rounds` of select, build, profile and update; the
    profile runs alone on a device, all others on `cores` of a host, those that need what the job has learnt in its own
    process.  At most `inflight` rounds are under way at once.  `stretch` multiplies all times; `spread` is how widely
    single stages scatter (the sigma of a lognormal with mean 1).

    Of the kinds that it `foretells` it says beforehand how long a stage takes, but for the scatter.
    """

    device: str
    rounds: int
    select_s: float = 0.0
    build_s: float = 0.0
    profile_s: float = 0.0
    update_s: float = 0.0
    start_s: float = 0.0
    end_s: float = 0.0
    prove_s: float = 0.0
    cores: int = 1
    build_cores: int | None = None
    inflight: int = 1
    stretch: float = 1.0
    spread: float = 0.0
    foretells: tuple[Kind, ...] = ()

    def plan(
        self,
        id: str,
        *,
        seed: int = 0,
        at: float = 0.0,
        priority: float = 1.0,
        deadline: float | None = None,
        tells: bool = True,
        known_as: str = "",
    ) -> PlannedJob:
        """The job's stages, one by one.

        Stages of jobs that are `known_as` the same are expected to take equally long.  Those of no length are left out.
        """
        draw = random.Random(f"{seed}/{id}")
        here = Demand(cores=self.cores)
        demands = {
            "select": here,
            "build": Demand(cores=self.build_cores or self.cores),
            "profile": Demand(device=self.device, exclusive=True),
            "update": here,
        }
        lengths = {"select": self.select_s, "build": self.build_s, "profile": self.profile_s, "update": self.update_s}
        kinds = [kind for kind, seconds in lengths.items() if seconds > 0]
        closing = [("end", self.end_s, here), ("prove", self.prove_s, demands["profile"])]
        closing = [stage for stage in closing if stage[1] > 0]
        stages: list[PlannedStage] = []

        def key(kind: str) -> str:
            return f"{known_as or id}/{kind}"

        def add(
            name: str, kind: str, demand: Demand, seconds: float, after: tuple[str, ...], then: Demand | None
        ) -> None:
            own = kind not in ("build", "profile", "prove")
            stage = Stage(name, id, kind, demand, id if own else None, key(kind), after=after, then=then)
            stages.append(PlannedStage(stage, seconds * self.stretch * self._scatter(draw)))

        if self.start_s > 0:
            add("start", "start", here, self.start_s, (), demands[kinds[0]] if kinds else None)
        for n in range(self.rounds):
            for position, kind in enumerate(kinds):
                if position:
                    after = f"{kinds[position - 1]}-{n}"
                elif n >= self.inflight:
                    after = f"{kinds[-1]}-{n - self.inflight}"
                else:
                    after = "start" if self.start_s > 0 else ""
                last = n == self.rounds - 1 and position == len(kinds) - 1
                follows = (
                    closing[0][2] if last and closing else None if last else demands[kinds[(position + 1) % len(kinds)]]
                )
                add(f"{kind}-{n}", kind, demands[kind], lengths[kind], (after,) if after else (), follows)
        ends = tuple(f"{kinds[-1]}-{n}" for n in range(max(0, self.rounds - self.inflight), self.rounds) if kinds)
        for position, (kind, seconds, demand) in enumerate(closing):
            follows = closing[position + 1][2] if position + 1 < len(closing) else None
            add(kind, kind, demand, seconds, ends, follows)
            ends = (kind,)
        foretold = {key(kind): getattr(self, f"{kind}_s") * self.stretch for kind in self.foretells}
        return PlannedJob(id, tuple(stages), at, priority, deadline, tells, foretold)

    def _scatter(self, draw: random.Random) -> float:
        return draw.lognormvariate(-(self.spread**2) / 2, self.spread) if self.spread else 1.0
