from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from hypothesis import given
from hypothesis import strategies as st

from kintune.core.candidate import Candidate
from kintune.core.outcome import Outcome, Status
from kintune.core.stage_requests import Built
from kintune_lab.race.remeasurement import best_programs_of, pass_order, remeasure
from kintune_lab.race.turn_scheduler import RaceRecord
from tests.support.scripted_tuner import ScriptedTurn

RunTurns = Callable[..., RaceRecord]


def program(workload: str, number: int) -> Candidate:
    return Candidate(workload, "s", ((number,),))


class Laboratory:
    """Takes as long for a program as its number says, times the number of the pass; some fail."""

    def __init__(
        self, *, unbuildable: Sequence[Candidate] = (), wrong_in: Mapping[Candidate, int] | None = None
    ) -> None:
        self.orders: list[list[Candidate]] = []
        self._unbuildable = unbuildable
        self._wrong_in = wrong_in or {}

    def build(self, candidates: Sequence[Candidate], done: Callable[[int], None]) -> dict[Candidate, Built]:
        done(len(candidates))
        failure = Outcome(Status.BUILD_FAILED, cause="no")
        return {c: Built(c.digest, failure=failure if c in self._unbuildable else None) for c in candidates}

    def measure(
        self, candidates: Sequence[Candidate], built: Mapping[Candidate, Built], done: Callable[[int], None]
    ) -> dict[Candidate, Outcome]:
        self.orders.append(list(candidates))
        number = len(self.orders)
        outcomes = {}
        for count, candidate in enumerate(candidates):
            done(count)
            if self._wrong_in.get(candidate) == number:
                outcomes[candidate] = Outcome(Status.WRONG_RESULT, cause="off")
            else:
                time_us = 100.0 if not candidate.decisions else float(candidate.decisions[0][0])
                outcomes[candidate] = Outcome(Status.OK, (time_us * number,))
        return outcomes


def test_whatever_was_a_best_program_is_timed_again_once_with_the_untuned_programs(run_turns: RunTurns) -> None:
    record = run_turns(
        [ScriptedTurn(10, (("a", 5, 5.0),)), ScriptedTurn(10, (("a", 3, 3.0), ("b", 9, 9.0)))],
        [ScriptedTurn(20, (("a", 3, 2.0),))],
    )
    programs = best_programs_of(record)
    assert programs == {
        "a": {"": [Candidate.untuned("a")], "stock": [program("a", 5), program("a", 3)], "kintune": [program("a", 3)]},
        "b": {"": [Candidate.untuned("b")], "stock": [program("b", 9)]},
    }
    workers = Laboratory()
    remeasurements = remeasure(record, workers, 3, lambda phase, share: None)
    assert set(remeasurements) == {c for tuners in programs.values() for found in tuners.values() for c in found}
    assert [len(order) for order in workers.orders] == [5, 5, 5]
    assert remeasurements[program("a", 3)].passes_us == (3.0, 6.0, 9.0)
    assert remeasurements[program("a", 3)].median_us == 6.0


def test_what_is_wrong_or_cannot_be_built_does_not_count_and_is_not_run_again(run_turns: RunTurns) -> None:
    record = run_turns([ScriptedTurn(10, (("a", 5, 5.0), ("b", 4, 4.0)))], [ScriptedTurn(10, (("a", 3, 3.0),))])
    workers = Laboratory(unbuildable=[program("b", 4)], wrong_in={program("a", 3): 2})
    remeasurements = remeasure(record, workers, 3, lambda phase, share: None)
    assert remeasurements[program("b", 4)].status is Status.BUILD_FAILED
    assert remeasurements[program("a", 3)].status is Status.WRONG_RESULT
    assert remeasurements[program("a", 3)].median_us == float("inf")
    assert [program("b", 4) in order for order in workers.orders] == [False, False, False]
    assert [program("a", 3) in order for order in workers.orders] == [True, True, False]


def test_sides_alternate_and_every_pass_begins_with_another() -> None:
    programs = {
        "a": {"stock": [program("a", n) for n in (1, 2, 3)], "kintune": [program("a", n) for n in (11, 12, 13)]},
        "b": {"stock": [program("b", 1)], "kintune": [program("b", 11)]},
    }
    numbers = [[(c.workload, c.decisions[0][0]) for c in pass_order(programs, p)] for p in range(2)]
    assert numbers[0] == [("a", 3), ("a", 13), ("a", 2), ("a", 12), ("a", 1), ("a", 11), ("b", 1), ("b", 11)]
    assert numbers[1] == [("b", 11), ("b", 1), ("a", 13), ("a", 3), ("a", 12), ("a", 2), ("a", 11), ("a", 1)]


@given(
    st.dictionaries(
        st.sampled_from("abc"),
        st.dictionaries(st.sampled_from(["", "stock", "x", "y"]), st.lists(st.integers(0, 9), unique=True)),
    ),
    st.integers(0, 5),
)
def test_every_pass_runs_each_program_once(numbers: dict[str, dict[str, list[int]]], which: int) -> None:
    programs = {w: {s: [program(w, n) for n in found] for s, found in tuners.items()} for w, tuners in numbers.items()}
    order = pass_order(programs, which)
    assert len(order) == len(set(order))
    assert set(order) == {c for tuners in programs.values() for found in tuners.values() for c in found}


def test_progress_only_grows(run_turns: RunTurns) -> None:
    shares: list[float] = []
    record = run_turns([ScriptedTurn(10, (("a", 5, 5.0),))], [ScriptedTurn(10, (("a", 3, 3.0),))])
    remeasure(record, Laboratory(), 3, lambda phase, share: shares.append(share))
    assert shares == sorted(shares)
    assert 0.0 < shares[-1] <= 1.0
