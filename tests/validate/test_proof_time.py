"""Estimates beside proofs that were made: their seconds are of this project's runs of 2026-11-22 and 23, two cores."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kintune.core.stage_requests import ValidationContext
from kintune.validate.validation import seconds_of_proof

CONDITIONS = ValidationContext(threads=2)


@pytest.mark.parametrize(
    ("tuned_ms", "untuned_ms", "rivals", "took_s"),
    [
        (17.09, 3920.71, 0, 7.0),
        (3.6, 174.92, 0, 13.9),
        (35.46, 16667.5, 0, 22.7),
        (36.12, 6949.3, 0, 11.6),
        (18.68, 4530.2, 0, 10.5),
        (2.76, 42.9, 1, 6.3),
        (230.46, 28126.02, 1, 70.5),
    ],
)
def test_an_estimate_is_near_what_proofs_took(tuned_ms: float, untuned_ms: float, rivals: int, took_s: float) -> None:
    told = seconds_of_proof(CONDITIONS, tuned_s=tuned_ms / 1e3, untuned_s=untuned_ms / 1e3, rivals=rivals)
    assert took_s / 1.4 < told < took_s * 1.4


seconds = st.floats(1e-6, 1e3)


@given(seconds, seconds, st.floats(1, 10), st.integers(0, 3))
def test_who_is_slower_takes_longer(tuned_s: float, untuned_s: float, times: float, rivals: int) -> None:
    def told(tuned_s: float, rivals: int = rivals) -> float:
        return seconds_of_proof(CONDITIONS, tuned_s=tuned_s, untuned_s=untuned_s, rivals=rivals)

    assert told(tuned_s) <= told(tuned_s * times) * (1 + 1e-9)
    assert told(tuned_s) < told(tuned_s, rivals + 1)


def test_an_untuned_network_that_is_cut_off_takes_no_longer_than_that() -> None:
    told = [seconds_of_proof(CONDITIONS, tuned_s=0.01, untuned_s=untuned_s, rivals=0) for untuned_s in (60.0, 6000.0)]
    assert told[0] == told[1]
