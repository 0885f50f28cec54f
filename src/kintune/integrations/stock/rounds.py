"""A search strategy whose rounds may be smaller than the tuner's, and tuning contexts that use it.

Stock fixes the size of a round before tuning starts, and never proposes again what it has proposed once.  So when a
round is cut to the few that the model ranks best, the others are kept and compete in the task's next round.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import numpy as np
from tvm.ir.utils import derived_object
from tvm.s_tir import meta_schedule as ms

from kintune.errors import InputError

__all__ = ["Rounds", "with_rounds"]


@derived_object
class Rounds(ms.search_strategy.PySearchStrategy):  # type: ignore[misc]
    """The strategy `inner`, of which the next round can be cut with `cut`."""

    def __init__(self, inner: ms.SearchStrategy) -> None:
        super().__init__()
        self._inner = inner
        self._context: ms.TuneContext | None = None
        self._model: ms.CostModel | None = None
        self._round_size = 0
        self._left = 0
        self._limit: int | None = None
        self._reserve: list[ms.MeasureCandidate] = []

    def cut(self, size: int) -> None:
        """Let the next round, and only that, have at most `size` candidates: those that the model ranks best."""
        self._limit = size

    def left(self) -> int:
        """Return how many candidates the task may still measure."""
        return self._left

    def _initialize_with_tune_context(self, context: ms.TuneContext) -> None:
        self._context = context
        self._inner._initialize_with_tune_context(context)

    def pre_tuning(
        self,
        max_trials: int,
        num_trials_per_iter: int,
        design_spaces: Sequence[Any],
        database: ms.Database | None = None,
        cost_model: ms.CostModel | None = None,
    ) -> None:
        """Begin tuning; see `SearchStrategy.pre_tuning` of stock."""
        self._left, self._round_size, self._model = max_trials, num_trials_per_iter, cost_model
        self._limit, self._reserve = None, []
        self._inner.pre_tuning(max_trials, num_trials_per_iter, design_spaces, database, cost_model)

    def post_tuning(self) -> None:
        """End tuning; the reference to the context, which refers to this strategy, is dropped."""
        self._context, self._reserve = None, []
        self._inner.post_tuning()

    def generate_measure_candidates(self) -> list[ms.MeasureCandidate] | None:
        """Return the next round, best first where it was ranked; None when the search space is exhausted."""
        limit, self._limit = self._limit, None
        proposed = self._inner.generate_measure_candidates()
        fresh = list(proposed or ())
        size = min(limit or len(fresh) or self._round_size, self._left)
        if not self._reserve and len(fresh) <= size:
            return None if proposed is None else fresh
        drawn = 0 if limit else int(len(fresh) * getattr(self._inner, "eps_greedy", 0.0))
        ranked = self._ranked([*self._reserve, *fresh[: len(fresh) - drawn]])
        greedy = max(0, size - drawn)
        self._reserve = ranked[greedy : greedy + self._round_size]
        return [*ranked[:greedy], *fresh[len(fresh) - drawn :]][:size]

    def notify_runner_results(
        self, measure_candidates: Sequence[ms.MeasureCandidate], results: Sequence[ms.runner.RunnerResult]
    ) -> None:
        """Count a measured round, and pass it to the inner strategy."""
        self._left -= len(results)
        self._inner.notify_runner_results(measure_candidates, results)

    def clone(self) -> Rounds:
        """Return another such strategy, with a clone of the inner one."""
        return Rounds(self._inner.clone())

    def _ranked(self, candidates: list[ms.MeasureCandidate]) -> list[ms.MeasureCandidate]:
        if self._model is None or not candidates:
            return candidates
        scores = self._model.predict(self._context, candidates)
        return [candidates[i] for i in np.argsort(-scores, kind="stable")]


def with_rounds(contexts: Sequence[ms.TuneContext]) -> tuple[list[ms.TuneContext], list[Rounds]]:
    """Return copies of the contexts with `Rounds` around clones of their strategies, and these `Rounds`.

    Raises:
        InputError: a context lacks its module, target, space generator or search strategy.
    """
    copies, strategies = [], []
    for position, context in enumerate(contexts):
        for needed in ("mod", "target", "space_generator", "search_strategy"):
            if getattr(context, needed) is None:
                raise InputError(f"task #{position} ({context.task_name}) has no {needed}; create its context with one")
        strategy = Rounds(context.search_strategy.clone())
        strategies.append(strategy)
        copies.append(
            ms.TuneContext(
                context.mod,
                target=context.target,
                space_generator=context.space_generator.clone(),
                search_strategy=strategy,
                task_name=context.task_name,
                rand_state=context.rand_state,
                num_threads=context.num_threads,
                logger=_logger(position, len(contexts), str(context.task_name)),
            )
        )
    return copies, strategies


def _logger(position: int, count: int, name: str) -> logging.Logger:
    """Return the logger of the task under stock's name for it, if there is one; a context does not have it."""
    own = f"{ms.logging.__name__}.task_{position:0{len(str(count - 1))}d}_{name[:100]}"
    known = own in logging.root.manager.loggerDict
    return logging.getLogger(own if known else ms.tune_context.__name__)
