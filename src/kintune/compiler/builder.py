"""Builds candidates for one target, keeping parsed what the candidates of a workload share."""

from __future__ import annotations

import json
from collections import OrderedDict

import tvm

from kintune.compiler.build import build_module
from kintune.compiler.space.generator import default_schedule
from kintune.compiler.space.intrinsics import load_intrinsics
from kintune.compiler.space.lower import Replayer, load_workload
from kintune.core.candidate import UNTUNED, Candidate
from kintune.core.kernels import BuildContext, Built
from kintune.errors import BuildError
from kintune.runtime.target import untuned_target

__all__ = ["Builder"]


class Builder:
    """Builds candidates for one target.

    A workload is parsed, and its replayer set up, once; the `capacity` workloads used last are kept.
    """

    def __init__(self, target: str, capacity: int = 32) -> None:
        """`target` is a canonical target (JSON)."""
        load_intrinsics()
        self._target = tvm.target.Target(json.loads(target))
        self._capacity = capacity
        self._replayers: OrderedDict[str, Replayer] = OrderedDict()

    def build(self, context: BuildContext, candidate: Candidate) -> Built:
        """Build one candidate of a stage.

        Raises:
            BuildError: the stage lacks its workload or sketch, or it makes no program that compiles.
        """
        replayer, target = self._replayer(context, candidate.workload), self._target
        if candidate.sketch == UNTUNED:
            target = untuned_target(target)
            scheduled = default_schedule(replayer.module, target)
        elif (sketch := context.sketches.get(candidate.sketch)) is not None:
            scheduled = replayer(sketch, candidate).schedule.mod
        else:
            raise BuildError(f"the stage has no sketch {candidate.sketch}, which candidate {candidate.digest} fills in")
        return build_module(target, replayer.module, scheduled, candidate.digest)

    def _replayer(self, context: BuildContext, workload: str) -> Replayer:
        replayer = self._replayers.get(workload)
        if replayer is None:
            if workload not in context.workloads:
                raise BuildError(f"the stage has no workload {workload}")
            replayer = self._replayers[workload] = Replayer(load_workload(context.workloads[workload]), self._target)
        self._replayers.move_to_end(workload)
        while len(self._replayers) > self._capacity:
            self._replayers.popitem(last=False)
        return replayer
