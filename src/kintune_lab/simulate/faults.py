"""What goes wrong in a simulation, drawn beforehand from a seed."""

from __future__ import annotations

import random
from collections.abc import Sequence

import msgspec

from kintune.core.stage import Stage
from kintune.scheduler.resources import Resource
from kintune_lab.simulate.plan import PlannedJob

__all__ = ["NO_FAULTS", "Faults", "Outage"]


class Outage(msgspec.Struct, frozen=True):
    """A resource that is lost for a while."""

    resource: str
    at: float
    seconds: float
    cause: str = "no answer"


class Faults(msgspec.Struct, frozen=True):
    """How often things go wrong.

    An attempt of a stage fails with probability `failing`, a job is cancelled at some time with probability
    `cancelled`, a resource is lost `outages_each` times on average within `span_s` seconds, for `outage_s` on average.
    The same seed brings the same faults, whatever the policy.
    """

    seed: int = 0
    failing: float = 0.0
    cancelled: float = 0.0
    outages_each: float = 0.0
    outage_s: float = 60.0
    span_s: float = 3600.0

    def fails(self, stage: Stage, attempt: int) -> bool:
        """Whether this attempt fails."""
        return self.failing > 0 and self._draw(stage.job, stage.id, str(attempt)).random() < self.failing

    def cancelled_after(self, job: PlannedJob) -> float | None:
        """How many seconds after its arrival somebody cancels the job, if anybody does."""
        if not self.cancelled:
            return None
        draw = self._draw(job.id, "cancelled")
        return draw.uniform(0.0, self.span_s) if draw.random() < self.cancelled else None

    def outages(self, resources: Sequence[Resource]) -> list[Outage]:
        """All outages; those of one resource do not overlap."""
        found: list[Outage] = []
        for resource in resources if self.outages_each else ():
            draw = self._draw(resource.id, "outage")
            now = draw.expovariate(self.outages_each / self.span_s)
            while now < self.span_s:
                seconds = draw.expovariate(1 / self.outage_s)
                found.append(Outage(resource.id, now, seconds))
                now += seconds + draw.expovariate(self.outages_each / self.span_s)
        return sorted(found, key=lambda outage: (outage.at, outage.resource))

    def _draw(self, *about: str) -> random.Random:
        return random.Random("/".join((str(self.seed), *about)))


NO_FAULTS = Faults()
"""Nothing goes wrong."""
