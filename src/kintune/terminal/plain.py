"""Progress as plain lines, for logs and pipes: one at every milestone, and one about every ten seconds between."""

from __future__ import annotations

from typing import TextIO

from kintune.core.report import ProgressReport
from kintune.core.stage_results import StageName
from kintune.terminal import phrases

__all__ = ["PlainDisplay"]

_ROUTINE = frozenset({StageName.SELECT, StageName.BUILD, StageName.PROFILE, StageName.UPDATE})


class PlainDisplay:
    """Writes lines to `stream`, at least `interval_s` seconds of run time apart except at milestones.

    A milestone is the start of a stage that happens once, a new phase, or the first estimated latency.
    """

    def __init__(self, title: str, stream: TextIO, interval_s: float = 10.0) -> None:
        self._stream = stream
        self._interval_s = interval_s
        self._written_s = float("-inf")
        self._last: ProgressReport | None = None
        self._unwritten = False
        self._write(title)

    def show(self, report: ProgressReport) -> None:
        """Write a line if one is due."""
        due = report.elapsed_s - self._written_s >= self._interval_s or self._is_milestone(report)
        self._last = report
        self._unwritten = not due
        if due:
            self._write_report(report)

    def close(self) -> None:
        """Write the last report if it was held back."""
        if self._last is not None and self._unwritten:
            self._write_report(self._last)
            self._unwritten = False

    def _is_milestone(self, report: ProgressReport) -> bool:
        last = self._last
        if last is None:
            return True
        new_stage = report.stage != last.stage and not {report.stage, last.stage} <= _ROUTINE
        new_phase = bool(report.phase) and report.phase != last.phase
        return new_stage or new_phase or (report.best_ms is not None and last.best_ms is None)

    def _write_report(self, report: ProgressReport) -> None:
        said = (
            phrases.effort(report),
            phrases.latency(report),
            phrases.stage(report),
            phrases.failures(report),
            phrases.others(report.trials, report.disturbed),
        )
        self._write("; ".join(part for part in said if part))
        self._written_s = report.elapsed_s

    def _write(self, line: str) -> None:
        self._stream.write(f"{line}\n")
        self._stream.flush()
