"""The task scheduler argument of the stock tuner, with foresee tuning (FamilySeer, arXiv 2201.00194)."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from statistics import median
from typing import Any, get_args

from tvm.ir.utils import derived_object
from tvm.s_tir import meta_schedule as ms

from kintune.core.config import Foresee
from kintune.errors import EngineError, InputError
from kintune.integrations.stock.cost_model import FamilyCostModel
from kintune.integrations.stock.rounds import Rounds, with_rounds
from kintune.integrations.stock.task_history import RoundReason, RoundTaken, TaskHistory
from kintune.search.cost_model import Trust

__all__ = ["FamilyTaskScheduler"]

_DONE = -1
_WORTHWHILE = 4  # with fewer candidates, a foresee round of a doubted model costs more than it can gain
_log = logging.getLogger(ms.task_scheduler.__name__)


@derived_object
class _Chooser(ms.task_scheduler.PyTaskScheduler):  # type: ignore[misc]
    """Chooses the next task for stock's tuning loop; the loop itself, and all its records, are stock's."""

    def __init__(self, foresee: Foresee, foresee_size: int, alpha: float, window: int) -> None:
        super().__init__()
        self.turns: list[RoundTaken] = []
        self._foresee = foresee
        self._foresee_size = foresee_size
        self._alpha = alpha
        self._window = window

    def begin(
        self,
        strategies: Sequence[Rounds],
        weights: Sequence[float],
        trials: int,
        round_size: int,
        model: FamilyCostModel | None,
    ) -> None:
        """Reset the state for a tuning run.

        Args:
            strategies: the search strategy of each task.
            weights: how often each task occurs in the network.
            trials: candidates of all tasks together.
            round_size: candidates of a full round.
            model: the cost model, which knows the families; None without foresee rounds.
        """
        self.turns = []
        self._strategies = list(strategies)
        self._histories = [TaskHistory(weight) for weight in weights]
        self._trials_left = trials
        self._round_size = round_size
        self._model = model
        self._trust = Trust()
        self._predicted: list[float] = []
        self._running: tuple[int, RoundReason, int] | None = None
        self._first_pass = iter(range(len(weights)))

    def next_task_id(self) -> int:
        """Wait for the running round; returns the position of the task to tune next, -1 when none is left."""
        tuned = self._take_in()
        first = next(self._first_pass, None)
        if first is not None:
            if first == 0:
                self._outer().print_tuning_statistics()
            return self._start(first, RoundReason.FIRST, self._round_size)
        foreseen = self._sibling(tuned) if tuned is not None else None
        if foreseen is not None:
            task, size = foreseen
            self._strategies[task].cut(size)
            return self._start(task, RoundReason.FORESEE, size)
        alive = self._alive()
        if not alive:
            return _DONE
        steepest = max(alive, key=self._steepness)
        if math.isinf(self._gradient(steepest)):
            steepest = min(alive, key=lambda task: self._histories[task].rounds)
        return self._start(steepest, RoundReason.FULL, self._round_size)

    def _start(self, task: int, how: RoundReason, size: int) -> int:
        self._running = task, how, size
        return task

    def foretell(self, task: int, candidates: Sequence[ms.MeasureCandidate]) -> None:
        """Note the model's scores of a measured round, before the model learns from it; used to judge the model."""
        self._predicted = []
        if candidates and self._foresee == "guarded" and self._model is not None:
            context = self._context(task)
            if self._model.is_ready(context):
                self._predicted = [float(score) for score in self._model.predict(context, candidates)]

    def note(self, task: int, results: Sequence[ms.runner.RunnerResult]) -> None:
        """Take in the times of a measured round, after the cost model has learnt from it.

        Raises:
            EngineError: another task's round was begun.
        """
        if self._running is None or self._running[0] != task:
            raise EngineError(f"task #{task} was measured, but {self._running} was begun")
        _, how, size = self._running
        times = [_milliseconds(result) for result in results]
        history = self._histories[task]
        if self._predicted:
            improved = min(times) < history.best_ms
            foreseen = how is RoundReason.FORESEE
            self._trust.judge(self._family(task), self._predicted, times, foreseen=foreseen, improved=improved)
        history.close_round(times, size / self._round_size if how is RoundReason.FORESEE else 1.0)
        self._trials_left -= len(times)
        self.turns.append(RoundTaken(task, how, len(times), history.best_ms))

    def _take_in(self) -> int | None:
        """Wait for the running round; returns its task if it was a full round after the first pass, else None."""
        if self._running is None:
            return None
        task, how, _ = self._running
        measured = self._outer().tasks_[task].runner_futures is not None
        if measured:
            self._outer().join_running_task(task)
        self._running = None
        return task if measured and how is RoundReason.FULL else None

    def _sibling(self, tuned: int) -> tuple[int, int] | None:
        """Return the other task of the family with the largest gradient, and its number of candidates; None without."""
        if self._model is None or self._foresee == "none" or not self._model.is_ready(self._context(tuned)):
            return None
        family = self._family(tuned)
        size = min(self._trusted(family), self._round_size, self._trials_left)
        members = [t for t in self._alive() if t != tuned and self._family(t) == family]
        open_ = [t for t in members if self._strategies[t].left() > 0 and math.isfinite(self._gradient(t))]
        if not open_ or size < 1:
            return None
        task = max(open_, key=self._steepness)
        _log.info("Foresee: task #%d gets %d candidates, as kin of task #%d (%s)", task, size, tuned, family)
        return task, size

    def _trusted(self, family: str) -> int:
        """Return the number of candidates of a family's foresee round, as its model's predictions deserve."""
        if self._foresee == "published":
            return self._foresee_size
        size = self._trust.size(family, self._foresee_size)
        return size if size >= min(_WORTHWHILE, self._foresee_size) else 0

    def _alive(self) -> list[int]:
        return [i for i, task in enumerate(self._outer().tasks_) if not task.is_terminated]

    def _gradient(self, task: int) -> float:
        return self._histories[task].gradient(self._alpha, self._window)

    def _steepness(self, task: int) -> tuple[float, int]:
        """Sort key: the gradient; of equal ones, the first task is the largest."""
        return self._gradient(task), -task

    def _context(self, task: int) -> ms.TuneContext:
        return self._outer().tasks_[task].ctx

    def _family(self, task: int) -> str:
        if self._model is None:
            raise EngineError("families are known to a FamilyCostModel only")
        return str(self._model.family(self._context(task)))


