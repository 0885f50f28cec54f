"""What a simulated job will do: its stages, in which order they can run, and how long each takes alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from kintune.core.stage import Stage
from kintune.errors import InputError

__all__ = ["PlannedJob", "PlannedStage", "check"]


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
    """See that the jobs can be played.

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
