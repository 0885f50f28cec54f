from __future__ import annotations

import pytest

from kintune.core.config import Strategy
from kintune.errors import InputError
from kintune_lab.bench.strategy import STRATEGY, strategy_of

DEFAULTS = {name: option.default for name, option in STRATEGY.items()}


def test_every_factor_of_a_search_is_an_option() -> None:
    assert set(STRATEGY) == set(Strategy.__struct_fields__)
    assert strategy_of(DEFAULTS) == Strategy()


@pytest.mark.parametrize(("text", "levels"), [("none", ()), ("8", (8,)), ("2,6", (2, 6)), (" 1, 3 , 4", (1, 3, 4))])
def test_the_rounds_of_a_survey_are_numbers_separated_by_commas(text: str, levels: tuple[int, ...]) -> None:
    assert strategy_of({**DEFAULTS, "survey": STRATEGY["survey"].accept(text)}).survey == levels


@pytest.mark.parametrize("text", ["", "few", "1, 0", "1,,4", "-3", "5000", "1.5"])
def test_other_surveys_are_refused(text: str) -> None:
    with pytest.raises(InputError, match="'none' or whole numbers, separated by commas, of 1 to 4096"):
        STRATEGY["survey"].accept(text)
