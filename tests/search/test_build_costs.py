from __future__ import annotations

import numpy as np

from kintune.search.build_costs import BuildCosts, patience_s

CHEAP, DEAR = 0.05, 1.6


def row(unrolled: bool, noise: float = 0.0) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    return np.array([512.0 if unrolled else 16.0, noise], np.float32)


def learnt(count: int = 64, seed: int = 0) -> BuildCosts:
    """Return the costs after `count` builds, of which every eighth takes long."""
    costs, rng = BuildCosts(seed=seed, threads=1), np.random.default_rng(7)
    for number in range(count):
        unrolled = number % 8 == 0
        costs.note(row(unrolled, float(rng.random())), DEAR if unrolled else CHEAP)
    return costs


ROWS = np.stack([row(False), row(True)])


def test_it_says_nothing_before_enough_was_built() -> None:
    assert learnt(63).price() is None
    assert learnt(64).price() is not None


def test_what_is_dear_is_worth_less_and_the_rest_all_of_its_score() -> None:
    price = learnt().price()
    assert price is not None
    cheap, dear = price(ROWS)
    assert cheap == 1.0
    assert (3 * CHEAP / DEAR) ** 0.25 < dear < 0.75  # few were dear, and trees are cautious


def test_where_the_fastest_programs_are_dear_nothing_else_is() -> None:
    price = learnt().price([DEAR, DEAR, CHEAP])
    assert price is not None
    assert list(price(ROWS)) == [1.0, 1.0]


def test_equal_builds_give_equal_prices_whenever_they_are_asked_for() -> None:
    once, often = learnt(200, seed=3), BuildCosts(seed=3, threads=1)
    rng = np.random.default_rng(7)
    for number in range(200):
        unrolled = number % 8 == 0
        often.note(row(unrolled, float(rng.random())), DEAR if unrolled else CHEAP)
        often.price()
    left, right = once.price(), often.price()
    assert left is not None
    assert right is not None
    assert left(ROWS).tolist() == right(ROWS).tolist()


def test_what_has_no_features_or_no_time_tells_nothing() -> None:
    costs = learnt(63)
    costs.note(np.zeros(0, np.float32), 1.0)
    costs.note(row(True), 0.0)
    assert costs.price() is None


def test_the_dearest_are_built_first_and_what_nobody_knows_last() -> None:
    rows = {"cheap": row(False), "dear": row(True), "bare": np.zeros(0, np.float32)}
    assert learnt().dearest_first(["untuned", "cheap", "bare", "dear"], rows) == ["dear", "cheap", "untuned", "bare"]
    assert learnt(63).dearest_first(["cheap", "dear"], rows) == ["cheap", "dear"]
    assert learnt().dearest_first(["untuned"], {}) == ["untuned"]


def test_a_build_is_waited_for_as_long_as_is_usual_once_that_is_known() -> None:
    assert patience_s([0.05] * 31, 15.0) == 15.0
    assert patience_s([0.05] * 32, 15.0) == 3.0
    assert patience_s([0.2] * 40 + [15.0], 15.0) == 8.0
    assert patience_s([2.0] * 40, 15.0) == 15.0
    assert learnt(40).patience_s(15.0) == 3.0
