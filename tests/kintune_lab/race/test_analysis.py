from __future__ import annotations

import math
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kintune.core.candidate import Candidate
from kintune.core.outcome import Status
from kintune.errors import KintuneError
from kintune_lab.race.analysis import analyse
from kintune_lab.race.remeasurement import Remeasurement, best_programs_of
from kintune_lab.race.turn_scheduler import RaceRecord, TurnScheduler
from tests.support.scripted_tuner import PassingTime, ScriptedTuner, ScriptedTurn

RunTurns = Callable[..., RaceRecord]

UNTUNED_US = {"a": 1000.0, "b": 100.0}  # b occurs three times


def remeasured(record: RaceRecord, wrong: tuple[int, ...] = ()) -> dict[Candidate, Remeasurement]:
    """Re-measurements in which a program takes as many microseconds as its number says."""
    remeasurements = {}
    for candidate in (c for tuners in best_programs_of(record).values() for found in tuners.values() for c in found):
        number = candidate.decisions[0][0] if candidate.decisions else 0
        time_us = float(number) if candidate.decisions else UNTUNED_US[candidate.workload]
        status = Status.WRONG_RESULT if number in wrong else Status.OK
        remeasurements[candidate] = Remeasurement(candidate, (time_us,), status)
    return remeasurements


def test_the_curve_adds_up_remeasured_times_and_the_untuned_where_nothing_was_found(run_turns: RunTurns) -> None:
    record = run_turns(
        [ScriptedTurn(10, (("a", 500, 1.0),)), ScriptedTurn(10, (("b", 50, 2.0), ("a", 400, 0.5)))],
        [ScriptedTurn(30)],
    )
    analysis = analyse(record, remeasured(record))
    assert analysis.untuned_ms == 1.3
    points = analysis.results["stock"].points
    assert [p.remeasured_ms for p in points] == pytest.approx([0.5 + 0.3, 0.4 + 0.15])
    assert [p.estimate_ms for p in points] == pytest.approx([0.001 + 0.3, 0.0005 + 0.006])
    assert [p.trials for p in points] == [8, 16]


def test_ratios(run_turns: RunTurns) -> None:
    record = run_turns(
        [ScriptedTurn(50, (("a", 500, 1.0),)), ScriptedTurn(50, (("b", 50, 2.0),))],  # ends at 650 us
        [
            ScriptedTurn(20, (("a", 600, 1.0),)),
            ScriptedTurn(20, (("a", 400, 1.0), ("b", 70, 1.0))),  # 610 us after 40 s
            ScriptedTurn(50, (("a", 200, 1.0),)),  # 410 us after 90 s
            ScriptedTurn(20, (("a", 100, 1.0),)),  # too late
        ],
    )
    analysis = analyse(record, remeasured(record))
    ours = analysis.results["kintune"]
    assert ours.reached
    assert ours.crossing is not None
    assert ours.crossing.active_seconds == 40
    assert ours.time_ratio == 2.5
    assert ours.equal_time is not None
    assert ours.equal_time.active_seconds == 90
    assert ours.quality_ratio == pytest.approx(650 / 410)
    stock = analysis.results["stock"]
    assert stock.time_ratio == stock.quality_ratio == 1.0


def test_who_never_gets_there_has_a_bound(run_turns: RunTurns) -> None:
    record = run_turns([ScriptedTurn(50, (("a", 500, 1.0),))], [ScriptedTurn(20, (("a", 600, 1.0),)), ScriptedTurn(60)])
    ours = analyse(record, remeasured(record)).results["kintune"]
    assert not ours.reached
    assert ours.time_ratio == 50 / 80
    early = run_turns([ScriptedTurn(50, (("a", 500, 1.0),))], [ScriptedTurn(20)], 0.2)
    assert analyse(early, remeasured(early)).results["kintune"].time_ratio == 50 / 20  # it might have got there at once


def test_a_program_that_is_rejected_leaves_its_predecessor(run_turns: RunTurns) -> None:
    record = run_turns(
        [
            ScriptedTurn(10, (("a", 500, 2.0),)),
            ScriptedTurn(10, (("a", 7, 1.0),)),
            ScriptedTurn(10, (("a", 300, 0.5),)),
        ],
        [ScriptedTurn(40, (("b", 7, 1.0),))],
    )
    analysis = analyse(record, remeasured(record, wrong=(7,)))
    stock, ours = analysis.results["stock"], analysis.results["kintune"]
    assert [p.remeasured_ms for p in stock.points] == pytest.approx([0.8, 0.8, 0.6])
    assert stock.points[1].programs == stock.points[0].programs
    assert (stock.rejected, ours.rejected) == (1, 1)
    assert ours.points[0].programs == {}


def test_who_had_no_turn_within_stocks_time_has_no_quality(run_turns: RunTurns) -> None:
    record = run_turns([ScriptedTurn(10, (("a", 500, 1.0),))], [ScriptedTurn(30, (("a", 400, 1.0),))])
    ours = analyse(record, remeasured(record)).results["kintune"]
    assert ours.equal_time is None
    assert math.isnan(ours.quality_ratio)
    assert ours.reached


def test_without_anything_of_stocks_there_is_nothing_to_compare_with(run_turns: RunTurns) -> None:
    record = run_turns([ScriptedTurn(10), ScriptedTurn(10, (("a", 7, 1.0),))], [ScriptedTurn(30, (("a", 400, 1.0),))])
    with pytest.raises(KintuneError, match=r"stock found nothing to compare with: of 16 programs .* 1 did not count"):
        analyse(record, remeasured(record, wrong=(7,)))


@pytest.mark.parametrize(("cause", "said"), [("the worker died", "the worker died"), ("", "run_failed")])
def test_nothing_is_reckoned_with_an_untuned_program_that_does_not_count(
    run_turns: RunTurns, cause: str, said: str
) -> None:
    record = run_turns([ScriptedTurn(10, (("a", 500, 1.0),))], [ScriptedTurn(30, (("b", 50, 1.0),))])
    remeasurements = remeasured(record)
    untuned = Candidate.untuned("b")
    remeasurements[untuned] = Remeasurement(untuned, (100.0, 101.0), Status.RUN_FAILED, cause)
    with pytest.raises(KintuneError, match=rf"untuned program of pool, .* did not count .*: {said}"):
        analyse(record, remeasurements)


turns = st.lists(
    st.builds(
        ScriptedTurn,
        st.integers(1, 50).map(float),
        st.lists(st.tuples(st.sampled_from("ab"), st.integers(1, 900), st.just(1.0)), max_size=2).map(tuple),
    ),
    min_size=1,
    max_size=6,
)


@given(turns, turns)
def test_equal_searches_are_equal(script: list[ScriptedTurn], other: list[ScriptedTurn]) -> None:
    script = [ScriptedTurn(1.0, (("a", 901, 1.0),)), *script]
    time = PassingTime()
    tuners = [ScriptedTuner(name, script, time, []) for name in ("stock", "same")]
    tuners.append(ScriptedTuner("other", other, time, [], ends=False))
    record = TurnScheduler(tuners, {s.name: 1.0 for s in tuners}, time, lambda: 1.0).run(lambda record: None)
    results = analyse(record, remeasured(record)).results
    assert results["same"].quality_ratio == pytest.approx(1.0)
    assert results["same"].time_ratio == results["stock"].time_ratio
    assert results["stock"].time_ratio >= 1.0
    for result in results.values():
        if result.crossing is not None:
            assert result.crossing.remeasured_ms <= results["stock"].points[-1].remeasured_ms
