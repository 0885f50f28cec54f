"""The progress of a race with an estimate of the time left, and pauses between turns."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from types import TracebackType

from kintune_lab.experiment.experiment import CellProgress, Show
from kintune_lab.race.remeasurement import best_programs_of
from kintune_lab.race.tuner_process import TunerUnderTest
from kintune_lab.race.turn_scheduler import RaceRecord

__all__ = ["Pause", "RaceProgress"]


_REMEASURED_PER_SECOND = 2.0  # programs built and timed three times, a guess for the display
_NETWORK_SECONDS = 60.0
_USUAL_SECONDS = 1.0  # of a trial
_USUAL_TRIALS = 64


class RaceProgress:
    """Shows the progress of a race and an estimate of the time left; `budgets` are those of all tuners but stock."""

    def __init__(self, budgets: Mapping[str, float], show: Show) -> None:
        self._budgets = budgets
        self._show = show
        self._tuners: Sequence[TunerUnderTest] = ()
        self._spent_s = 0.0
        self._total_s = 0.0

    def watch_tuners(self, tuners: Sequence[TunerUnderTest]) -> None:
        """Set the tuners of the race, before they import the model."""
        self._tuners = tuners
        self._show(CellProgress("importing and lowering the model"))

    def turned(self, record: RaceRecord) -> None:
        """Show the record after one more turn."""
        tracks = list(record.tracks.values())
        stock = tracks[0]
        self._spent_s = sum(track.active_seconds for track in tracks)
        phase = "; ".join(f"{track.tuner} {track.trials} trials in {track.active_seconds:.0f} s" for track in tracks)
        expected = self._tuners[0].trials_expected
        if not expected:
            self._show(CellProgress(phase))
            return
        stock_total_s = stock.active_seconds
        if not stock.finished:
            # The first turns have few trials and include start-up, so usual seconds of some more trials are added.
            each_s = (stock.active_seconds + _USUAL_TRIALS * _USUAL_SECONDS) / (stock.trials + _USUAL_TRIALS)
            stock_total_s += max(0, expected - stock.trials) * each_s
        others = [
            track.active_seconds
            if track.finished
            else max(track.active_seconds, self._budgets[track.tuner] * stock_total_s)
            for track in tracks[1:]
        ]
        race_s = stock_total_s + sum(others)
        self._total_s = race_s + self._remeasure_seconds(record)
        left = self._total_s - self._spent_s
        self._show(CellProgress(phase, min(1.0, self._spent_s / self._total_s), left))

    def remeasuring(self, record: RaceRecord) -> None:
        """Estimate the time left once all turns are over."""
        self._total_s = self._spent_s + self._remeasure_seconds(record)

    def remeasured(self, phase: str, share: float) -> None:
        """Show that this share of the re-measurement is done."""
        left = (self._total_s - self._spent_s) * (1.0 - share)
        self._show(CellProgress(phase, 1.0 - left / self._total_s if self._total_s else None, left))

    def _remeasure_seconds(self, record: RaceRecord) -> float:
        programs = sum(len(found) for tuners in best_programs_of(record).values() for found in tuners.values())
        return programs / _REMEASURED_PER_SECOND + (1 + len(self._budgets)) * _NETWORK_SECONDS


_LOOK_S = 1.0


class Pause:
    """Holds the cores inside a `with` block, but lets go of them in `between_turns` while the file `asked` exists.

    `hold` takes the cores; `show` is called with the progress while it waits.
    """

    def __init__(
        self,
        asked: Path,
        hold: Callable[[], AbstractContextManager[None]],
        show: Show,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._asked = asked
        self._hold = hold
        self._show = show
        self._sleep = sleep
        self._held = ExitStack()

    def __enter__(self) -> Pause:
        self._held.enter_context(self._hold())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._held.close()

    def between_turns(self) -> None:
        """Wait while a pause is asked for; called while all tuners are stopped, and not charged."""
        if not self._asked.exists():
            return
        self._held.close()
        while self._asked.exists():
            self._show(CellProgress(f"pausing until {self._asked} is removed"))
            self._sleep(_LOOK_S)
        self._held.enter_context(self._hold())
