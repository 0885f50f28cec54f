from __future__ import annotations

import json
from collections.abc import Sequence

import msgspec
import pytest

from kintune.core.candidate import UNTUNED, Candidate, Sketch
from kintune.core.config import Strategy
from kintune.testing.synthetic_space import SyntheticSpace
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
