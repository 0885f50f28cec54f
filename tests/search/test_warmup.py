from __future__ import annotations

import json
from collections.abc import Sequence

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from kintune.core.candidate import UNTUNED, Candidate, Sketch
from kintune.core.config import Strategy
from kintune.core.outcome import Outcome, Status
from kintune.search.space import Draft
from kintune.search.subgraph import SubgraphState
from kintune.search.transfer import TransferredPrograms
from kintune.search.warmup import Warmup
from kintune.testing.synthetic_space import SyntheticSpace, tiny_product
from tests.support.search_run import SearchRun, new_session


@pytest.mark.parametrize("levels", [(1, 3, 4), (8,), (2, 6)])
def test_every_subgraph_gets_what_each_round_of_the_survey_has(space: SyntheticSpace, levels: tuple[int, ...]) -> None:
    strategy = Strategy(survey=levels, round_size=16, foresee_size=4)
    rounds = list(
        SearchRun(space, new_session(space, strategy=strategy)).rounds(sum(levels) * len(space.subjects()) + 1)
    )
    surveys = [plan for plan in rounds if all(entry.how == "rule" for entry in plan.entries)]
    assert [[entry.size for entry in plan.entries] for plan in surveys] == [[n] * len(space.subjects()) for n in levels]
    assert [entry.how for entry in rounds[len(surveys)].entries] == ["search"]


def test_without_a_survey_the_first_round_is_a_full_one(space: SyntheticSpace) -> None:
    plan = new_session(space, strategy=Strategy(survey=(), round_size=16)).plan()
    assert plan is not None
    assert [(entry.how, entry.size) for entry in plan.entries] == [("search", 16)]


_FIRST = 6  # candidates of the rule


class NarrowFirst(SyntheticSpace):
    """The sketch that the rule names first computes in bf16, and the rule names some of its candidates first."""

    def sketches(self, workload: str) -> Sequence[Sketch]:
        first = super().rules(workload, 1)[0].sketch
        trace = json.dumps({"precision": "bf16"}).encode()
        return [
            msgspec.structs.replace(sketch, trace=trace) if sketch.digest == first else sketch
            for sketch in super().sketches(workload)
        ]

    def rules(self, workload: str, limit: int) -> Sequence[Candidate]:
        found = super().rules(workload, 64)
        first = [candidate for candidate in found if candidate.sketch == found[0].sketch]
        return [*first[:_FIRST], *(candidate for candidate in found if candidate not in first)][:limit]


def test_one_program_in_full_precision_is_among_the_first_of_each_subgraph(space: SyntheticSpace) -> None:
    """An error budget may leave the subgraph no narrower one; the untuned program is many times slower."""
    narrow = NarrowFirst(space.products.values())
    session = new_session(narrow, strategy=Strategy(survey=(1, 3, 4)))
    first = session.plan()
    assert first is not None
    assert {entry.size for entry in first.entries} == {2}
    picked: dict[str, list[bool]] = {}
    for proposal in session.select(first)[0]:
        candidate = proposal.draft.candidate
        if candidate.sketch != UNTUNED:
            in_bf16 = candidate.sketch == narrow.rules(candidate.workload, 1)[0].sketch
            picked.setdefault(candidate.workload, []).append(in_bf16)
    assert set(map(tuple, picked.values())) == {(True, False)}


@pytest.mark.parametrize(("known", "narrower"), [("nothing", 1), ("untuned", 1), ("narrow", 1), ("full", 2)])
def test_once_one_in_full_precision_was_measured_none_takes_a_place(
    space: SyntheticSpace, known: str, narrower: int
) -> None:
    narrow = NarrowFirst(space.products.values())
    of_rule = narrow.rules("deep", _FIRST + 1)
    measured = {
        "nothing": [],
        "untuned": [Candidate.untuned("deep")],
        "narrow": [of_rule[0]],
        "full": [of_rule[-1]],
    }[known]
    state = SubgraphState(space.products["deep"].subject, "op:dense")
    for candidate in measured:
        state.observe(candidate, Outcome(Status.OK, (5.0,)), None, counts=True)
    warmup = Warmup(narrow, Strategy(survey=(9,)), TransferredPrograms(narrow))
    found, _ = warmup.choose(state, [state], None, 2, np.random.default_rng(0))
    assert sum(p.draft.candidate.sketch == of_rule[0].sketch for p in found) == narrower


class Wide:
    """A cost model that likes wide vectors."""

    def predict(self, features: NDArray[np.float32]) -> NDArray[np.float32]:
        return features[:, 0]


class Picky(SyntheticSpace):
    """Some candidates are no programs."""

    wrong: frozenset[Candidate] = frozenset()

    def verify(self, candidates: Sequence[Candidate]) -> Sequence[Draft | None]:
        drafts = super().verify(candidates)
        return [None if c in self.wrong else draft for c, draft in zip(candidates, drafts, strict=True)]


def _state(space: SyntheticSpace, workload: str, measured: Sequence[Candidate]) -> SubgraphState:
    state = SubgraphState(space.products[workload].subject, "op:dense")
    for draft in space.verify(measured):
        if draft is not None:
            state.observe(draft.candidate, Outcome(Status.OK, (5.0,)), draft.features, counts=True)
    return state


