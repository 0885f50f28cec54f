"""A job that runs in a service, shown as `kintune tune` shows one that runs here."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, TextIO

import msgspec

from kintune.core.report import ProgressReport
from kintune.terminal.display import Display, open_display

__all__ = ["Following"]

_OVER = ("done", "failed", "cancelled")


class Following:
    """Takes a job's news and shows them: a line a state, and the search in between as a picture of its own.

    States are told by `say`, the picture is drawn on `stream` (standard error unless told).  It is closed when the job
    is over, or by the context.
    """

    def __init__(self, title: str, say: Callable[[str], None], stream: TextIO | None = None) -> None:
        self._title = title
        self._say = say
        self._stream = stream or sys.stderr
        self._display: Display | None = None
        self._last = ""

    def __enter__(self) -> Following:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __call__(self, kind: str, data: Mapping[str, Any]) -> None:
        """Something is new: `kind` and `data` as the service's events have them."""
        if kind in ("job", "changed"):
            self._is_now(data)
            self._show(data.get("progress"))
        elif kind == "progressed":
            self._show(data.get("report"))

    def close(self) -> None:
        """Leave the last picture standing."""
        if self._display is not None:
            self._display.close()
            self._display = None

    def _is_now(self, job: Mapping[str, Any]) -> None:
        line = f"{job['state']}: {job['reason']}" if job.get("reason") else str(job["state"])
        if job["state"] in _OVER:
            self.close()
        elif self._display is not None:  # the picture says it
            return
        if line != self._last:  # a connection that broke begins with what was told before
            self._last = line
            self._say(line)

    def _show(self, report: Any) -> None:
        if report is None or self._last.partition(":")[0] in _OVER:
            return
        with contextlib.suppress(msgspec.ValidationError):  # of another version: the job goes on all the same
            converted = msgspec.convert(report, ProgressReport)
            if self._display is None:
                self._display = open_display(self._title, stream=self._stream)
            self._display.show(converted)
