"""What a search learns from its rounds."""

from __future__ import annotations

from typing import NamedTuple

from kintune.search.cost_model import Trees

__all__ = ["Learnt"]


class Learnt(NamedTuple):
    """What an update yields.

    Trained models by family, the family of each workload where that has changed, and the rounds that were learnt from.
    """

    models: dict[str, Trees]
    families: dict[str, str]
    rounds: tuple[int, ...]
