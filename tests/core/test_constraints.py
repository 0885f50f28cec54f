"""Options are declared once, and values are checked against what is declared."""

from __future__ import annotations

import math
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kintune.core.config import COMPILE_FIELDS, PolicyName, TuneConfig
from kintune.core.constraints import check_fields, fields_of
from kintune.errors import InputError
from kintune.scheduler.policies import POLICIES


def test_every_option_has_a_help_and_a_default_within_its_limits() -> None:
    fields = fields_of(TuneConfig)
    assert all(field.help for field in fields.values())
    assert {*COMPILE_FIELDS} < {*fields}
    check_fields(TuneConfig())


def test_the_policies_are_those_of_the_scheduler() -> None:
    assert {*get_args(PolicyName)} == {*POLICIES}


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"trials": 0}, "trials must be 1 or more, and is 0"),
        ({"trials": 1 << 63}, "trials must be less than 2"),
        ({"trials": 10**5000}, "trials is out of range"),
        ({"minutes": 10**400}, "minutes is out of range"),
        ({"trials": 2.0}, "trials must be a whole number, and is 2.0"),
        ({"trials": True}, "trials must be a whole number, and is True"),
        ({"minutes": math.inf}, "minutes must be more than 0, and is inf"),
        ({"rtol": -0.5}, "rtol must be 0 or more, and is -0.5"),
        ({"rtol": "small"}, "rtol must be a number, and is 'small'"),
        ({"foresee": "always"}, "unknown foresee 'always'; use one of: none, published, guarded"),
        ({"fresh": 1}, "fresh must be true or false, and is 1"),
        ({"families": 3}, "families must be a text, and is 3"),
    ],
)
def test_a_value_out_of_its_limits_is_named(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said.replace(".", r"\.")):
        check_fields(TuneConfig(**wrong))


@given(st.integers() | st.none(), st.floats() | st.none())
def test_what_passes_is_within_the_limits(trials: int | None, minutes: float | None) -> None:
    try:
        check_fields(TuneConfig(trials=trials, minutes=minutes))
    except InputError:
        assert (trials is not None and not 1 <= trials < 1 << 63) or (
            minutes is not None and not (0 < minutes < math.inf)
        )
    else:
        assert trials is None or 1 <= trials < 1 << 63
        assert minutes is None or 0 < minutes < math.inf
