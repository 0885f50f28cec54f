"""How long validations take by estimate."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kintune.core.stage_requests import ValidationContext
from kintune.validate.estimate import estimate_validation_s
from kintune.validate.validation_run import SLOW_UNTUNED_SECONDS

CONDITIONS = ValidationContext(threads=2)


@pytest.mark.parametrize(
    ("tuned_ms", "untuned_ms", "baselines", "took_s"),
    [
        (17.09, 3920.71, 0, 7.0),
        (3.6, 174.92, 0, 13.9),
        (35.46, 16667.5, 0, 22.7),
        (36.12, 6949.3, 0, 11.6),
        (18.68, 4530.2, 0, 10.5),
        (2.76, 42.9, 1, 6.3),
        (230.46, 28126.02, 1, 70.5 - 28.1),  # the run of the untuned network is no longer made
    ],
)
def test_an_estimate_is_near_what_validations_took(
    tuned_ms: float, untuned_ms: float, baselines: int, took_s: float
) -> None:
    """The seconds are of validations that ran on 2026-11-22 and 23, on two cores, when no threads were chosen."""
    conditions = msgspec.structs.replace(CONDITIONS, threads=1)
    told = estimate_validation_s(conditions, tuned_s=tuned_ms / 1e3, untuned_s=untuned_ms / 1e3, baselines=baselines)
    assert took_s / 1.4 < told < took_s * 1.4


seconds = st.floats(1e-6, 1e3)


@given(seconds, seconds, st.floats(1, 10), st.integers(0, 3))
def test_who_is_slower_takes_longer(tuned_s: float, untuned_s: float, times: float, baselines: int) -> None:
    def told(tuned_s: float, baselines: int = baselines) -> float:
        return estimate_validation_s(CONDITIONS, tuned_s=tuned_s, untuned_s=untuned_s, baselines=baselines)

    assert told(tuned_s) <= told(tuned_s * times) * (1 + 1e-9)
    if baselines or untuned_s <= SLOW_UNTUNED_SECONDS:
        assert told(tuned_s) < told(tuned_s, baselines + 1)


def test_an_untuned_network_that_is_cut_off_takes_no_longer_than_that() -> None:
    told = [
        estimate_validation_s(CONDITIONS, tuned_s=0.01, untuned_s=untuned_s, baselines=0)
        for untuned_s in (60.0, 6000.0)
    ]
    assert told[0] == told[1]