_PLACES = st.lists(st.integers(0, 15), unique=True, max_size=5)


@settings(max_examples=30)
@given(measured=_PLACES, suggested=_PLACES, wrong=_PLACES, count=st.integers(1, 6), modelled=st.booleans())
def test_suggestions_come_first_and_then_what_the_rule_or_the_model_says(
    space: SyntheticSpace,
    measured: list[int],
    suggested: list[int],
    wrong: list[int],
    count: int,
    modelled: bool,
) -> None:
    """None that was measured before, and two more are looked at than are wanted, or with a model twice as many."""
    picky = Picky(space.products.values())
    known = list(space.rules("deep", 16))
    state = _state(picky, "deep", [known[i] for i in measured])
    picky.wrong = frozenset(known[i] for i in wrong)
    state.suggestions = [known[i] for i in suggested]
    warmup = Warmup(picky, Strategy(survey=(6, 6)), TransferredPrograms(picky))
    model = Wide() if modelled else None
    found, invalid = warmup.choose(state, [state], model, count, np.random.default_rng(0))
    preferred = list(dict.fromkeys([*state.suggestions, *known[:12]]))
    left = [c for c in preferred if c not in state.times_us]
    tried = left[: 3 * count if modelled and state.features else count + 2]
    right = [c for c in tried if c not in picky.wrong]
    width = {d.candidate: float(d.features[0]) for d in space.verify(right) if d is not None}
    if modelled:
        right.sort(key=lambda c: (c not in state.suggestions, 0.0 if c in state.suggestions else -width[c]))
    assert [p.draft.candidate for p in found] == right[:count]
    assert invalid == sum(c in picky.wrong for c in tried)
    for p in found:
        assert p.origin == ("suggested" if p.draft.candidate in state.suggestions else "rule")
        assert p.predicted == (width[p.draft.candidate] if modelled else None)


@pytest.mark.parametrize("suggested", [0, 2, 9])
def test_without_a_rule_what_suggestions_leave_is_drawn(space: SyntheticSpace, suggested: int) -> None:
    strategy = Strategy(survey=(6,), rules=False)
    warmup = Warmup(space, strategy, TransferredPrograms(space))
    state = _state(space, "deep", [])
    state.suggestions = list(space.rules("deep", suggested))
    assert warmup.plan([state], 0)[1][0].size == max(6, suggested)
    found, _ = warmup.choose(state, [state], None, 6, np.random.default_rng(0))
    assert [p.origin for p in found] == ["suggested"] * min(6, suggested) + ["random"] * max(0, 6 - suggested)
    assert len({p.draft.candidate for p in found}) == 6
    again, _ = warmup.choose(state, [state], None, 6, np.random.default_rng(1))
    assert ([p.draft.candidate for p in again] == [p.draft.candidate for p in found]) == (suggested >= 6)
    tiny = SyntheticSpace([tiny_product("t")])
    few, _ = Warmup(tiny, strategy, TransferredPrograms(tiny)).choose(
        _state(tiny, "t", []), [], None, 6, np.random.default_rng(0)
    )
    assert len(few) == len({p.draft.candidate for p in few}) > 2


def test_a_level_lacks_what_was_not_tried_of_all_levels_so_far(space: SyntheticSpace) -> None:
    warmup = Warmup(space, Strategy(survey=(2, 3, 4)), TransferredPrograms(space))
    known = space.rules("deep", 12)
    for tried, expected in [(0, (0, 2)), (1, (0, 1)), (2, (1, 3)), (4, (1, 1)), (5, (2, 4)), (8, (2, 1)), (9, (3, 0))]:
        state = _state(space, "deep", known[:tried])
        level, entries = warmup.plan([state], 0)
        assert (level, sum(entry.size for entry in entries)) == expected
        assert all((entry.workload, entry.how) == ("deep", "rule") for entry in entries)
    state = _state(space, "deep", known[:1])
    assert warmup.plan([state], 1)[1][0].size == 3  # no more than the level has
    assert warmup.plan([state], 3) == (3, ())
    state.suggestions = [*known[:2], *known[5:9]]
    assert warmup.plan([state], 0)[1][0].size == 5  # all suggestions but the one that was measured
    assert warmup.plan([state], 1)[1][0].size == 3
    work = [space.products[name].flops * space.products[name].weight for name in space.products]
    states = [_state(space, name, []) for name in space.products]
    _, entries = warmup.plan(states, 0)
    assert [entry.workload for entry in entries] == [
        name for _, name in sorted(zip((-each for each in work), space.products, strict=True))
    ]


def test_with_a_rule_there_is_nothing_to_measure_once_all_it_says_was_measured(space: SyntheticSpace) -> None:
    class Terse(SyntheticSpace):
        def rules(self, workload: str, limit: int) -> Sequence[Candidate]:
            return super().rules(workload, min(limit, 4))

    terse = Terse(space.products.values())
    warmup = Warmup(terse, Strategy(survey=(4, 4)), TransferredPrograms(terse))
    known = space.rules("deep", 4)
    assert [entry.size for entry in warmup.plan([_state(terse, "deep", known[:3])], 0)[1]] == [1]
    assert warmup.plan([_state(terse, "deep", known)], 0) == (2, ())
