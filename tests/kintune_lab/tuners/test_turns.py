from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kintune.core.candidate import Candidate
from kintune.core.outcome import Outcome, Status
from kintune_lab.tuners.messages import CandidateFailure
from kintune_lab.tuners.turns import PAUSED, BestPrograms, StageTimer, TurnThread
from tests.support.scripted_tuner import PassingTime


def test_seconds_go_to_the_innermost_stage() -> None:
    time = PassingTime()
    timer = StageTimer(time)
    time.pass_by(100)
    with timer.stage("select"):
        time.pass_by(1)
        with timer.stage("build"):
            time.pass_by(2)
        time.pass_by(3)
        with timer.stage(PAUSED):
            time.pass_by(50)
    assert timer.take() == {"select": 4, "build": 2}
    assert timer.take() == {}


def test_what_runs_when_they_are_taken_goes_on() -> None:
    time = PassingTime()
    timer = StageTimer(time)
    with timer.stage("select"):
        time.pass_by(1)
        assert timer.take() == {"select": 1}
        time.pass_by(2)
    assert timer.take() == {"select": 2}


def test_an_exception_ends_its_stage() -> None:
    time = PassingTime()
    timer = StageTimer(time)

    def fail() -> None:
        with timer.stage("build"):
            time.pass_by(1)
            raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        fail()
    time.pass_by(5)
    assert timer.take() == {"build": 1}


outcomes = st.one_of(
    st.floats(0.1, 100).map(lambda time_us: Outcome(Status.OK, (time_us,))),
    st.sampled_from([Outcome(Status.BUILD_FAILED), Outcome(Status.RUN_TIMED_OUT)]),
)


def test_an_untuned_program_may_be_the_fastest_and_is_no_trial() -> None:
    best_programs: BestPrograms[str] = BestPrograms()
    best_programs.observe("a", "untuned", Outcome(Status.OK, (1.0,)), trial=False)
    best_programs.observe("a", "tuned", Outcome(Status.OK, (2.0,)))
    best_programs.observe("a", "broken", Outcome(Status.RUN_FAILED, cause="SIGSEGV"))
    assert best_programs.take() == (
        {"a": ("untuned", 1.0)},
        {"a": 2},
        (CandidateFailure("a", Status.RUN_FAILED, "SIGSEGV"),),
    )
    assert best_programs.take() == ({}, {}, ())


def test_a_candidate_that_fails_is_told_so_that_it_can_be_built_again() -> None:
    best_programs: BestPrograms[Candidate] = BestPrograms()
    candidate = Candidate("a", "sketch", ((1, 2),))
    best_programs.observe("a", candidate, Outcome(Status.BUILD_FAILED, cause="LLVM says no"))
    assert best_programs.take()[2] == (CandidateFailure("a", Status.BUILD_FAILED, "LLVM says no", candidate),)


@given(st.lists(st.lists(st.tuples(st.sampled_from("ab"), outcomes))))
def test_the_last_that_was_told_is_the_fastest_of_all(turns: list[list[tuple[str, Outcome]]]) -> None:
    best_programs: BestPrograms[int] = BestPrograms()
    best: dict[str, float] = {}
    told: dict[str, float] = {}
    number = 0
    for turn in turns:
        before = dict(best)
        for workload, outcome in turn:
            number += 1
            best_programs.observe(workload, number, outcome)
            if outcome.ok:
                best[workload] = min(best.get(workload, float("inf")), outcome.median_us)
        changed, measured, failures = best_programs.take()
        assert sum(measured.values()) == len(turn)
        assert len(failures) == sum(not outcome.ok for _, outcome in turn)
        assert set(changed) == {w for w in best if best[w] != before.get(w)}
        told.update((workload, time_us) for workload, (_, time_us) in changed.items())
    assert told == best


def test_the_work_goes_on_only_during_turns() -> None:
    done: list[int] = []

    def work() -> None:
        for number in range(3):
            done.append(number)
            turn_thread.end_turn()

    turn_thread = TurnThread(work)
    assert done == []
    assert [turn_thread.turn() for _ in range(3)] == [False, False, False]
    assert done == [0, 1, 2]
    assert turn_thread.turn()
    assert turn_thread.turn()  # there is nothing left to do
    assert done == [0, 1, 2]


def test_what_the_work_raises_is_raised_in_the_turn() -> None:
    def work() -> None:
        turn_thread.end_turn()
        raise ValueError("broken")

    turn_thread = TurnThread(work)
    assert not turn_thread.turn()
    with pytest.raises(ValueError, match="broken"):
        turn_thread.turn()
