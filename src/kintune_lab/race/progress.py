"""How far a race is, and how long it may still take."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kintune_lab.experiment.experiment import CellProgress, Show
from kintune_lab.race.course import Course
from kintune_lab.race.judge import entered
from kintune_lab.race.side import Side

__all__ = ["Forecast"]

_JUDGED_PER_SECOND = 2.0  # programs built and timed three times, a guess that only the display lives by
_NETWORK_SECONDS = 60.0
_USUAL_SECONDS = 1.0  # of a trial
_USUAL_TRIALS = 64


class Forecast:
    """Shows a race to people, with the time that is left of it; `budgets` are those of the sides but stock."""

    def __init__(self, budgets: Mapping[str, float], show: Show) -> None:
        self._budgets = budgets
        self._show = show
        self._sides: Sequence[Side] = ()
        self._spent_s = 0.0
        self._total_s = 0.0

    def watch_sides(self, sides: Sequence[Side]) -> None:
        """These race; importing begins."""
        self._sides = sides
        self._show(CellProgress("importing and lowering the model"))

    def turned(self, course: Course) -> None:
        """One more turn is over."""
        tracks = list(course.tracks.values())
        stock = tracks[0]
        self._spent_s = sum(track.active_seconds for track in tracks)
        phase = "; ".join(f"{track.side} {track.trials} trials in {track.active_seconds:.0f} s" for track in tracks)
        expected = self._sides[0].trials_expected
        if not expected:
            self._show(CellProgress(phase))
            return
        stock_total_s = stock.active_seconds
        if not stock.finished:
            # The first turns are short of trials and full of beginnings: what is usual counts as some trials more.
            each_s = (stock.active_seconds + _USUAL_TRIALS * _USUAL_SECONDS) / (stock.trials + _USUAL_TRIALS)
            stock_total_s += max(0, expected - stock.trials) * each_s
        others = [
            track.active_seconds
            if track.finished
            else max(track.active_seconds, self._budgets[track.side] * stock_total_s)
            for track in tracks[1:]
        ]
        race_s = stock_total_s + sum(others)
        self._total_s = race_s + self._judge_seconds(course)
        left = self._total_s - self._spent_s
        self._show(CellProgress(phase, min(1.0, self._spent_s / self._total_s), left))

    def judging(self, course: Course) -> None:
        """The turns are over."""
        self._total_s = self._spent_s + self._judge_seconds(course)

    def judged(self, phase: str, share: float) -> None:
        """This share of the judging is done."""
        left = (self._total_s - self._spent_s) * (1.0 - share)
        self._show(CellProgress(phase, 1.0 - left / self._total_s if self._total_s else None, left))

    def _judge_seconds(self, course: Course) -> float:
        programs = sum(len(side) for sides in entered(course).values() for side in sides.values())
        return programs / _JUDGED_PER_SECOND + (1 + len(self._budgets)) * _NETWORK_SECONDS
