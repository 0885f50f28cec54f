from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kintune.core.candidate import Candidate
from kintune.core.outcome import Outcome, Status
from kintune_lab.contest.incumbents import Incumbents
from kintune_lab.contest.orders import Failure

outcomes = st.one_of(
    st.floats(0.1, 100).map(lambda time_us: Outcome(Status.OK, (time_us,))),
    st.sampled_from([Outcome(Status.BUILD_FAILED), Outcome(Status.RUN_TIMED_OUT)]),
)


def test_an_untuned_program_may_be_the_fastest_and_is_no_trial() -> None:
    incumbents: Incumbents[str] = Incumbents()
    incumbents.observe("a", "untuned", Outcome(Status.OK, (1.0,)), trial=False)
    incumbents.observe("a", "tuned", Outcome(Status.OK, (2.0,)))
    incumbents.observe("a", "broken", Outcome(Status.RUN_FAILED, cause="SIGSEGV"))
    assert incumbents.take() == ({"a": ("untuned", 1.0)}, {"a": 2}, (Failure("a", Status.RUN_FAILED, "SIGSEGV"),))
    assert incumbents.take() == ({}, {}, ())


def test_a_candidate_that_fails_is_told_so_that_it_can_be_built_again() -> None:
    incumbents: Incumbents[Candidate] = Incumbents()
    candidate = Candidate("a", "sketch", ((1, 2),))
    incumbents.observe("a", candidate, Outcome(Status.BUILD_FAILED, cause="LLVM says no"))
    assert incumbents.take()[2] == (Failure("a", Status.BUILD_FAILED, "LLVM says no", candidate),)


@given(st.lists(st.lists(st.tuples(st.sampled_from("ab"), outcomes))))
def test_the_last_that_was_told_is_the_fastest_of_all(turns: list[list[tuple[str, Outcome]]]) -> None:
    incumbents: Incumbents[int] = Incumbents()
    best: dict[str, float] = {}
    told: dict[str, float] = {}
    number = 0
    for turn in turns:
        before = dict(best)
        for workload, outcome in turn:
            number += 1
            incumbents.observe(workload, number, outcome)
            if outcome.ok:
                best[workload] = min(best.get(workload, float("inf")), outcome.median_us)
        changed, measured, failures = incumbents.take()
        assert sum(measured.values()) == len(turn)
        assert len(failures) == sum(not outcome.ok for _, outcome in turn)
        assert set(changed) == {w for w in best if best[w] != before.get(w)}
        told.update((workload, time_us) for workload, (_, time_us) in changed.items())
    assert told == best
