"""Which finalists of a subgraph are timed next."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from kintune.job.heats import HEATS, next_heat
from kintune.measure.outcome import Outcome, Status
from kintune.space.candidate import Candidate

A, B, C = FINALISTS = [Candidate("w", "sketch", ((number,),)) for number in range(3)]
FAILURE = Outcome(Status.WRONG_RESULT, cause="wrong numbers")


def took(**times_us: float) -> dict[Candidate, Outcome]:
    return {{"a": A, "b": B, "c": C}[name]: Outcome(Status.OK, (time,)) for name, time in times_us.items()}


def test_the_first_heat_is_everyones() -> None:
    assert next_heat(FINALISTS, {}, Counter()) == FINALISTS


def test_a_newcomer_runs_before_anybody_runs_again() -> None:
    assert next_heat(FINALISTS, took(a=1.0, b=1.0), Counter([A, B])) == [C]


def test_who_is_clearly_slower_is_out() -> None:
    assert next_heat(FINALISTS, took(a=1.0, b=1.04, c=1.06), Counter(FINALISTS)) == [A, B]


def test_the_second_heat_is_judged_more_strictly() -> None:
    assert next_heat(FINALISTS, took(a=1.0, b=1.02, c=1.04), Counter(FINALISTS * 2)) == [A, B]


def test_who_is_alone_has_won() -> None:
    assert next_heat(FINALISTS, took(a=1.0, b=1.2, c=1.3), Counter(FINALISTS)) == []


def test_who_failed_is_out() -> None:
    assert next_heat(FINALISTS, {**took(a=1.0, b=1.0), C: FAILURE}, Counter(FINALISTS)) == [A, B]


def test_when_all_failed_nobody_runs() -> None:
    assert next_heat([A], {A: FAILURE}, Counter([A])) == []


def test_nobody_runs_after_the_last_heat() -> None:
    assert next_heat(FINALISTS, took(a=1.0, b=1.0, c=1.0), Counter(FINALISTS * HEATS)) == []


def test_who_was_out_is_back_when_the_fastest_turns_out_slower() -> None:
    """It catches up with that one first."""
    assert next_heat(FINALISTS, took(a=1.0, b=1.06, c=1.2), Counter(FINALISTS)) == []
    assert next_heat(FINALISTS, took(a=1.05, b=1.06, c=1.2), Counter([*FINALISTS, A])) == [B]


@given(st.lists(st.lists(st.floats(0.9, 1.2), min_size=HEATS, max_size=HEATS), min_size=1, max_size=8))
def test_it_ends_and_the_fastest_has_run_most_unless_it_was_alone(times: list[list[float]]) -> None:
    finalists = [Candidate("w", "sketch", ((number,),)) for number in range(len(times))]
    outcomes: dict[Candidate, Outcome] = {}
    ran: Counter[Candidate] = Counter()
    while heat := next_heat(finalists, outcomes, ran):
        assert len({ran[c] for c in heat}) == 1
        for candidate in heat:
            outcome = Outcome(Status.OK, (times[finalists.index(candidate)][ran[candidate]],))
            outcomes[candidate] = outcomes[candidate].joined(outcome) if candidate in outcomes else outcome
            ran[candidate] += 1
    assert set(ran) == set(finalists)
    assert max(ran.values()) <= HEATS
    best = min(finalists, key=lambda c: outcomes[c].median_us)
    near = [c for c in finalists if outcomes[c].median_us <= 1.03 * outcomes[best].median_us]
    assert len(near) == 1 or all(ran[c] == HEATS for c in near)
