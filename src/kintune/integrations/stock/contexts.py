"""Tuning contexts like the user's, but with rounds that can be cut."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from tvm.s_tir import meta_schedule as ms

from kintune.errors import InputError
from kintune.integrations.stock.rounds import Rounds

__all__ = ["with_rounds"]


def with_rounds(contexts: Sequence[ms.TuneContext]) -> tuple[list[ms.TuneContext], list[Rounds]]:
    """Contexts equal to the given ones, each with a strategy of ours around a clone of its own; those stay as they are.

    Raises InputError when a context has nothing to tune, or no way of tuning it.
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
    """The task's own log as stock names it, if it has one; a context does not tell."""
    own = f"{ms.logging.__name__}.task_{position:0{len(str(count - 1))}d}_{name[:100]}"
    known = own in logging.root.manager.loggerDict
    return logging.getLogger(own if known else ms.tune_context.__name__)
