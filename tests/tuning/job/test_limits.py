from __future__ import annotations

import numpy as np
import pytest

from kintune.core.config import Options, Strategy
from kintune.core.plan import Round, RoundEntry
from kintune.search.session import SearchSession
from kintune.testing.synthetic_space import SyntheticSpace
from kintune.tuning.job.limits import SearchLimits
from kintune.tuning.job.statistics import JobStatistics
from tests.support.rehearsal import Rehearsal
from tests.support.toy_runs import ended, with_limits
from tests.support.toy_tools import ToyTools, toy_space


def limits(options: Options, at: float, closing_trials: float = 0.0, *, has_narrow: bool = True) -> SearchLimits:
    session = SearchSession([], SyntheticSpace([]), Strategy(), seed=0, threads=1)
    statistics = JobStatistics(at=at)
    return SearchLimits(options, statistics, session, closing_trials, is_target_met=False, has_narrow=has_narrow)


def test_after_the_search_only_packaging_and_the_finalists_are_left() -> None:
    options = Options(minutes=5)
    assert limits(options, at=280.0).seconds_left(searching=False) == 15.0
    assert limits(options, at=280.0, closing_trials=10).seconds_left(searching=False) == 18.0  # 0.3 s a trial


def test_what_is_left_becomes_less_while_precisions_are_tried() -> None:
    options = Options(minutes=5, precision="bf16")
    left = [limits(options, at=at).seconds_left(searching=False, narrowing=True) for at in (225.0, 240.0, 260.0)]
    assert left == [75.0, 60.0, 40.0]
    assert limits(options, at=400.0).seconds_left(searching=False, narrowing=True) == 30.0  # it is late: the least
    assert limits(options, at=240.0).seconds_left(searching=False, narrowing=False) == 15.0  # they are chosen


@pytest.mark.parametrize("minutes", [1, 5, 60])
def test_the_end_of_the_search_changes_little_of_what_is_left(minutes: int) -> None:
    options = Options(minutes=minutes, precision="bf16")
    at = minutes * 60 - 15.0 - max(15.0, 12.0 * minutes)  # when the search ends
    before = limits(options, at).seconds_left(searching=True)
    assert before == pytest.approx(limits(options, at).seconds_left(searching=False, narrowing=True))


def test_a_budget_of_trials_leaves_the_least_for_precisions() -> None:
    options = Options(trials=100, precision="bf16")
    assert limits(options, at=500.0).seconds_left(searching=False, narrowing=True) == 30.0


def test_no_time_is_kept_for_precisions_that_no_program_has() -> None:
    """Weights are quantised before the search, and a processor may have fp32 alone."""
    options = Options(minutes=5, weights=4)
    assert limits(options, at=0.0).search_seconds_left() == 225.0
    assert limits(options, at=0.0, has_narrow=False).search_seconds_left() == 285.0
    searches = [Rehearsal(ToyTools, with_limits(minutes=1, weights=bits)).run() for bits in (0, 4)]
    plain, quantised = map(ended, searches)
    assert (quantised.reason, quantised.trials) == (plain.reason, plain.trials)
    assert plain.reason == "time"


def test_trials_under_way_take_their_share_of_the_time_that_is_left() -> None:
    space = toy_space(tunable=1, trivial=0)
    session = SearchSession([space.products["w0"].subject], space, Strategy(), seed=0, threads=1)
    session.begin(Round(0, (RoundEntry("w0", 1, "search"),)), {})
    left = SearchLimits(Options(minutes=1), JobStatistics(at=42.0), session, 0.0, is_target_met=False)
    assert left.affordable() == 10  # 0.3 s a trial, and 15 s to compile the network
    picks = dict.fromkeys(space.rules("w0", 4), np.zeros(0, np.float32))
    session.begin(Round(1, (RoundEntry("w0", 4, "search"),)), picks)
    assert left.affordable() == 6
    late = SearchLimits(Options(minutes=1), JobStatistics(at=44.9), session, 0.0, is_target_met=False)
    assert late.affordable() == 0
