"""What the stock builder and runner answer, as typed outcomes."""

from __future__ import annotations

from typing import Any

from kintune.core.outcome import Outcome, Status

__all__ = ["build_failure", "run_outcome"]

_TIMEOUT = "Timeout, killed"


def build_failure(error: str) -> Outcome:
    """The end of a candidate that the stock builder did not build."""
    status = Status.BUILD_TIMED_OUT if _TIMEOUT in error else Status.BUILD_FAILED
    return Outcome(status, cause=_line(error))


def run_outcome(result: Any) -> Outcome:
    """The end of a candidate that the stock runner ran (a `RunnerResult`): microseconds, or why there are none."""
    if result.error_msg is not None:
        error = str(result.error_msg)
        status = Status.RUN_TIMED_OUT if _TIMEOUT in error else Status.RUN_FAILED
        return Outcome(status, cause=_line(error))
    times = tuple(float(getattr(second, "value", second)) * 1e6 for second in result.run_secs or ())
    return Outcome(Status.OK, times) if times else Outcome(Status.RUN_FAILED, cause="no time")


def _line(error: str) -> str:
    """The line that says most: the last, where Python tells the exception."""
    lines = [line.strip() for line in error.splitlines() if line.strip()]
    return lines[-1][:200] if lines else ""
