from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

pytestmark = pytest.mark.tvm


@pytest.fixture
def rounds(task: Any) -> Callable[..., Any]:
    """A strategy in its context, around a scripted one, with a model that ranks by length of trace, longest first."""
    import numpy as np
    from tvm.ir.utils import derived_object
    from tvm.s_tir import meta_schedule as ms

    from kintune.integrations.stock.rounds import Rounds

    @derived_object
    class Scripted(ms.search_strategy.PySearchStrategy):  # type: ignore[misc]
        eps_greedy = 0.25

        def __init__(self, script: list[Any]) -> None:
            super().__init__()
            self.script = script
            self.heard: list[int] = []

        def _initialize_with_tune_context(self, context: Any) -> None:
            pass

        def pre_tuning(self, *arguments: Any) -> None:
            pass

        def post_tuning(self) -> None:
            pass

        def generate_measure_candidates(self) -> Any:
            return self.script.pop(0) if self.script else None

        def notify_runner_results(self, measure_candidates: Any, results: Any) -> None:
            self.heard.append(len(results))

    @derived_object
    class ByLength(ms.cost_model.PyCostModel):  # type: ignore[misc]
        def predict(self, context: Any, candidates: Any) -> Any:
            return np.array([float(len(each.sch.trace.insts)) for each in candidates])

    def make(*script: Any, trials: int = 100) -> Any:
        context = task("matmul", 16)
        strategy = Rounds(Scripted(list(script)))
        strategy._initialize_with_tune_context(context)
        strategy.pre_tuning(trials, 4, [], None, ByLength())
        return strategy

    return make


@pytest.fixture
def candidates(task: Any) -> Callable[..., list[Any]]:
    """Candidates whose traces are so long."""
    from tvm.s_tir import Schedule
    from tvm.s_tir import meta_schedule as ms

    def make(*lengths: int) -> list[Any]:
        module = task("matmul", 16).mod
        made = []
        for length in lengths:
            schedule = Schedule(module)
            for _ in range(length):
                schedule.get_sblock("root")
            made.append(ms.MeasureCandidate(schedule, []))
        return made

    return make


def lengths(found: Any) -> list[int] | None:
    return None if found is None else [len(each.sch.trace.insts) for each in found]


def results(found: Any) -> list[Any]:
    from tvm.s_tir import meta_schedule as ms

    return [ms.runner.RunnerResult([1e-6], None) for _ in found]


def test_uncut_rounds_are_the_inner_strategys(rounds: Any, candidates: Any) -> None:
    strategy = rounds(candidates(1, 3, 2), [], candidates(5, 4))
    assert lengths(strategy.generate_measure_candidates()) == [1, 3, 2]
    assert lengths(strategy.generate_measure_candidates()) == []
    assert lengths(strategy.generate_measure_candidates()) == [5, 4]
    assert strategy.generate_measure_candidates() is None


def test_a_cut_round_has_the_best_and_the_others_compete_later(rounds: Any, candidates: Any) -> None:
    strategy = rounds(candidates(1, 3, 2, 9), candidates(5, 4, 6, 0))
    strategy.cut(2)
    assert lengths(strategy.generate_measure_candidates()) == [9, 3]
    assert lengths(strategy.generate_measure_candidates()) == [6, 5, 4, 0]  # 0 was drawn to explore, not ranked
    assert lengths(strategy.generate_measure_candidates()) == [2, 1]
    assert strategy.generate_measure_candidates() is None


def test_no_more_is_proposed_than_the_task_may_measure(rounds: Any, candidates: Any) -> None:
    strategy = rounds(candidates(1, 2, 3, 4), candidates(5, 6, 7, 8), trials=5)
    strategy.cut(2)
    first = strategy.generate_measure_candidates()
    strategy.notify_runner_results(first, results(first))
    assert strategy.left() == 3
    assert len(strategy.generate_measure_candidates()) == 3


def test_what_is_measured_is_told_to_the_inner_strategy(rounds: Any, candidates: Any) -> None:
    strategy = rounds(candidates(1, 2))
    found = strategy.generate_measure_candidates()
    strategy.notify_runner_results(found, results(found))
    assert list(strategy._inner.heard) == [2]
