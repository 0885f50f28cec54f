from __future__ import annotations

import pytest

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
