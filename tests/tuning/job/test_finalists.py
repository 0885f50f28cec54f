"""The finalists: which programs are timed again, and which ship."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import msgspec
import pytest

from kintune.core.candidate import UNTUNED, Candidate
from kintune.core.config import JobSpec
from kintune.core.outcome import Outcome, Status
from kintune.core.stage_results import Prepared, StageName
from kintune.testing.synthetic_space import MatMul, SyntheticSpace
from kintune.tuning.job.finalists import FINALISTS
from tests.support.rehearsal import Cast, Rehearsal
from tests.support.toy_runs import ended, time_us, with_limits
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
    space = SyntheticSpace([MatMul("w0", 512, 512, 512, weight=50), MatMul("w1", 16, 64, 16)])

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


class Shared(ToyTools):
    """w0 and w2 are one layer with two shapes: they read the same weights, which programs lay out by `layout`."""

    def __init__(self, layout: Callable[[Candidate], str]) -> None:
        super().__init__()
        self._layout = layout

    def prepare(self, spec: JobSpec) -> Prepared:
        """Each subgraph is in one of two networks."""
        prepared = super().prepare(spec)
        subgraphs = [
            msgspec.structs.replace(s, each=(s.weight, 0) if s.workload == "w0" else (0, s.weight))
            for s in prepared.subgraphs
        ]
        shared = [
            msgspec.structs.replace(s, weights="of the layer") if s.workload in ("w0", "w2") else s for s in subgraphs
        ]
        return msgspec.structs.replace(prepared, subgraphs=tuple(shared))

    def packing(self, candidate: Candidate) -> str:
        """As it was made to say."""
        return "" if candidate.sketch == UNTUNED else self._layout(candidate)


class Level(Cast):
    """The programs of w0 and w2 take equally long, but for a little in the order in which they come."""

    step = 0.001

    def __init__(self) -> None:
        super().__init__()
        self.seen: dict[str, list[Candidate]] = {"w0": [], "w2": []}

    def time(self, candidate: Candidate, kind: str) -> Outcome:
        if candidate.sketch == UNTUNED or candidate.workload not in self.seen:
            return super().time(candidate, kind)
        seen = self.seen[candidate.workload]
        if candidate not in seen:
            seen.append(candidate)
        return Outcome(Status.OK, (10.0 * (1 + self.step * seen.index(candidate)),))


def by_order(cast: Level, place: int) -> Callable[[Candidate], str]:
    """Every program has a layout of its own, but w0's number `place` in time has that of the first of w2."""

    def layout(candidate: Candidate) -> str:
        alike = cast.seen["w0"][place : place + 1] + cast.seen["w2"][:1]
        return "shared" if candidate in alike else candidate.digest

    return layout


def test_subgraphs_of_the_same_weights_ship_programs_that_lay_them_out_alike() -> None:
    cast = Level()
    backend = Shared(by_order(cast, 5))
    rehearsal = Rehearsal(lambda: backend, toy_spec(), cast).run()
    chosen = backend.packaged[0]
    assert (chosen["w0"], chosen["w2"]) == (cast.seen["w0"][5], cast.seen["w2"][0])
    ends = {end.workload: end for end in ended(rehearsal).subgraphs}
    assert ends["w0"].best_us == pytest.approx(10.05)
    summary = ended(rehearsal)
    assert sum(summary.kernels_each_ms) == pytest.approx(summary.kernels_ms)
    assert summary.kernels_each_ms[0] == pytest.approx(10.05e-3 * ends["w0"].weight)


def test_a_layout_that_costs_more_than_it_is_worth_is_not_shared() -> None:
    cast = Level()
    cast.step = 0.01
    backend = Shared(by_order(cast, 5))
    Rehearsal(lambda: backend, toy_spec(), cast).run()
    assert (backend.packaged[0]["w0"], backend.packaged[0]["w2"]) == (cast.seen["w0"][0], cast.seen["w2"][0])


def test_a_program_with_the_layout_of_a_sibling_is_a_finalist_beside_the_fastest() -> None:
    cast = Level()
    seen = FINALISTS + 2
    backend = Shared(by_order(cast, seen))
    rehearsal = Rehearsal(lambda: backend, with_limits(trials=80), cast).run()
    assert len(cast.seen["w0"]) > seen
    assert cast.seen["w0"][seen].digest in confirmed(rehearsal)["w0"]
    assert len(confirmed(rehearsal)["w0"]) == FINALISTS + 1
    assert backend.packaged[0]["w0"] == cast.seen["w0"][seen]


def test_the_slowest_combination_decides_when_a_latency_is_reached() -> None:
    backend = Shared(lambda candidate: "")
    slowest = []

    def watch(rehearsal: Rehearsal) -> None:
        state = rehearsal.job._state
        if state.prepared is not None:
            slowest.append((max(state.latency_us()), state.session.latency_us()))

    Rehearsal(lambda: backend, toy_spec(), interfere=watch).run()
    finite = [(one, both) for one, both in slowest if both < float("inf")]
    assert finite
    assert all(both / 2 <= one < both for one, both in finite)
