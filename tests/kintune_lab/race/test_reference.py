from __future__ import annotations

import itertools

from kintune_lab.race.reference import reference_kernel


def test_it_answers_the_median_of_its_runs() -> None:
    ticks = itertools.accumulate(itertools.cycle([0.0, 0.03]))
    assert round(reference_kernel(lambda: next(ticks))()) == 30_000
