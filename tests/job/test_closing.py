"""The end of a job: who is timed again, and who ships."""

from __future__ import annotations

from collections import Counter

import msgspec
import pytest

from kintune.job.closing import FINALISTS
from kintune.job.heats import HEATS
from kintune.job.payloads import Profiled, StageName
from kintune.measure.outcome import Outcome, Status
from kintune.space.candidate import UNTUNED, Candidate
from kintune.testing.rehearsal import Cast, Rehearsal
from kintune.testing.synthetic_space import Product, SyntheticSpace
from kintune.testing.toy_runs import confirmed, with_limits
from kintune.testing.toy_tools import ToyTools, toy_space, toy_spec


class Alike(Cast):
    """All programs seem to take about as long; only heats tell, and of one in another."""

    def __init__(self, heats: dict[int, float] | None = None) -> None:
        super().__init__()
        self.seen: list[Candidate] = []
        self._heats = heats or {}
        self._ran: Counter[Candidate] = Counter()

    def time(self, candidate: Candidate, kind: str) -> Outcome:
        if candidate.sketch == UNTUNED:
            return super().time(candidate, kind)
        if kind == StageName.PROFILE:
            if candidate.workload == "w0" and candidate not in self.seen:
                self.seen.append(candidate)
            return Outcome(Status.OK, (10.0 + 0.01 * (candidate.workload == "w0") * self._place(candidate),))
        self._ran[candidate] += 1
        return Outcome(Status.OK, (10.0 - 0.01 * self._place(candidate) + self._heats.get(self._ran[candidate], 0.0),))

    def _place(self, candidate: Candidate) -> int:
        return self.seen.index(candidate) if candidate in self.seen else 0


def stages(rehearsal: Rehearsal, workload: str, cast: Alike) -> dict[str, list[int]]:
    """By stage, the places in the order of their times of a workload's finalists that were timed in it."""
    found: dict[str, list[int]] = {}
    digests = [candidate.digest for candidate in cast.seen]
    for event in rehearsal.history:
        if event.kind == StageName.CONFIRM:
            digest = msgspec.msgpack.decode(event.payload, type=Profiled).candidate
            if digest in digests and workload == "w0":
                found.setdefault(event.stage, []).append(digests.index(digest))
    return found


def test_who_was_not_the_fastest_at_first_can_win() -> None:
    cast, tools = Alike(), ToyTools()
    rehearsal = Rehearsal(lambda: tools, toy_spec(), cast).run()
    assert rehearsal.finished is not None
    assert tools.packaged[0]["w0"] == cast.seen[FINALISTS - 1]


def test_finalists_take_turns() -> None:
    """In each heat all that may win, one after the other; the second heat the other way round."""
    cast = Alike()
    rehearsal = Rehearsal(ToyTools, toy_spec(), cast).run()
    forward = list(range(FINALISTS))
    assert list(stages(rehearsal, "w0", cast).values()) == [forward, forward[::-1], forward]


def test_a_heat_in_a_bad_moment_decides_nothing() -> None:
    cast, tools = Alike({2: 5.0}), ToyTools()
    rehearsal = Rehearsal(lambda: tools, toy_spec(), cast).run()
    assert tools.packaged[0]["w0"] == cast.seen[FINALISTS - 1]
    digest = tools.packaged[0]["w0"].digest
    assert len(confirmed(rehearsal)[digest].times_us) == HEATS


def test_of_subgraphs_that_hardly_matter_three_are_timed_again() -> None:
    """As of one whose others are far slower than the best."""
    large, small = Product("w0", 512, 512, 512, weight=50), Product("w1", 16, 64, 16)
    space = SyntheticSpace([large, small])

    class Equal(Cast):
        def time(self, candidate: Candidate, kind: str) -> Outcome:
            measured = super().time(candidate, kind)
            own = 1000.0 if candidate.workload == "w0" else 1.0
            return measured if candidate.sketch == UNTUNED else Outcome(Status.OK, (own,))

    rehearsal = Rehearsal(lambda: ToyTools(space=space), toy_spec(), Equal(space)).run()
    digests = {c.digest: c.workload for picks in rehearsal.picks.values() for c in picks}
    counts = Counter(digests[digest] for digest in confirmed(rehearsal) if digest in digests)
    assert counts == {"w0": FINALISTS, "w1": 3}


def test_programs_far_from_the_best_are_no_finalists_beyond_the_third() -> None:
    class Apart(Cast):
        def time(self, candidate: Candidate, kind: str) -> Outcome:
            return Outcome(Status.OK, (candidate.digest.encode()[0] + 1.0 if candidate.workload == "w0" else 5.0,))

    rehearsal = Rehearsal(ToyTools, toy_spec(), Apart()).run()
    w0 = {c.digest for picks in rehearsal.picks.values() for c in picks if c.workload == "w0"}
    times = sorted(digest.encode()[0] + 1.0 for digest in w0)
    near = sum(time <= 1.1 * times[0] for time in times)
    assert len(w0 & confirmed(rehearsal).keys()) == max(3, min(near, FINALISTS))


@pytest.mark.parametrize("trials", [1, 2, 4])
def test_where_few_were_tried_all_of_them_are_finalists(trials: int) -> None:
    rehearsal = Rehearsal(ToyTools, with_limits(trials=trials)).run()
    tried = {c.digest for picks in rehearsal.picks.values() for c in picks if c.sketch != UNTUNED}
    assert rehearsal.finished is not None
    trivial = {c.digest for c in [*toy_space().rules("trivial0", 1), Candidate.untuned("trivial0")]}
    untuned = {Candidate.untuned(w).digest for w in ("w0", "w1", "w2")}
    assert confirmed(rehearsal).keys() - trivial - untuned <= tried