@derived_object
class _Listener(ms.measure_callback.PyMeasureCallback):  # type: ignore[misc]
    """A measure callback that tells the chooser of every round, also of the last one, for which stock itself waits.

    There are two: one before all other callbacks, when the cost model has not learnt from the results yet, and one
    (`learnt`) after them.
    """

    def __init__(self, chooser: _Chooser, *, learnt: bool) -> None:
        super().__init__()
        self._chooser = chooser
        self._learnt = learnt

    def apply(
        self,
        task_scheduler: ms.TaskScheduler,
        task_id: int,
        measure_candidates: Sequence[ms.MeasureCandidate],
        builder_results: Sequence[ms.builder.BuilderResult],
        runner_results: Sequence[ms.runner.RunnerResult],
    ) -> None:
        """Pass the round to the chooser."""
        del task_scheduler, builder_results
        if self._learnt:
            self._chooser.note(int(task_id), runner_results)
        else:
            self._chooser.foretell(int(task_id), measure_candidates)


class FamilyTaskScheduler(_Chooser):
    """A task scheduler for `tune_relax(task_scheduler=...)`, to be used with a `FamilyCostModel`.

    Every task gets a round, and from then on the task with the largest gradient by stock's rule (`alpha`, `window`).
    After each of these rounds, and the update of the family's model, the other task of the family with the largest
    gradient gets a foresee round: only the `foresee_size` candidates that the model ranks best.  `foresee` is
    `published` for that, `guarded` for smaller and fewer foresee rounds where the predictions do not hold, `none` for
    none.

    `turns` lists the finished rounds (`RoundTaken`).  The next task is chosen when the results of a round are known.
    """

    def __init__(
        self,
        foresee: Foresee = "guarded",
        *,
        foresee_size: int = 16,
        alpha: float = 0.2,
        window: int = 3,
    ) -> None:
        """Check the settings.

        Raises:
            InputError: the kind of foresee is unknown, or a number is out of range.
        """
        if foresee not in get_args(Foresee):
            raise InputError(f"unknown kind of foresee {foresee!r}; use one of: {', '.join(get_args(Foresee))}")
        if foresee_size < 1 or window < 1 or not 0 <= alpha <= 1:
            raise InputError(
                f"foresee_size={foresee_size}, window={window}, alpha={alpha}: use at least 1, at least 1, and 0 to 1"
            )
        super().__init__(foresee, foresee_size, alpha, window)

    def tune(
        self,
        tasks: Sequence[ms.TuneContext],
        task_weights: Sequence[float],
        max_trials_global: int,
        max_trials_per_task: int,
        num_trials_per_iter: int,
        builder: ms.Builder,
        runner: ms.Runner,
        measure_callbacks: Sequence[ms.MeasureCallback],
        database: ms.Database | None,
        cost_model: ms.CostModel | None,
    ) -> None:
        """Tune; see stock's `TaskScheduler.tune`.

        Raises:
            InputError: `cost_model` is not a `FamilyCostModel`, and `foresee` is not `none`; or a task is incomplete.
        """
        chooser: Any = self._inst
        families = isinstance(cost_model, FamilyCostModel)
        if not families and chooser._foresee != "none":
            kind = type(cost_model).__name__
            raise InputError(
                f"FamilyTaskScheduler needs cost_model=FamilyCostModel(...), not {kind}; "
                "or turn foresee off: FamilyTaskScheduler('none')"
            )
        contexts, strategies = with_rounds(tasks)
        model = cost_model if families else None
        chooser.begin(strategies, [float(w) for w in task_weights], max_trials_global, num_trials_per_iter, model)
        super().tune(
            contexts,
            task_weights,
            max_trials_global,
            max_trials_per_task,
            num_trials_per_iter,
            builder,
            runner,
            [_Listener(chooser, learnt=False), *measure_callbacks, _Listener(chooser, learnt=True)],
            database,
            cost_model,
        )


def _milliseconds(result: ms.runner.RunnerResult) -> float:
    if result.error_msg is not None or not result.run_secs:
        return math.inf
    return 1e3 * median(float(second) for second in result.run_secs)
