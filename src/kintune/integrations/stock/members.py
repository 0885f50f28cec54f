"""The tasks of a stock tuner as members of families."""

from __future__ import annotations

import math

import msgspec
import numpy as np
from tvm.s_tir import meta_schedule as ms
from tvm.s_tir.meta_schedule.cost_model.xgb_model import FeatureGroup
from tvm.s_tir.meta_schedule.utils import shash2hex

from kintune.compiler.graph.workload import describe, standalone
from kintune.compiler.space.features import pooled
from kintune.search.family import Samples, Subject
from kintune.search.training_rows import STORES

__all__ = ["TaskMember", "TaskMembers", "samples_of"]


class TaskMember(msgspec.Struct, frozen=True):
    """A task: `key` is the structural hash under which stock has its samples, `subject` what family algorithms read."""

    key: str
    name: str
    subject: Subject


class TaskMembers:
    """All tasks seen so far; each is described once."""

    def __init__(self) -> None:
        self._known: dict[str, TaskMember] = {}

    def of(self, context: ms.TuneContext) -> TaskMember:
        """Return the member of a tuning context's task; its number of occurrences is not known here and is 1."""
        key = str(shash2hex(context.mod))
        member = self._known.get(key)
        if member is None:
            name = str(context.task_name)
            workload = describe(name, standalone(context.mod["main"]))
            flops = workload.flops if math.isfinite(workload.flops) else 0.0
            subject = Subject(workload.digest, 1, flops, workload.operator, workload.signature)
            member = self._known[key] = TaskMember(key, name, subject)
        return member

    def add(self, member: TaskMember) -> None:
        """Add a member that was described before, in a saved file."""
        self._known[member.key] = member

    def all(self) -> tuple[TaskMember, ...]:
        """All members, in the order in which they were seen."""
        return tuple(self._known.values())


_FAILED_SECONDS = 1e9  # stock records a failure as a run of 1e10 seconds


def samples_of(subject: Subject, group: FeatureGroup | None) -> Samples:
    """Return stock's samples of one task as Kintune's: features of shape (n, `STORES`) and labels of shape (n,)."""
    if group is None:
        return Samples(subject, np.zeros((0, STORES), np.float32), np.zeros(0, np.float32))
    features = np.stack([pooled(stores) for stores in group.features])
    labels = np.where(group.costs < _FAILED_SECONDS, group.min_cost / group.costs, 0.0)
    return Samples(subject, features, labels.astype(np.float32))
