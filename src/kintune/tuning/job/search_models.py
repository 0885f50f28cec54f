"""The trained cost models of a search: read as they were committed, or trained again where their bytes are lost."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from kintune.core.knowledge import Knowledge, TrainedModel
from kintune.core.stage_results import Updated
from kintune.search.cost_model import CostModel, Trees
from kintune.search.session import SearchSession

__all__ = ["SearchModels", "readable"]


class SearchModels:
    """The cost models that the search takes from committed events; those whose bytes are lost are trained again."""

    def __init__(self) -> None:
        self._lost: set[str] = set()  # families

    def lose(self, families: Iterable[str]) -> None:
        """Note that the models of these families are to be trained before the next selection."""
        self._lost.update(families)

    def retrain(self, session: SearchSession) -> None:
        """Train the models that were lost with an earlier process; the same samples give the same models."""
        if self._lost:
            session.adopt(session.train(sorted(self._lost)), rounds=())
            self._lost.clear()

    def adopt(self, updated: Updated, session: SearchSession) -> None:
        """Give the search the models of an update."""
        models: dict[str, CostModel] = {}
        for version in updated.versions:
            blob = updated.blobs.get(version.blob)
            if blob is None:
                self._lost.add(version.family)
            else:
                models[version.family] = Trees.from_bytes(TrainedModel.from_bytes(blob).trees)
                self._lost.discard(version.family)
        session.adopt(models, updated.families, updated.rounds)


def readable(knowledge: Knowledge) -> Knowledge:
    """Return the knowledge without the models that cannot be read."""
    return msgspec.structs.replace(
        knowledge, models=tuple(model for model in knowledge.models if Trees.can_read(model.blob))
    )
