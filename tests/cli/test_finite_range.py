from __future__ import annotations

import click
import pytest

from kintune.cli.finite_range import FiniteRange


@pytest.mark.parametrize("said", ["nan", "inf", "-inf", "1e999", "-1", "x"])
def test_what_is_no_finite_number_in_the_range_is_refused(said: str) -> None:
    with pytest.raises(click.BadParameter):
        FiniteRange(min=0).convert(said, None, None)


def test_other_numbers_are_taken() -> None:
    assert FiniteRange(0, 10).convert("2.5", None, None) == 2.5
