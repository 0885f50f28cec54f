from __future__ import annotations

import pytest

from kintune_lab.bench.forecast import seconds_left


def test_expectations_are_corrected_by_how_they_held() -> None:
    assert seconds_left([10.0, 20.0], []) == 30.0
    assert seconds_left([10.0, 20.0], [(5.0, 10.0), (1.0, 2.0)]) == 60.0


def test_a_cell_of_which_nothing_is_known_is_like_those_before() -> None:
    assert seconds_left([None, None], [(None, 7.0), (None, 9.0)]) == 16.0
    assert seconds_left([None, 10.0], [(10.0, 30.0)]) == pytest.approx(60.0)


def test_without_any_ground_nothing_is_said() -> None:
    assert seconds_left([None], []) is None
    assert seconds_left([], []) == 0.0
