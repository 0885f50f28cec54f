"""The cost model argument of the stock tuner, one model a family (FamilySeer, arXiv 2201.00194)."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray
from tvm.ir.utils import derived_object
from tvm.s_tir import meta_schedule as ms
from tvm.s_tir.meta_schedule.cost_model.xgb_model import FeatureGroup

from kintune.errors import InputError
from kintune.integrations.stock.archive import Archive, read_archive, write_archive
from kintune.integrations.stock.family_model import FamilyModel, FamilyModelSettings
from kintune.integrations.stock.members import TaskMembers, samples_of
from kintune.search.family import Families, Samples, families

__all__ = ["FamilyCostModel"]


@derived_object
class _FamilyRouter(ms.cost_model.PyCostModel):  # type: ignore[misc]
    """Passes each task's samples and predictions to the model of its family.

    Measurements may change the families.  Then the samples of the tasks that changed theirs move to the new family's
    model, and both models are trained again.
    """

    def __init__(self, algorithm: str, settings: FamilyModelSettings) -> None:
        super().__init__()
        self.algorithm = algorithm
        self._settings = settings
        self._random = np.random.default_rng(settings.seed)
        self._grouping = _grouping_of(algorithm, settings)
        self._members = TaskMembers()
        self._families: dict[str, str] = {}
        self._models: dict[str, FamilyModel] = {}

    def family(self, context: ms.TuneContext) -> str:
        """The key of the family that a task belongs to now."""
        member = self._members.of(context)
        if member.subject.workload not in self._families:
            self._regroup()
        return self._families[member.subject.workload]

    def is_ready(self, context: ms.TuneContext) -> bool:
        """Whether the model of a task's family has enough samples to predict."""
        model = self._models.get(self.family(context))
        return model is not None and model.is_ready

    def families(self) -> dict[str, tuple[str, ...]]:
        """The names of the tasks seen so far, by family."""
        found: dict[str, tuple[str, ...]] = {}
        for member in self._members.all():
            key = self._families[member.subject.workload]
            found[key] = (*found.get(key, ()), member.name)
        return found

    def update(
        self,
        context: ms.TuneContext,
        candidates: Sequence[ms.MeasureCandidate],
        results: Sequence[ms.runner.RunnerResult],
    ) -> None:
        """Learn from measured candidates of one task."""
        self._model(self.family(context)).update(context, candidates, results)
        if self._grouping.dynamic:
            self._regroup()

    def predict(self, context: ms.TuneContext, candidates: Sequence[ms.MeasureCandidate]) -> NDArray[np.float64]:
        """Scores, shape (len(candidates),), higher is faster; drawn at random until the family has a model."""
        if not self.is_ready(context):
            return self._random.uniform(size=len(candidates))
        return self._models[self.family(context)].predict(context, candidates)

    def archive(self) -> Archive:
        """The state to be saved: members, samples and trees."""
        members = {m.key: (m, self._families[m.subject.workload]) for m in self._members.all()}
        trees = {family: model.to_bytes() for family, model in self._models.items()}
        return Archive(self.algorithm, members, self._samples(), trees)

    def restore(self, archive: Archive) -> None:
        """Replace the state by an archive's; models of families whose members differ from the archive's are trained."""
        members = TaskMembers()
        models: dict[str, FamilyModel] = {}
        for member, _ in archive.members.values():
            members.add(member)
        same = archive.algorithm == self.algorithm
        previous = {m.subject.workload: family for m, family in archive.members.values()} if same else {}
        grouping = _grouping_of(self.algorithm, self._settings)
        now = grouping.group(_evidence(members, archive.samples), previous)
        for key, group in archive.samples.items():
            family = now[archive.members[key][0].subject.workload]
            models.setdefault(family, FamilyModel(self._settings)).give(key, group)
        for family, model in models.items():
            trained_on = {key for key in archive.samples if archive.members[key][1] == family}
            if same and family in archive.trees and trained_on == set(model.groups):
                model.adopt(archive.trees[family])
            else:
                model.train()
        self._grouping, self._members, self._families, self._models = grouping, members, now, models

    def _model(self, family: str) -> FamilyModel:
        if family not in self._models:
            self._models[family] = FamilyModel(self._settings)
        return self._models[family]

    def _samples(self) -> dict[str, FeatureGroup]:
        return {key: group for model in self._models.values() for key, group in model.groups.items()}

    def _regroup(self) -> None:
        """Group the tasks again; the samples of tasks that changed their family move to its model."""
        before = self._families
        self._families = self._grouping.group(_evidence(self._members, self._samples()), before)
        changed: set[str] = set()
        for member in self._members.all():
            old, new = before.get(member.subject.workload), self._families[member.subject.workload]
            group = self._models[old].take(member.key) if old != new and old in self._models else None
            if group is not None:
                self._model(new).give(member.key, group)
                changed |= {str(old), new}
        for family in sorted(changed):
            if self._models[family].samples:
                self._models[family].train()
            else:
                del self._models[family]


def _grouping_of(algorithm: str, settings: FamilyModelSettings) -> Families:
    """The family algorithm of that name."""
    return families(algorithm, seed=settings.seed, threads=settings.threads or 1)


def _evidence(members: TaskMembers, samples: Mapping[str, FeatureGroup]) -> list[Samples]:
    """The samples of each workload, perhaps none, in the order in which the workloads were seen."""
    found = {m.subject.workload: samples_of(m.subject, samples.get(m.key)) for m in members.all()}
    return list(found.values())


class FamilyCostModel(_FamilyRouter):
    """A cost model for `tune_relax(cost_model=...)`: one of stock's XGBoost models a family.

    `families` names the algorithm that says which tasks belong to one family: `op` (the same core operator), `hash`
    (the same operators in the same order), `ind` (each task alone), `none` (all, as in stock), `measured` (tasks whose
    samples rank one another well, revised as samples arrive).  Scores are drawn at random until a family has
    `warmup_samples`; stock's single model waits for 100.  `threads` are for training, one a physical core unless given.

    Works with any task scheduler.  Not to be shared by tuning runs that proceed at the same time.
    """

    def __init__(
        self,
        families: str = "op",
        *,
        warmup_samples: int = 64,
        seed: int = 43,
        threads: int | None = None,
    ) -> None:
        """Check the settings.

        Raises:
            InputError: the family algorithm is unknown, or a number is out of range.
        """
        if warmup_samples < 1 or (threads is not None and threads < 1):
            raise InputError(f"warmup_samples={warmup_samples}, threads={threads}: use at least 1")
        super().__init__(families, FamilyModelSettings(warmup_samples, seed, threads))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write samples and models to a file.

        Raises:
            InputError: it cannot be written.
        """
        write_archive(path, self._inst.archive())

    def load(self, path: str | os.PathLike[str]) -> None:
        """Replace the state by that of a file.

        Raises:
            InputError: the file is damaged, or no file of family models.
        """
        self._inst.restore(read_archive(path))
