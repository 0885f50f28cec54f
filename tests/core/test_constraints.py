"""Options are declared once, and values are checked against what is declared."""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal, get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kintune.core.config import COMPILE_FIELDS, PolicyName, TuneConfig
from kintune.core.constraints import Section, Shown, check_fields, described, fields_of, limited, option
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
        ({"target": 3}, "target must be a text, and is 3"),
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


class Limited(msgspec.Struct):
    """A field of each kind of limit."""

    share: Annotated[float, msgspec.Meta(gt=0.0, le=1.0)] = 0.5
    count: Annotated[int | None, msgspec.Meta(ge=2, le=5)] = None
    size: int = 0
    bits: Literal[4, 8] = 4
    only: Literal["one"] = "one"


@given(
    share=st.sampled_from([0.0, 1.0]) | st.floats(-2.0, 2.0) | st.integers(-1, 2),
    count=st.integers(0, 7) | st.none(),
    bits=st.integers(3, 9),
)
def test_a_value_passes_if_and_only_if_it_is_within_its_limits(share: float, count: int | None, bits: int) -> None:
    right = 0 < share <= 1 and (count is None or 2 <= count <= 5) and bits in (4, 8)
    try:
        check_fields(Limited(share, count, bits=bits))  # type: ignore[arg-type]
    except InputError:
        assert not right
    else:
        assert right


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"only": "two"}, "unknown only 'two'; use one of: one"),
        ({"count": 1234567}, "count must be 2 or more and at most 5, and is 1234567"),
        ({"share": 1.23456789}, "share must be more than 0 and at most 1, and is 1.23457"),
        ({"share": 1.5}, "share must be more than 0 and at most 1, and is 1.5"),
        ({"count": 6}, "count must be 2 or more and at most 5, and is 6"),
        ({"count": 1.0}, "count must be a whole number, and is 1.0"),
        ({"share": True}, "share must be a number, and is True"),
        ({"bits": 5}, "bits must be 4 or 8, and is 5"),
        ({"bits": 4.0}, "bits must be 4 or 8, and is 4.0"),
        ({"bits": True}, "bits must be 4 or 8, and is True"),
        ({"size": 1 << 63}, "size must be less than 2**63, and is 9223372036854775808"),
        ({"size": 1 << 1000}, "size is out of range: it has 1001 bits"),
        ({"size": (1 << 1000) - 1}, f"size must be less than 2**63, and is {(1 << 1000) - 1}"),
    ],
)
def test_the_line_on_a_limit_says_all_of_it(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError) as raised:
        check_fields(Limited(**wrong))
    assert str(raised.value) == said
    check_fields(Limited(size=(1 << 63) - 1))


def test_a_field_without_a_default_has_none() -> None:
    class Required(msgspec.Struct):
        name: str
        count: int | None = 3
        size: int | None = None

    fields = fields_of(Required)
    assert (fields["name"].default, fields["name"].optional, fields["name"].kind) == (None, False, str)
    assert (fields["count"].default, fields["count"].optional, fields["count"].kind) == (3, True, int)
    assert (fields["size"].kind, fields["size"].optional) == (int, True)


class Told(msgspec.Struct):
    """Options that are told in each way."""

    size: Annotated[int, option("Its size.", Section.TARGET, ge=1, told="of size {}", without="any size")] = 1
    of_whom: Annotated[str, option("Its owner.", Section.OTHER)] = "a"
    quiet: Annotated[int, option("Told elsewhere.", Section.OTHER, told="")] = 0
    plain: int = 0


def test_options_that_are_not_the_default_are_told() -> None:
    assert described(Told()) == []
    assert described(Told(size=2, quiet=3, plain=4)) == ["of size 2"]
    assert described(Told(of_whom="b")) == ["Of whom: b"]


def test_an_option_has_its_limits_and_how_it_is_shown() -> None:
    shown = Shown(section=Section.TARGET, told="of size {}", without="any size")
    assert fields_of(Told)["size"].meta == msgspec.Meta(description="Its size.", ge=1, extra={"shown": shown})
    assert fields_of(Told)["plain"].shown == Shown(told="")


def test_a_limited_option_has_other_limits_and_is_shown_alike() -> None:
    shown = Shown(section=Section.TARGET, told="of size {}")
    expected = msgspec.Meta(description="Its size.", gt=0, le=9, extra={"shown": shown})
    assert limited(Told, "size", gt=0, le=9) == expected
