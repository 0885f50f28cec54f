"""The sentences about progress that the live and the plain display share."""

from __future__ import annotations

from kintune.core.report import ProgressReport
from kintune.terminal.quantities import clock, duration, milliseconds, times

__all__ = ["effort", "failures", "latency", "others", "stage"]

_SOME = 16
_MANY = 0.25  # the odd one is disturbed on a machine that does nothing else


def stage(report: ProgressReport) -> str:
    """What is going on: `profile conv2d_7`, with the phase when there is one."""
    words = " ".join(part for part in (report.stage, report.subgraph) if part)
    return f"{words} ({report.phase})" if report.phase else words


def effort(report: ProgressReport) -> str:
    """What was spent and what is left: `384 of 1000 trials, 03:12, about 5 min left`."""
    spent = f"{report.trials} of {report.trials_total} trials" if report.trials_total else f"{report.trials} trials"
    parts = [spent, clock(report.elapsed_s)]
    if report.time_left_s is not None:
        parts.append(f"about {duration(report.time_left_s)} left")
    return ", ".join(parts)


def latency(report: ProgressReport) -> str:
    """The estimated latency and what was gained; says so when nothing was measured yet."""
    if report.best_ms is None:
        return "no latency known yet"
    best = f"estimated {milliseconds(report.best_ms)}"
    if report.gain is None or report.untuned_ms is None:
        return best
    return f"{best}, {times(report.gain)} faster than untuned ({milliseconds(report.untuned_ms)})"


def failures(report: ProgressReport) -> str:
    """Failed candidates by cause, most frequent first, and what was already known; empty when there is neither."""
    parts = []
    if report.failures:
        ordered = sorted(report.failures.items(), key=lambda item: (-item[1], item[0]))
        causes = ", ".join(f"{cause} {count}" for cause, count in ordered)
        failed = sum(report.failures.values())
        parts.append(f"{failed} candidate{'' if failed == 1 else 's'} failed ({causes})")
    if report.reused_records:
        parts.append(f"{report.reused_records} measurements reused")
    return "; ".join(parts)


def others(trials: int, disturbed: int) -> str:
    """That others use the cores, once so many of these trials had to be timed again that it matters; else empty."""
    if trials < _SOME or disturbed < _MANY * trials:
        return ""
    return f"other programs use the cores: {disturbed} of {trials} programs had to be timed again"
