"""Import each model of a spec once, in a process of the tuner's own, before the first cell is run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TypeAlias

from kintune.core.stage_results import Prepared
from kintune.errors import InputError, KintuneError
from kintune.models.ref import parse_ref
from kintune.tuning.estimation import preparing
from kintune_lab.experiment.experiment import ModelFacts
from kintune_lab.spec.errors import SpecError

__all__ = ["Importer", "check_imports", "import_models"]

Importer: TypeAlias = Callable[[str], ModelFacts]
"""Imports the model that a spec names; raises InputError when it cannot be used, KintuneError when that crashes."""


def import_models(texts: Iterable[str], say: Callable[[str], None], places: Mapping[str, str]) -> dict[str, ModelFacts]:
    """Import and split each model as a tuning job would, on cores of which nobody else is timing anything.

    `say` is told what is going on; `places` has what an error about a model begins with.  Raises SpecError naming line
    and model for the first that cannot be used.
    """
    wanted = list(dict.fromkeys(texts))
    if not wanted:
        return {}
    with preparing(on_wait=lambda holder: say(f"waiting for the cores, held by process {holder}")) as prepare:

        def importer(text: str) -> ModelFacts:
            say(f"importing {text}")
            return _facts(prepare(parse_ref(text)))

        return check_imports(wanted, importer, places)


def check_imports(texts: Iterable[str], importer: Importer, places: Mapping[str, str]) -> dict[str, ModelFacts]:
    """What `importer` finds out about each model; SpecError for the first that it cannot import."""
    facts: dict[str, ModelFacts] = {}
    for text in texts:
        try:
            facts[text] = importer(text)
        except KintuneError as error:
            raise SpecError(f"{places.get(text, '')}cannot be imported: {error}") from error
    return facts


def _facts(prepared: Prepared) -> ModelFacts:
    if not prepared.subgraphs:
        raise InputError("it has no subgraph to tune")
    return ModelFacts(
        subgraphs=len(prepared.subgraphs),
        tunable=sum(subgraph.tunable for subgraph in prepared.subgraphs),
        flops=sum(subgraph.weight * subgraph.flops for subgraph in prepared.subgraphs),
    )
