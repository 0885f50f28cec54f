"""The limits of a search: when it ends, and how many trials, rounds and seconds are left."""

from __future__ import annotations

import math

from kintune.core.config import Options
from kintune.search.session import SearchSession
from kintune.tuning.job.statistics import JobStatistics

__all__ = ["SearchLimits"]

_PACKAGING_S = 15.0  # seconds that compiling the network takes
_TRYING_S = 15.0  # seconds that trying it in narrower precisions takes at least ...
_TRYING = 0.2  # ... and the share of the time that is left for it
_FIRST_GUESS_S = 0.3  # seconds of a trial, until enough were measured


class SearchLimits:
    """The limits of one job and what it has used.

    `closing_trials` is the time of the finalists, in trials; `is_target_met` says that the network is estimated to be
    as fast as was asked for, `has_narrow` that there are narrower precisions to be tried, where the options allow it.
    """

    def __init__(
        self,
        options: Options,
        statistics: JobStatistics,
        session: SearchSession,
        closing_trials: float,
        is_target_met: bool,
        *,
        has_narrow: bool = True,
    ) -> None:
        self._is_target_met = is_target_met
        self._options = options
        self._statistics = statistics
        self._session = session
        self._packing_s = closing_trials * self._trial_s + _PACKAGING_S
        self._trying_s = 0.0
        if options.error_budget is not None and has_narrow:
            self._trying_s = max(_TRYING_S, _TRYING * 60 * (options.minutes or 0.0))
        self._closing_s = self._packing_s + self._trying_s

    @property
    def _trial_s(self) -> float:
        """Seconds of a trial so far, with all stages of the search."""
        statistics = self._statistics
        return statistics.search_s / statistics.trials if statistics.trials >= 16 else _FIRST_GUESS_S

    def reached(self, asked: str) -> str:
        """Return why the search must end now ("trials", "time", "target met", or `asked`); empty if it may go on."""
        options = self._options
        if asked:
            return asked
        if self._is_target_met:
            return "target met"
        if options.trials is not None and self._statistics.trials >= options.trials:
            return "trials"
        if self._session.round and self._seconds_for_search() <= 0:
            return "time"
        return ""

    def affordable(self) -> int | None:
        """Return how many more trials the limits allow; None without a limit."""
        bounds: list[int] = []
        if self._options.trials is not None:
            bounds.append(self._options.trials - self._statistics.trials - self._session.trials_under_way)
        if self._options.minutes is not None and self._session.round:
            under_way = self._session.trials_under_way  # whose time is still to come
            bounds.append(max(0 if under_way else 1, int(self._seconds_for_search() / self._trial_s) - under_way))
        return min(bounds) if bounds else None

    def rounds_left(self) -> int | None:
        """Return about how many more rounds the limits allow, without open rounds; None if it cannot be told yet."""
        bounds: list[float] = []
        options, statistics, rounds = self._options, self._statistics, self._session.round
        size = statistics.trials / rounds if rounds and statistics.trials else options.strategy.round_size
        if options.trials is not None:
            bounds.append((options.trials - statistics.trials - self._session.trials_under_way) / size)
        if options.minutes is not None and rounds:
            bounds.append(self._seconds_for_search() * rounds / statistics.search_s if statistics.search_s else 0.0)
        return max(0, math.ceil(min(bounds))) if bounds else None

    def seconds_left(self, *, searching: bool, narrowing: bool = False) -> float | None:
        """Return the expected seconds until the result is written; None if they cannot be told yet.

        After the search, `narrowing` says that narrower precisions are still to be tried.
        """
        if not searching:
            return self._packing_s + (self._trying_seconds_left() if narrowing else 0.0)
        bounds: list[float] = []
        if self._options.minutes is not None:
            bounds.append(max(self._closing_s, self._options.minutes * 60 - self._statistics.at))
        if self._options.trials is not None and self._statistics.trials:
            left = max(0, self._options.trials - self._statistics.trials)
            bounds.append(left * self._trial_s + self._closing_s)
        return min(bounds) if bounds else None

    def search_seconds_left(self) -> float | None:
        """Return the expected seconds until the search ends; None if they cannot be told yet."""
        bounds: list[float] = []
        if self._options.minutes is not None:
            bounds.append(self._seconds_for_search())
        if self._options.trials is not None and self._statistics.trials:
            bounds.append((self._options.trials - self._statistics.trials) * self._trial_s)
        return max(0.0, min(bounds)) if bounds else None

    def _trying_seconds_left(self) -> float:
        """Return the seconds left for narrower precisions: what the user gave, or what they take at least."""
        given = 60 * (self._options.minutes or 0.0) - self._statistics.at - self._packing_s
        return min(self._trying_s, max(_TRYING_S, given))

    def _seconds_for_search(self) -> float:
        if self._options.minutes is None:
            return math.inf
        return self._options.minutes * 60 - self._statistics.at - self._closing_s
