"""Stages: pieces of a job's work as the scheduler knows them, with the resources that they demand."""

from __future__ import annotations

from typing import TypeAlias

import msgspec

__all__ = ["Demand", "Stage", "StageKey"]

StageKey: TypeAlias = tuple[str, str]
"""(job, stage id), which identifies a stage among those of all jobs."""


class Demand(msgspec.Struct, frozen=True, cache_hash=True, gc=False):
    """What a stage needs while it runs.

    `cores` and `memory_mb` are taken from a host.  `device` names a device type (any device of that type will do);
    an `exclusive` stage has its device alone, and with it the host cores on which that device lives.
    """

    cores: int = 0
    memory_mb: int = 0
    device: str | None = None
    exclusive: bool = False


class Stage(msgspec.Struct, frozen=True, gc=False):
    """One schedulable piece of a job.

    `kind` and `duration_key` are opaque labels: stages of one kind of one job are never reordered, and stages with
    equal duration keys are expected to take equally long.  `affinity` names the process that must run it (its job's),
    or is None when any worker of its kind may.  `after` lists the stages of the same job that must be done before.
    `then` is the demand of the stage that will follow this one, if the job knows it.  `attempt` counts from 0; a result
    is accepted only for the attempt that is running.
    """

    id: str
    job: str
    kind: str
    demand: Demand
    affinity: str | None = None
    duration_key: str = ""
    attempt: int = 0
    after: tuple[str, ...] = ()
    then: Demand | None = None

    @property
    def key(self) -> StageKey:
        """Its name among the stages of all jobs."""
        return (self.job, self.id)
