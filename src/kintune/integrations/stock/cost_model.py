"""The cost model argument of the stock tuner, one model a family (FamilySeer, arXiv 2201.00194)."""

from __future__ import annotations

import os
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from tvm.ir.utils import derived_object
from tvm.s_tir import meta_schedule as ms

from kintune.errors import InputError
from kintune.integrations.stock.archive import Archive, read_archive, write_archive
from kintune.integrations.stock.family_model import FamilyModel, Settings
from kintune.integrations.stock.members import Members
from kintune.search.family import family_of

__all__ = ["FamilyCostModel"]


@derived_object
class _Router(ms.cost_model.PyCostModel):  # type: ignore[misc]
    """Hands each task's samples and questions to the model of its family."""

    def __init__(self, families: str, settings: Settings) -> None:
        super().__init__()
        self.algorithm = families
        self._family_of = family_of(families)
        self._settings = settings
        self._random = np.random.default_rng(settings.seed)
        self._members = Members()
        self._families: dict[str, str] = {}
        self._models: dict[str, FamilyModel] = {}

    def family(self, context: ms.TuneContext) -> str:
        """The key of the family that a task belongs to now."""
        member = self._members.of(context)
        if member.key not in self._families:
            self._families[member.key] = self._family_of(member.subject)
        return self._families[member.key]

    def is_ready(self, context: ms.TuneContext) -> bool:
        """Whether a task's family has samples enough for its model to be asked."""
        model = self._models.get(self.family(context))
        return model is not None and model.is_ready

    def families(self) -> dict[str, tuple[str, ...]]:
        """The names of the tasks seen so far, by family."""
        found: dict[str, tuple[str, ...]] = {}
        for member in self._members.all():
            key = self._families[member.key]
            found[key] = (*found.get(key, ()), member.name)
        return found

    def update(
        self,
        context: ms.TuneContext,
        candidates: Sequence[ms.MeasureCandidate],
        results: Sequence[ms.runner.RunnerResult],
    ) -> None:
        """Learn from measured candidates of one task."""
        family = self.family(context)
        if family not in self._models:
            self._models[family] = FamilyModel(self._settings)
        self._models[family].update(context, candidates, results)

    def predict(self, context: ms.TuneContext, candidates: Sequence[ms.MeasureCandidate]) -> NDArray[np.float64]:
        """Scores, shape (len(candidates),), higher is faster; drawn at random until the family has a model."""
        if not self.is_ready(context):
            return self._random.uniform(size=len(candidates))
        return self._models[self.family(context)].predict(context, candidates)

    def archive(self) -> Archive:
        """All that it knows."""
        members = {member.key: (member, self._families[member.key]) for member in self._members.all()}
        samples = {key: group for model in self._models.values() for key, group in model.groups.items()}
        return Archive(self.algorithm, members, samples, {f: model.to_bytes() for f, model in self._models.items()})

    def restore(self, archive: Archive) -> None:
        """Forget all, and know what an archive knows; families of another algorithm's archive are trained anew."""
        members, families = Members(), {}
        models: dict[str, FamilyModel] = {}
        for member, _ in archive.members.values():
            members.add(member)
            families[member.key] = self._family_of(member.subject)
        for key, group in archive.samples.items():
            models.setdefault(families[key], FamilyModel(self._settings)).give(key, group)
        for family, model in models.items():
            if archive.algorithm == self.algorithm and family in archive.trees:
                model.adopt(archive.trees[family])
            else:
                model.train()
        self._members, self._families, self._models = members, families, models


class FamilyCostModel(_Router):
    """A cost model for `tune_relax(cost_model=...)`: one of stock's XGBoost models a family.

    `families` names the algorithm that says which tasks are kin: `op` (the same core operator), `hash` (the same
    operators in the same order), `ind` (none), `none` (all, as in stock).  A family is guessed at random until it has
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
        """Raises InputError for an unknown family algorithm or a number out of range."""
        if warmup_samples < 1 or (threads is not None and threads < 1):
            raise InputError(f"warmup_samples={warmup_samples}, threads={threads}: use at least 1")
        super().__init__(families, Settings(warmup_samples, seed, threads))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write samples and models to a file; raises InputError when it cannot be written."""
        write_archive(path, self._inst.archive())

    def load(self, path: str | os.PathLike[str]) -> None:
        """Know what was saved, and nothing else; raises InputError when the file is damaged or foreign."""
        self._inst.restore(read_archive(path))
