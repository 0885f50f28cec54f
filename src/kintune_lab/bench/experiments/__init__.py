"""The kinds of experiments by name; each is imported when it is asked for.

An experiment's module offers `EXPERIMENT`, a `kintune_lab.experiment.experiment.Experiment`.
"""

from __future__ import annotations

from difflib import get_close_matches
from importlib import import_module

from kintune.errors import InputError
from kintune_lab.experiment.experiment import Experiment

__all__ = ["EXPERIMENTS", "experiment_of"]

EXPERIMENTS: dict[str, str] = {
    "tune": "kintune_lab.bench.experiments.tune",
    "race": "kintune_lab.bench.experiments.race",
    "accuracy": "kintune_lab.bench.experiments.accuracy",
    "replay": "kintune_lab.bench.experiments.replay",
    "families": "kintune_lab.bench.experiments.families",
    "compare": "kintune_lab.bench.experiments.compare",
}
"""Name -> module."""


def experiment_of(name: str) -> Experiment:
    """The experiment called `name`.

    Raises:
        InputError: there is none; the message names those there are.
    """
    module = EXPERIMENTS.get(name)
    if module is None:
        close = get_close_matches(name, EXPERIMENTS, n=1)
        hint = f"did you mean {close[0]!r}?" if close else f"there are {', '.join(EXPERIMENTS)}"
        raise InputError(f"there is no experiment {name!r}; {hint}")
    found: Experiment = import_module(module).EXPERIMENT
    return found
