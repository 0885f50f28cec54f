"""The finalists: which programs are timed again, and which ship."""

from __future__ import annotations

from collections import Counter

import pytest

from kintune.core.candidate import UNTUNED, Candidate
from kintune.core.outcome import Outcome, Status
from kintune.core.stage_results import StageName
from kintune.testing.synthetic_space import Product, SyntheticSpace
from kintune.tuning.job.finalists import FINALISTS
from tests.support.rehearsal import Cast, Rehearsal
from tests.support.toy_runs import time_us, with_limits
from tests.support.toy_tools import ToyTools, toy_spec


class Alike(Cast):
    """In the search each program of w0 takes a little longer than the one before, at the end a little less."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[Candidate] = []

    def time(self, candidate: Candidate, kind: str) -> Outcome:
        if candidate.sketch == UNTUNED or candidate.workload != "w0":
            return super().time(candidate, kind)
        if candidate not in self.seen:
            self.seen.append(candidate)
        place = self.seen.index(candidate)
        return Outcome(Status.OK, (10.0 + (0.01 if kind == StageName.PROFILE else -0.01) * place,))


def confirmed(rehearsal: Rehearsal) -> dict[str, list[str]]:
    """The digests of the picked programs that were timed again, by workload."""
    workloads = {c.digest: c.workload for picks in rehearsal.picks.values() for c in picks if c.sketch != UNTUNED}
    found: dict[str, list[str]] = {workload: [] for workload in workloads.values()}
    for profiled in rehearsal.outcomes(StageName.CONFIRM):
        if profiled.candidate in workloads:
            found[workloads[profiled.candidate]].append(profiled.candidate)
    return found


def test_who_was_not_the_fastest_at_first_can_win() -> None:
    cast, backend = Alike(), ToyTools()
    rehearsal = Rehearsal(lambda: backend, toy_spec(), cast).run()
    assert backend.packaged[0]["w0"] == cast.seen[FINALISTS - 1]
    assert confirmed(rehearsal)["w0"] == [c.digest for c in cast.seen[:FINALISTS]]


def test_of_subgraphs_that_hardly_matter_three_are_timed_again() -> None:
    space = SyntheticSpace([Product("w0", 512, 512, 512, weight=50), Product("w1", 16, 64, 16)])

    class Equal(Cast):
        def time(self, candidate: Candidate, kind: str) -> Outcome:
            measured = super().time(candidate, kind)
            own = Outcome(Status.OK, (1000.0 if candidate.workload == "w0" else 1.0,))
            return measured if candidate.sketch == UNTUNED else own

    rehearsal = Rehearsal(lambda: ToyTools(space=space), toy_spec(), Equal(space)).run()
    assert {w: len(found) for w, found in confirmed(rehearsal).items()} == {"w0": FINALISTS, "w1": 3}


def test_programs_far_from_the_best_are_no_finalists_beyond_the_third() -> None:
    rehearsal = Rehearsal(ToyTools, toy_spec()).run()
    times: dict[str, list[float]] = {}
    for candidate in {c for picks in rehearsal.picks.values() for c in picks if c.sketch != UNTUNED}:
        times.setdefault(candidate.workload, []).append(time_us(candidate))
    near = {w: sum(time <= 1.1 * min(taken) for time in taken) for w, taken in times.items()}
    expected = {w: max(3, min(FINALISTS, count)) for w, count in near.items()}
    assert {w: len(found) for w, found in confirmed(rehearsal).items()} == expected
    assert 3 in expected.values()


@pytest.mark.parametrize("trials", [1, 2, 4])
def test_where_few_were_tried_all_of_them_are_finalists(trials: int) -> None:
    rehearsal = Rehearsal(ToyTools, with_limits(trials=trials)).run()
    picked = Counter(c.workload for picks in rehearsal.picks.values() for c in picks if c.sketch != UNTUNED)
    assert {w: len(found) for w, found in confirmed(rehearsal).items()} == picked
