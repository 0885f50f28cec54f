from __future__ import annotations

from collections.abc import Mapping

import pytest

from kintune.errors import InputError
from kintune_lab.bench.experiments import EXPERIMENTS, experiment_of
from kintune_lab.experiment.option import Option


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_an_experiment_offers_what_the_runner_asks_of_it(name: str) -> None:
    experiment = experiment_of(name)
    assert experiment.name == name
    assert experiment.version >= 1
    assert experiment.summary.endswith(".")
    for options in (experiment.options, *experiment.methods.values()):
        assert not {"name", "label"} & set(options)
        _check(options)
    assert list(experiment.report({})) is not None


def _check(options: Mapping[str, Option]) -> None:
    for name, option in options.items():
        assert name.isidentifier()
        assert option.help
        assert not (option.required and option.default is not None)
        if option.default is not None:
            assert option.accept(option.default) == option.default
            assert type(option.accept(option.default)) is type(option.default)


def test_an_unknown_experiment_is_named_with_those_there_are() -> None:
    with pytest.raises(InputError, match=r"no experiment 'tuna'; did you mean 'tune'\?"):
        experiment_of("tuna")
    with pytest.raises(InputError, match="there are tune, race"):
        experiment_of("x")
