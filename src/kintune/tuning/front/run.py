"""One tuning run from request to report."""

from __future__ import annotations

from collections.abc import Callable

from kintune.core.report import ProgressReport, RunReport
from kintune.errors import KintuneError
from kintune.tuning.front.driver import tune_all
from kintune.tuning.front.request import TuneRequest

__all__ = ["TuneRequest", "tune"]

OnProgress = Callable[[ProgressReport], None]


def tune(request: TuneRequest, on_progress: OnProgress | None = None) -> RunReport:
    """Tune as asked; Ctrl-C ends the search and keeps what was found.

    Raises InputError (or a child) when something handed in is wrong, JobFailed when nothing came of it, NumericsError
    when the result does not compute what the model computes, StorageError when the records or the result cannot be
    written (the run can be gone on with).
    """
    show = None if on_progress is None else lambda _, report: on_progress(report)
    (ending,) = tune_all([request], on_progress=show)
    if isinstance(ending, KintuneError):
        raise ending
    return ending
